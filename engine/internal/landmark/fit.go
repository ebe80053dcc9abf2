// Package landmark turns corresponding points into transforms: the linear one that fits them, and the smooth
// displacement that brings a registration to them. It finds pairs that contradict the rest.
package landmark

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/morphseek/morphseek/engine/volume"
)

// Pair is one point of the fixed image and where it is in the moving one, LPS mm.
type Pair struct{ Fixed, Moving [3]float64 }

// Distance returns how far from its moving point a transform carries the fixed one, mm.
func (p Pair) Distance(t volume.Affine) float64 {
	return volume.Distance(t.Apply(p.Fixed), p.Moving)
}

// RMS returns the root mean square of the distances.
func RMS(pairs []Pair, t volume.Affine) float64 {
	sum := 0.0
	for _, p := range pairs {
		d := p.Distance(t)
		sum += float64(d * d)
	}
	return math.Sqrt(sum / float64(len(pairs)))
}

// EnoughTurn is the least number of pairs that determine a rotation.
const EnoughTurn = 3

const (
	enoughAffine = 8   // least number of pairs for an affine map
	flatness     = 0.1 // ratio of the least to the largest extent of the points below which they determine no affine map
	enoughToTell = 5   // least number of pairs among which a wrong one can be found
)

// Fit returns the least-squares transform, fixed -> moving: an affine one if that is asked for and the points determine
// it, a rigid one for three points or more that lie on no line, and otherwise a translation.
func Fit(pairs []Pair, affine bool) volume.Affine {
	from, to := middles(pairs)
	extents, linear := spread(pairs, from), volume.IdentityAffine()
	switch {
	case affine && len(pairs) >= enoughAffine && extents[2] > flatness*extents[0]:
		linear.M = leastSquares(pairs, from, to)
	case len(pairs) >= EnoughTurn && extents[1] > flatness*extents[0]:
		linear.M = rotation(pairs, from, to)
	}
	linear.T = volume.Sub(to, linear.Apply(from))
	return linear
}

// Contradictory returns the indices, ascending, of pairs that contradict the rest. Such a pair lies many times farther
// from a rigid fit of the others than the others do, and than err, the error of points in mm.
func Contradictory(pairs []Pair, err float64) (wrong []int) {
	const far, tail = 5, 3
	left := make([]int, len(pairs))
	for i := range left {
		left[i] = i
	}
	for len(left) >= enoughToTell {
		misses := missesOf(pairs, left)
		worst := floats.MaxIdx(misses)
		// the others are measured without the worst pair, which would distort their fits
		others := slices.Delete(slices.Clone(left), worst, worst+1)
		usual := missesOf(pairs, others)
		slices.Sort(usual)
		if most := misses[worst]; most <= far*usual[len(usual)/2] || most <= tail*usual[len(usual)-1] || most <= far*err {
			break
		}
		wrong = append(wrong, left[worst])
		left = others
	}
	slices.Sort(wrong)
	return wrong
}

// missesOf returns how far each of some pairs, which indices name, lies from a rigid fit of the others, mm.
func missesOf(pairs []Pair, indices []int) []float64 {
	misses := make([]float64, len(indices))
	for k, i := range indices {
		var others []Pair
		for _, j := range indices {
			if j != i {
				others = append(others, pairs[j])
			}
		}
		misses[k] = pairs[i].Distance(Fit(others, false))
	}
	return misses
}

// Mirrored says whether fixed points fit the moving ones, of an error of err mm, clearly better as their mirror image: rigidly
// up to a scale, flat points within their plane, z = 0. Few points, or points of space in one plane, tell nothing.
func Mirrored(pairs []Pair, flat bool, err float64) bool {
	const far, better = 3, 2
	axes := 3
	if flat {
		axes = 2
	}
	if len(pairs) < enoughToTell {
		return false
	}
	from, to := middles(pairs)
	var svd mat.SVD
	if !svd.Factorize(crossCovariance(pairs, from, to).Slice(0, axes, 0, axes), mat.SVDFull) {
		return false
	}
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	values, fixed, moving := svd.Values(nil), 0.0, 0.0
	for _, p := range pairs {
		a, b := volume.Distance(p.Fixed, from), volume.Distance(p.Moving, to)
		fixed += float64(a * a)
		moving += float64(b * b)
	}
	sum, last := 0.0, float64(values[axes-1]*math.Copysign(1, mat.Det(&u)*mat.Det(&v)))
	for _, x := range values[:axes-1] {
		sum += x
	}
	left := func(trace float64) float64 {
		return math.Sqrt(max(moving-float64(trace*trace)/fixed, 0) / float64(len(pairs)))
	}
	asIs, mirrored := left(sum+last), left(sum-last)
	return asIs > far*err && asIs > better*mirrored
}

func middles(pairs []Pair) (from, to [3]float64) {
	n := float64(len(pairs))
	for _, p := range pairs {
		for a := range 3 {
			from[a] += p.Fixed[a] / n
			to[a] += p.Moving[a] / n
		}
	}
	return from, to
}

// spread returns the extents of the fixed points along their principal axes, largest first: standard deviations, mm.
func spread(pairs []Pair, middle [3]float64) (extents [3]float64) {
	covariance := mat.NewSymDense(3, nil)
	for _, p := range pairs {
		d := volume.Sub(p.Fixed, middle)
		covariance.SymRankOne(covariance, 1/float64(len(pairs)), mat.NewVecDense(3, d[:]))
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(covariance, false) {
		return extents
	}
	for a, v := range eigen.Values(nil) {
		extents[2-a] = math.Sqrt(max(v, 0))
	}
	return extents
}

// leastSquares returns the matrix of the affine fit about the middles.
func leastSquares(pairs []Pair, from, to [3]float64) (m [9]float64) {
	a, b := mat.NewDense(len(pairs), 3, nil), mat.NewDense(len(pairs), 3, nil)
	for i, p := range pairs {
		here, there := volume.Sub(p.Fixed, from), volume.Sub(p.Moving, to)
		a.SetRow(i, here[:])
		b.SetRow(i, there[:])
	}
	var x mat.Dense
	if err := x.Solve(a, b); err != nil {
		return volume.Identity
	}
	for row := range 3 {
		for column := range 3 {
			m[3*row+column] = x.At(column, row)
		}
	}
	return m
}

// crossCovariance returns the sums of the products of the fixed points' coordinates with the moving ones', about the
// middles.
func crossCovariance(pairs []Pair, from, to [3]float64) *mat.Dense {
	h := mat.NewDense(3, 3, nil)
	for _, p := range pairs {
		for row := range 3 {
			for column := range 3 {
				h.Set(row, column, h.At(row, column)+float64((p.Fixed[row]-from[row])*(p.Moving[column]-to[column])))
			}
		}
	}
	return h
}

// rotation returns the matrix of the rigid fit about the middles (Kabsch, Acta Crystallogr. A 1976).
func rotation(pairs []Pair, from, to [3]float64) (m [9]float64) {
	back := volume.NearestRotation([9]float64(crossCovariance(pairs, from, to).RawMatrix().Data))
	for i := range m {
		m[i] = back[i%3*3+i/3]
	}
	return m
}
