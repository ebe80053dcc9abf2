// Package refine improves a registration on the pair at hand: gradient steps on a local similarity, coarse to fine, from
// whatever field came before.
//
// A step adds a small smooth displacement by composition, u <- u o (id + g), with g the similarity's gradient after a
// Gaussian (the fluid regularisation) and u smoothed a little in turn (the elastic one): a discrete flow of diffeomorphisms,
// as in Christensen et al., IEEE Trans. Image Process. 1996, and Yushkevich's greedy.
package refine

import (
	"context"
	"math"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Similarity names what a refinement climbs.
type Similarity string

const (
	NCC  Similarity = "ncc"  // local normalised cross-correlation
	MSE  Similarity = "mse"  // mean squared difference of normalised intensities
	MIND Similarity = "mind" // mean squared difference of MIND-SSC descriptors
)

// Pair is what to refine.
type Pair = aligned.Pair

// Level is one resolution.
type Level struct {
	Spacing    float64 // mm, isotropic
	Iterations int     // at most
}

// Options says how to refine.
type Options struct {
	Similarity Similarity
	Levels     []Level // coarse to fine
	Radius     int     // of the NCC's window, voxels
	Fluid      float64 // standard deviation of the Gaussian on each step, voxels
	Elastic    float64 // and on the field after it
	Step       float64 // the longest displacement of one step, voxels
	Adam       bool
	Threads    int
}

type similarity interface {
	validate(u *field.Field)
	force(g, u *field.Field) float64
}

// margin lets a displacement reach that many voxels beyond the fixed image.
const margin = 8

// Run refines start, a field on any grid (nil: the identity), and returns the field on the finest level's grid and the
// similarity at every iteration.
func Run(ctx context.Context, pair Pair, start *field.Field, opt Options, progress func(fraction float64)) (*field.Field, []float64, error) {
	var trace []float64
	u := start
	for _, level := range opt.Levels {
		g := pair.Grid(level.Spacing)
		if u == nil {
			u = field.New(g)
		}
		u = u.Resample(g, opt.Threads)
		im := pair.At(g, margin, opt.Threads)
		var s similarity
		switch opt.Similarity {
		case NCC:
			s = newNCC(im, opt.Radius, opt.Threads)
		default:
			return nil, nil, fault.New(fault.InvalidArgument, "refine: unknown similarity %q", opt.Similarity)
		}
		force, spare := field.New(g), field.New(g)
		var m1, m2 []float32
		if opt.Adam {
			m1, m2 = make([]float32, len(u.Data)), make([]float32, len(u.Data))
		}
		for it := range level.Iterations {
			if ctx.Err() != nil {
				return nil, nil, fault.Wrap(fault.Cancelled, ctx.Err(), "refinement cancelled")
			}
			if it%10 == 0 {
				s.validate(u)
			}
			e := s.force(force, u)
			trace = append(trace, e)
			smooth(force, opt.Fluid, opt.Threads)
			if opt.Adam {
				adam(force.Data, m1, m2, it+1)
			}
			limit(force, opt.Step, opt.Threads)
			field.Compose(spare, u, force, opt.Threads)
			u, spare = spare, u
			smooth(u, opt.Elastic, opt.Threads)
		}
	}
	return u, trace, nil
}

func adam(g, m1, m2 []float32, t int) {
	const b1, b2 = 0.9, 0.99
	c1, c2 := float32(1-math.Pow(b1, float64(t))), float32(1-math.Pow(b2, float64(t)))
	for i, x := range g {
		m1[i] = b1*m1[i] + (1-b1)*x
		m2[i] = b2*m2[i] + (1-b2)*x*x
		g[i] = m1[i] / c1 / (float32(math.Sqrt(float64(m2[i]/c2))) + 1e-8)
	}
}

func smooth(f *field.Field, sigma float64, threads int) {
	if sigma <= 0 {
		return
	}
	for _, p := range [][]float32{f.X, f.Y, f.Z} {
		filter.Gaussian(p, p, f.Size, [3]float64{sigma, sigma, sigma}, threads)
	}
}

// limit scales f so that its longest vector is step.
func limit(f *field.Field, step float64, threads int) {
	longest := parallel.Reduce(len(f.X), 1<<14, threads, func(lo, hi int) float32 {
		var m float32
		for i := lo; i < hi; i++ {
			m = max(m, f.X[i]*f.X[i]+f.Y[i]*f.Y[i]+f.Z[i]*f.Z[i])
		}
		return m
	}, func(a, b float32) float32 { return max(a, b) })
	if longest == 0 {
		return
	}
	scale := float32(step / math.Sqrt(float64(longest)))
	parallel.For(len(f.Data), 1<<16, threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f.Data[i] *= scale
		}
	})
}
