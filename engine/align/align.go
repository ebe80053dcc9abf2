// Package align finds the initial transform between two volumes that may share neither position, extent, orientation nor
// modality: a global search over translations and scales, then refinement of several starts by gradient.
//
// One score serves throughout: the normalised agreement of MIND-SSC features (Heinrich et al., MICCAI 2013), which compare
// within and across modalities, times a power of the overlap of the two bodies. What lies outside a field of view or a mask
// is unknown, never air.
package align

import (
	"context"
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

// Method says how far the alignment goes.
type Method string

const (
	None   Method = "none"   // the caller's transform, or the identity in physical space
	COM    Method = "com"    // translation of the bodies' centres of mass
	Rigid  Method = "rigid"  // 6 degrees of freedom
	Affine Method = "affine" // 12 degrees of freedom
)

// Options of one alignment.
type Options struct {
	Method                Method
	FixedMask, MovingMask *volume.Volume // non-zero selects; each on its image's grid; nil: everywhere
	Initial               *volume.Affine // fixed -> moving LPS mm: where to start, or with None the result; nil: search
	Threads               int            // 0: every core; the result does not depend on it
	Seed                  uint64         // of the sample of points
	// Progress, if not nil, hears the fraction done, on the caller's goroutine; false cancels.
	Progress func(fraction float64) (proceed bool)
}

// Result of an alignment.
type Result struct {
	Transform    volume.Affine // fixed -> moving, LPS mm
	Score        float64       // of the features, 0..1
	Confidence   float64
	Overlap      float64 // fraction of the smaller field of view that overlaps
	SameModality bool
	Starts       int // candidates that were refined
}

// Tune is a scratch hook.
var Tune = struct {
	Components, Points1, Points2, It1, It2, Starts int
	Sigma1, Sigma2                                 float64
	Log                                            func(string, ...any)
}{6, 6000, 20000, 25, 40, 3, 1.5, 0.7, nil}

// scales are the factors that the affine search tries in plane (x, y) and along the body (z).
var scales = []float64{0.85, 1, 1.17}

// Align finds the transform of the fixed image's space into the moving image's.
//
// Errors: InvalidArgument for an unknown method; those of volume.Check; GridMismatch and EmptyMask for masks;
// SingularTransform for Options.Initial; NoOverlap where the caller's transform, or with None the identity, leaves the fields
// of view apart; Cancelled.
func Align(ctx context.Context, fixed, moving *volume.Volume, opt Options) (*Result, error) {
	if !slices.Contains([]Method{None, COM, Rigid, Affine}, opt.Method) {
		return nil, fault.New(fault.InvalidArgument, "initial alignment %q is unknown; choose none, com, rigid or affine", opt.Method)
	}
	if err := checkInput("fixed", fixed, opt.FixedMask); err != nil {
		return nil, err
	}
	if err := checkInput("moving", moving, opt.MovingMask); err != nil {
		return nil, err
	}
	start := volume.IdentityAffine()
	if opt.Initial != nil {
		start = *opt.Initial
		if _, err := start.Inverse(); err != nil {
			return nil, fault.Wrap(fault.SingularTransform, err, "the initial transform cannot be used")
		}
	}
	if opt.Initial != nil || opt.Method == None {
		if gap := separation(fixed.Geometry, moving.Geometry, start); gap > 0 {
			return nil, fault.New(fault.NoOverlap, "the volumes do not overlap: under the initial transform the fixed field of view misses the moving one by %.0f mm; check the headers, or let the alignment search (initial: affine, no initial transform)", gap)
		}
	}
	a := &aligner{ctx: ctx, opt: opt, fixed: fixed, moving: moving}
	return a.run(start)
}

func checkInput(name string, v, mask *volume.Volume) error {
	if err := v.Check(name); err != nil {
		return err
	}
	if mask == nil {
		return nil
	}
	if err := mask.CheckShape(name + " mask"); err != nil {
		return err
	}
	if !mask.SameGrid(v.Geometry) {
		return fault.New(fault.GridMismatch, "%s mask has size %v at spacing %v, its volume %v at %v: resample the mask onto the volume's grid", name, mask.Size, mask.Spacing, v.Size, v.Spacing)
	}
	selected := false
	for i, m := range mask.Data {
		if x := v.Data[i]; m != 0 && x-x == 0 {
			selected = true
			break
		}
	}
	if !selected {
		return fault.New(fault.EmptyMask, "%s mask selects no voxel with a finite value; check that it belongs to this volume", name)
	}
	return nil
}

// aligner holds one alignment under way.
type aligner struct {
	ctx           context.Context
	opt           Options
	fixed, moving *volume.Volume
}

// checkpoint reports progress and says whether to stop.
func (a *aligner) checkpoint(fraction float64) error {
	if a.ctx.Err() != nil || (a.opt.Progress != nil && !a.opt.Progress(fraction)) {
		return fault.New(fault.Cancelled, "alignment cancelled")
	}
	return nil
}

func (a *aligner) run(start volume.Affine) (*Result, error) {
	threads := a.opt.Threads
	h := workingSpacing(a.fixed.Geometry, a.moving.Geometry)
	if err := a.checkpoint(0); err != nil {
		return nil, err
	}
	fw := newWorking(a.fixed, a.opt.FixedMask, h, volume.Identity, threads)
	mw := newWorking(a.moving, a.opt.MovingMask, h, volume.Identity, threads)
	if a.opt.Method == COM && a.opt.Initial == nil {
		f, m := centroid(fw), centroid(mw)
		start.T = [3]float64{m[0] - f[0], m[1] - f[1], m[2] - f[2]}
	}
	ff, mf := describe(fw, threads), describe(mw, threads)
	basis := principal(ff, mf, threads)
	ff, mf = ff.project(basis, threads), mf.project(basis, threads)
	if err := a.checkpoint(0.2); err != nil {
		return nil, err
	}

	starts := []peak{{transform: start}}
	if a.opt.Initial == nil && (a.opt.Method == Rigid || a.opt.Method == Affine) {
		var err error
		if starts, err = a.search(ff, mf); err != nil {
			return nil, err
		}
	}
	coarse := newObjective(fw, ff.interleaved(Tune.Sigma1, threads), mw, mf.interleaved(Tune.Sigma1, threads), Tune.Points1, a.opt.Seed, threads)
	fine := newObjective(fw, ff.interleaved(Tune.Sigma2, threads), mw, mf.interleaved(Tune.Sigma2, threads), Tune.Points2, a.opt.Seed, threads)
	best := starts[0].transform
	score := 0.0
	if a.opt.Method == Rigid || a.opt.Method == Affine {
		bestScore := math.Inf(-1)
		for i, s := range starts {
			t, c, err := coarse.refine(a.ctx, s.transform, a.opt.Method == Rigid, Tune.It1)
			if err != nil {
				return nil, a.failed(err)
			}
			if Tune.Log != nil {
				Tune.Log("start %.4f -> %.4f %v", s.score, c, t)
			}
			if c > bestScore {
				best, bestScore = t, c
			}
			if err := a.checkpoint(0.6 + 0.2*float64(i+1)/float64(len(starts))); err != nil {
				return nil, err
			}
		}
		t, c, err := fine.refine(a.ctx, best, a.opt.Method == Rigid, Tune.It2)
		if err != nil {
			return nil, a.failed(err)
		}
		best, score = t, c
	} else {
		score, _, _ = fine.score(fine.centred(best))
	}
	if err := a.checkpoint(1); err != nil {
		return nil, err
	}
	return &Result{
		Transform: best, Score: min(max(score, 0), 1), Confidence: 1, Overlap: overlap(a.fixed.Geometry, a.moving.Geometry, best), Starts: len(starts),
	}, nil
}

func (a *aligner) failed(err error) error {
	if a.ctx.Err() != nil {
		return fault.New(fault.Cancelled, "alignment cancelled")
	}
	return fault.Wrap(fault.Internal, err, "refinement of the initial transform failed")
}

// search returns the best distinct peaks over all scales.
func (a *aligner) search(ff, mf features) ([]peak, error) {
	f, m := ff.halved(a.opt.Threads), mf.halved(a.opt.Threads)
	factors := scales
	if a.opt.Method == Rigid {
		factors = []float64{1}
	}
	var largest [3]int
	for i := range 3 {
		largest[i] = int(math.Ceil(float64(m.grid.Size[i]) / factors[0]))
	}
	s := newSearcher(f, largest, a.opt.Threads)
	var all []peak
	for i, axial := range factors {
		for j, plane := range factors {
			all = append(all, s.search(m, [3]float64{plane, plane, axial})...)
			done := float64(i*len(factors)+j+1) / float64(len(factors)*len(factors))
			if err := a.checkpoint(0.2 + 0.4*done); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(all, func(p, q peak) int {
		switch {
		case p.score > q.score:
			return -1
		case p.score < q.score:
			return 1
		}
		return 0
	})
	corners := boxCorners(f.grid, 0)
	var kept []peak
	for _, p := range all {
		distinct := true
		for _, k := range kept {
			distinct = distinct && meanDistance(corners, p.transform, k.transform) > 6*f.grid.Spacing[0]/2
		}
		if distinct {
			kept = append(kept, p)
		}
		if len(kept) == Tune.Starts {
			break
		}
	}
	if len(kept) == 0 {
		kept = []peak{{transform: volume.IdentityAffine()}}
	}
	return kept, nil
}

func meanDistance(points [][3]float64, a, b volume.Affine) float64 {
	total := 0.0
	for _, p := range points {
		x, y := a.Apply(p), b.Apply(p)
		total += math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2]))
	}
	return total / float64(len(points))
}
