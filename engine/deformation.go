package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// A registration may start from the caller's deformation. The deformable stages go on from it. The referee keeps it
// where they bring the images no closer.

// startOf returns where the stages start: the caller's initial transform and deformation, without folds; nil where there is
// none. Of a deformation without a transform one is split off; a field that does not bend becomes that alone.
func startOf(n *notes, pair Pair, threads int) (*volume.Affine, *field.Field) {
	initial, f := pair.Initial, pair.InitialField
	if f == nil {
		return initial, nil
	}
	f = field.Over(f.Geometry, slices.Clone(f.Data))
	if initial == nil {
		a := splitOff(f)
		initial = &a
	}
	if !slices.ContainsFunc(f.Data, func(x float32) bool { return math.Abs(float64(x)) > straight }) {
		return initial, nil
	}
	if folded := f.Unfold(minJacobian, threads); folded > 0 {
		share := 100 * float64(folded) / float64(f.Voxels())
		text := fmt.Sprintf("The initial deformation folds over itself in %.2g %% of its voxels; it was smoothed there.", share)
		if share > mostFolding {
			text = fmt.Sprintf("The initial deformation folds over itself in %.2g %% of its voxels, as no body does; it was smoothed there, and little of it may be left: check its units, its direction and its space (LPS, mm).", share)
		}
		n.warn(text)
	}
	return initial, f
}

// splitOff returns the affine map, LPS mm, that explains most of the displacement in the least squares, and leaves in f
// what comes before it; the identity where none explains most.
func splitOff(f *field.Field) volume.Affine {
	var middle [3]float64
	for a, n := range f.Size {
		middle[a] = float64(n-1) / 2
	}
	type sums struct {
		u, c2  [3]float64    // of the displacements, and of the squared distances from the middle
		cu     [3][3]float64 // of the distance along an axis times the displacement
		square float64
	}
	s := parallel.Reduce(f.Voxels(), 1<<16, 1, func(lo, hi int) (s sums) {
		for i := lo; i < hi; i++ {
			x, u := f.Point(i), f.Vector(i)
			for a := range 3 {
				c := x[a] - middle[a]
				s.u[a] += u[a]
				s.c2[a] += float64(c * c)
				s.square += float64(u[a] * u[a])
				for b := range 3 {
					s.cu[b][a] += float64(c * u[b])
				}
			}
		}
		return s
	}, func(p, q sums) sums {
		p.square += q.square
		for a := range 3 {
			p.u[a] += q.u[a]
			p.c2[a] += q.c2[a]
			for b := range 3 {
				p.cu[a][b] += q.cu[a][b]
			}
		}
		return p
	})
	n := float64(f.Voxels())
	fit, by := volume.IdentityAffine(), 0.0 // the axes of a grid are orthogonal: each coefficient stands by itself
	for b := range 3 {
		fit.T[b] = s.u[b] / n
		by += float64(s.u[b]*s.u[b]) / n
		for a := range f.Axes() {
			slope := s.cu[b][a] / s.c2[a]
			fit.M[3*b+a] += slope
			fit.T[b] -= float64(slope * middle[a])
			by += float64(slope * s.cu[b][a])
		}
	}
	undo, err := fit.Inverse()
	if err != nil || fit.Det() <= 0 || !(by >= explained*s.square) || s.square == 0 {
		return volume.IdentityAffine()
	}
	for i := range f.X {
		f.SetTarget(i, undo.Apply(f.Target(i)))
	}
	return f.IndexToPhysical().After(fit).After(f.PhysicalToIndex())
}
