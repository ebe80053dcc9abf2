package search

import (
	"context"
	"math"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/blocks"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// around is the level at which Uncertainty compares displacements around the result: up to three voxels of the working
// grid each way.
var around = blocks.Level{Spacing: 4, Radius: 3, Quantum: 1, Stiffness: 8}

// Calibrated on known displacements (python/benchmarks/uncertainty.py): the temperature and the stiffness of around so that
// the uncertainty ranks the errors, then the dispersion so that it has their size (Laves et al., MIDL 2020).
const (
	temperature = 1    // a cost
	dispersion  = 1.05 // factor: min-marginals in a window alone understate the errors
)

// Uncertainty returns the standard deviation of the displacement in mm, on a grid of control points that covers the
// fixed volume, of a registration that ended in u: a field as Run's, on any grid and from any stage; nil is the
// identity.
//
// It computes, for every control point, the min-marginals m of all displacements in a window around the result, as Run
// does. What it returns is, up to one factor, the root mean square length of a displacement from the result under the
// Gibbs distribution exp(-m/T). So it is small where any other displacement matches worse, and large along edges, in
// tissue without structure, and where another displacement matches as well.
//
// Errors: Cancelled.
func Uncertainty(ctx context.Context, pair aligned.Pair, u *field.Field, opt Options) (*volume.Volume, error) {
	grid := blocks.WorkingGrid(pair)
	_, margin := levelsFor(grid)
	margin = max(margin, around.Reach())
	im := pair.At(grid, margin, aligned.ZeroEdge, opt.Threads).Through(u, opt.Threads)
	s := blocks.Between(around, im, opt.Threads)
	s.Locked = opt.Locked
	if opt.Progress != nil {
		opt.Progress(0.5)
	}
	if ctx.Err() != nil {
		return nil, fault.Wrap(fault.Cancelled, ctx.Err(), "the uncertainty was cancelled")
	}
	m := s.MinMarginals(1)
	_, deep := s.Labels(grid)
	lengths := squaredLengths(around, pair.Initial.After(grid.IndexToPhysical()).M, deep)
	sd, gibbs := volume.Zeros(m.Control), m.Gibbs(temperature)
	parallel.For(len(sd.Data), 64, opt.Threads, func(lo, hi int) {
		weights := make([]float32, m.Labels)
		for i := lo; i < hi; i++ {
			gibbs(weights, i)
			sd.Data[i] = dispersion * float32(math.Sqrt(mean(lengths, weights)))
		}
	})
	return sd, nil
}

// squaredLengths returns |m d|^2 of every label's displacement d in voxels; deep labels lie along z.
func squaredLengths(l blocks.Level, m [9]float64, deep int) []float64 {
	var lengths []float64
	for z := -(deep / 2); z <= deep/2; z++ {
		for y := -l.Radius; y <= l.Radius; y++ {
			for x := -l.Radius; x <= l.Radius; x++ {
				d := volume.Affine{M: m}.Apply([3]float64{float64(l.Quantum * x), float64(l.Quantum * y), float64(l.Quantum * z)})
				lengths = append(lengths, volume.Dot(d, d))
			}
		}
	}
	return lengths
}

// mean returns the weighted mean of values.
func mean(values []float64, weights []float32) float64 {
	sum, total := 0.0, 0.0
	for i, w := range weights {
		sum += float64(float64(w) * values[i])
		total += float64(w)
	}
	return sum / total
}
