package landmark

import (
	"context"
	"math"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
	"gonum.org/v1/gonum/mat"
)

// Pull is a smooth displacement that goes through given ones, as nearly as their error allows: the mean of a Gaussian
// process (Kriging), whose covariance is Matern's of order 3/2.
type Pull struct {
	at        [][3]float64
	weights   [][3]float64 // times the variance
	reach     float64      // mm
	cross     float64      // mm
	rms, most float64      // of the displacements at the points, mm
}

// When displacements become a pull (RATIONALE.md, Landmarks).
const (
	improbable   = 6.0 // least rise of the log-likelihood: the error alone explains much of a few displacements
	foretold     = 0.8 // most that the others may miss a point by, in parts of its displacement
	certain      = 4.0 // displacement, in errors, that no error explains: it stands whatever the others say
	enoughCross  = 4   // least number of points for leaving each out in turn
	enoughSpread = 3   // least number of points that show a reach
	nearby       = 8   // with fewer points the reach is at most this part of the extent
)

// NewPull returns the most likely smooth displacement for the displacements, LPS mm, measured at points with a known
// error (root mean square length, mm). Its reach is at most extent, the image's longest side; voxel is the image's,
// both mm.
//
// It is nil where the error alone explains the displacements, or might and no point is foretold by the others, and where
// ctx ends: a thousand points take seconds. The second value is the log-likelihood, for comparing displacements of the
// same points.
func NewPull(ctx context.Context, at, displacements [][3]float64, err, extent, voxel float64) (*Pull, float64) {
	n := len(at)
	noise := max(err*err/3, 1e-6*voxel*voxel) // of a component
	r := mat.NewDense(n, 3, nil)
	square, most := 0.0, 0.0
	for i, d := range displacements {
		r.SetRow(i, d[:])
		d := volume.Distance(d, [3]float64{})
		square += float64(d * d)
		most = max(most, d)
	}
	alone := -square/(2*noise) - float64(1.5*float64(n)*math.Log(noise))
	likeliest, longest := alone+improbable, extent
	if n < enoughSpread {
		longest /= nearby
	}
	pull := &Pull{at: at, weights: make([][3]float64, n), rms: math.Sqrt(square / float64(n)), most: most}
	var factors *mat.Cholesky // of the likeliest reach and variance
	var solution *mat.Dense
	variance := 0.0
	for reach := longest; reach > longest/40; reach /= 2 {
		for size := 32 * voxel; size >= 0.25*voxel; size /= 2 { // standard deviation of a component, mm
			if ctx.Err() != nil {
				return nil, alone
			}
			k := mat.NewSymDense(n, nil)
			for i := range n {
				for j := i; j < n; j++ {
					k.SetSym(i, j, size*size*covariance(volume.Distance(at[i], at[j])/reach))
				}
				k.SetSym(i, i, k.At(i, i)+noise)
			}
			var cholesky mat.Cholesky
			var w mat.Dense
			if !cholesky.Factorize(k) || cholesky.SolveTo(&w, r) != nil {
				continue
			}
			fit := 0.0
			for i := range n {
				for a := range 3 {
					fit += float64(r.At(i, a) * w.At(i, a))
				}
			}
			if l := -float64(fit/2) - float64(1.5*cholesky.LogDet()); l > likeliest {
				likeliest, pull.reach, variance, factors, solution = l, reach, size*size, &cholesky, &w
			}
		}
	}
	if factors == nil {
		return nil, alone
	}
	pull.cross = leftOut(factors, solution)
	if n >= enoughCross && pull.cross > foretold*pull.rms && pull.rms <= certain*err {
		return nil, alone
	}
	for i := range n {
		for a := range 3 {
			pull.weights[i][a] = variance * solution.At(i, a)
		}
	}
	return pull, likeliest - improbable
}

// leftOut returns the root mean square error of predicting each point's displacement from all others (leave-one-out),
// computed from the covariances and the solution w (Dubrule, Math. Geol. 1983).
func leftOut(cholesky *mat.Cholesky, w *mat.Dense) float64 {
	n, _ := w.Dims()
	var inverse mat.SymDense
	if cholesky.InverseTo(&inverse) != nil {
		return math.Inf(1)
	}
	sum := 0.0
	for i := range n {
		for a := range 3 {
			d := w.At(i, a) / inverse.At(i, i)
			sum += float64(d * d)
		}
	}
	return math.Sqrt(sum / float64(n))
}

// covariance returns Matern's of order 3/2 at a distance in reaches.
func covariance(distance float64) float64 {
	d := float64(math.Sqrt(3) * distance)
	return (1 + d) * math.Exp(-d)
}

// At returns the displacement at a point, LPS mm.
func (p *Pull) At(x [3]float64) (d [3]float64) {
	for i, at := range p.at {
		k := covariance(volume.Distance(x, at) / p.reach)
		for a := range 3 {
			d[a] += float64(k * p.weights[i][a])
		}
	}
	return d
}

// Reach returns the distance, mm, over which one point's displacement counts.
func (p *Pull) Reach() float64 { return p.reach }

// Cross returns the root mean square error, mm, of predicting each point's displacement from the others (leave-one-out).
func (p *Pull) Cross() float64 { return p.cross }

// Longest returns the largest of the displacements that were given, mm.
func (p *Pull) Longest() float64 { return p.most }

// Sample returns the displacement at the points of a grid, three components a point, LPS mm.
func (p *Pull) Sample(g volume.Geometry, threads int) []float32 {
	out := make([]float32, 3*g.Voxels())
	toPhysical := g.IndexToPhysical()
	parallel.Each(g.Voxels(), 256, threads, func(i int) {
		d := p.At(toPhysical.Apply(g.Point(i)))
		out[3*i], out[3*i+1], out[3*i+2] = float32(d[0]), float32(d[1]), float32(d[2])
	})
	return out
}
