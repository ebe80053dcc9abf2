package landmark

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
	"gonum.org/v1/gonum/mat"
)

// Pull is a smooth displacement that goes through given ones, as nearly as their error allows: the mean of a Gaussian process (Kriging), whose
// covariance is Matern's of order 3/2.
type Pull struct {
	at      [][3]float64
	weights [][3]float64 // times the variance
	reach   float64      // mm
}

// improbable is by how much the logarithm of the likelihood must rise before there is any displacement at all: a few points that their own
// error explains say nothing about what lies between them.
const improbable = 2

// NewPull returns what explains the displacements, LPS mm, measured at points with a known error: root mean square length, mm. Size and reach of the
// displacement are the likeliest ones, the reach up to extent, the image's longest side. It is nil where the error alone explains them.
func NewPull(at, displacements [][3]float64, err, extent float64) *Pull {
	n := len(at)
	noise := err * err / 3 // of a component
	noise = max(noise, 1e-6)
	r := mat.NewDense(n, 3, nil)
	square := 0.0
	for i, d := range displacements {
		r.SetRow(i, d[:])
		square += float64(d[0]*d[0]) + float64(d[1]*d[1]) + float64(d[2]*d[2])
	}
	likeliest := -square/(2*noise) - 1.5*float64(n)*math.Log(noise) + improbable
	var found *Pull
	for reach := extent; reach > extent/40; reach /= 2 {
		for size := 32.0; size >= 0.25; size /= 2 { // standard deviation of a component, mm
			k := mat.NewSymDense(n, nil)
			for i := range n {
				for j := i; j < n; j++ {
					k.SetSym(i, j, size*size*covariance(length(difference(at[i], at[j]))/reach))
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
			if l := -fit/2 - 1.5*cholesky.LogDet(); l > likeliest {
				likeliest = l
				found = &Pull{at: at, reach: reach, weights: make([][3]float64, n)}
				for i := range n {
					for a := range 3 {
						found.weights[i][a] = size * size * w.At(i, a)
					}
				}
			}
		}
	}
	return found
}

// covariance is Matern's of order 3/2 at a distance in reaches.
func covariance(distance float64) float64 {
	d := math.Sqrt(3) * distance
	return (1 + d) * math.Exp(-d)
}

// At returns the displacement at a point, LPS mm.
func (p *Pull) At(x [3]float64) (d [3]float64) {
	for i, at := range p.at {
		k := covariance(length(difference(x, at)) / p.reach)
		for a := range 3 {
			d[a] += float64(k * p.weights[i][a])
		}
	}
	return d
}

// Reach is over what distance one point's displacement counts, mm.
func (p *Pull) Reach() float64 { return p.reach }

// Sample returns the displacement at the points of a grid, three components a point, LPS mm.
func (p *Pull) Sample(g volume.Geometry, threads int) []float32 {
	out := make([]float32, 3*g.Voxels())
	toPhysical := g.IndexToPhysical()
	parallel.For(g.Voxels(), 256, threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			d := p.At(toPhysical.Apply([3]float64{float64(i % g.Size[0]), float64(i / g.Size[0] % g.Size[1]), float64(i / (g.Size[0] * g.Size[1]))}))
				out[3*i], out[3*i+1], out[3*i+2] = float32(d[0]), float32(d[1]), float32(d[2])
		}
	})
	return out
}
