// Package align finds the initial transform between two volumes that may share neither position, extent, orientation
// nor modality: a global search over translations and scales (over rotations too, where that finds no likely pose or a
// half turn fits far better), then refinement of several starts by gradient; for two modalities, then a fit to matches of
// the body's blocks.
//
// One score serves throughout: the normalised agreement of MIND-SSC features (Heinrich et al., MICCAI 2013), which
// compare within and across modalities, times a power of the overlap of the two bodies. What lies outside a field of
// view or a mask is unknown, never air.
package align

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Method says how far the alignment goes.
type Method string

// The methods, from the least work to the most.
const (
	None   Method = "none"   // the caller's transform, or the identity in physical space
	COM    Method = "com"    // translation of the bodies' centres of mass
	Rigid  Method = "rigid"  // 6 degrees of freedom
	Affine Method = "affine" // 12 degrees of freedom
)

// Refines reports whether m maximises the score, from what a search has found or the caller gave.
func (m Method) Refines() bool { return m == Rigid || m == Affine }

// Options of one alignment.
type Options struct {
	Method                Method
	FixedMask, MovingMask *volume.Volume // non-zero selects; each on its image's grid; nil: everywhere
	Initial               *volume.Affine // fixed -> moving, LPS mm: the start, or with None and COM the result; nil: search
	Threads               int            // 0: every core; the result does not depend on it
	Seed                  uint64         // of the sample of points
	// Progress is called on the caller's goroutine; it may be nil.
	Progress func(fraction float64)

	// Suffices is asked whether the transform before the last refinement will do as the result; nil: no.
	Suffices func(volume.Affine) bool
}

// Certainty is how sure an alignment is.
type Certainty struct {
	// Confidence, 0..1, is strength (the geometric mean of the scores here and at the start, from chance to certain) times
	// margin (how far the second-best position scores below, in tenths; 1 where all starts led to one).
	Confidence float64
	// RivalMM is how far the second-best position lies from this one, mm, on average over the corners of the fixed image;
	// 0 where there is none.
	RivalMM float64
}

// Result of an alignment.
type Result struct {
	Transform volume.Affine // fixed -> moving, LPS mm
	Score     float64       // of the features under Transform, 0..1
	Certainty
	Overlap      float64 // fraction of the smaller field of view that overlaps
	SameModality bool    // the intensities of the two images correspond, so they are compared too

	// Rigid comes with an affine alignment of two modalities: the best rigid transform near it, with the same confidence.
	// Otherwise it is nil.
	Rigid *Result
}

// RATIONALE.md (The initial alignment) has the figures behind the thresholds.
const (
	chance, certain = 0.15, 0.25 // strength of evidence at confidence 0 and 1
	poor            = 0.165      // strength below which rotations are searched, in volumes also below a likely score
	poorSlice       = 0.5        // the same for slices
	betterSlice     = 0.05       // gain in score for which another orientation is taken; ...
	better          = 0.17       // ... the same in volumes, ...
	leastLead       = 0.05       // ... if it leads all other poses by so much of its score
	sameAbove       = 0.25       // correlation of intensities less the distance of their distributions: one modality
	starts          = 8          // peaks of the search that are refined: in a small crop the right one may not be among the first

	searchComponents         = 6 // of the features, that the search compares
	coarseSigma, fineSigma   = 2, 1
	coarsePoints, finePoints = 6000, 20000 // the former tell the curvature, too
	fewPoints                = 2000        // enough to see which starts lead to one place
	fineShare                = 6           // voxels of the body for each point of the last refinement
)

// scales are the factors that the affine search tries in plane (x, y) and along the body (z).
var scales = []float64{0.85, 1, 1.17}

// Align finds the transform of the fixed image's space into the moving image's.
//
// Errors: InvalidArgument for an unknown method; those of volume.Check, ThinVolume also where one volume is tiny beside
// the other; GridMismatch and EmptyMask for masks; SingularTransform for Options.Initial; NoOverlap where the caller's
// transform, or with None the identity, leaves the fields of view apart; Cancelled.
func Align(ctx context.Context, fixed, moving *volume.Volume, opt Options) (*Result, error) {
	if !slices.Contains([]Method{None, COM, Rigid, Affine}, opt.Method) {
		return nil, fault.New(fault.InvalidArgument,
			"initial alignment %q is unknown; choose none, com, rigid or affine", opt.Method)
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
			return nil, fault.New(fault.NoOverlap,
				"the volumes do not overlap: under the initial transform the fixed field of view misses the moving "+
					"one by %.1f mm; check the headers, or let the alignment search (initial affine or rigid, without an "+
					"initial transform)", gap)
		}
	}
	a := &aligner{ctx: ctx, opt: opt, fixed: fixed, moving: moving}
	if opt.Initial == nil && opt.Method.Refines() && (opt.FixedMask == nil) != (opt.MovingMask == nil) {
		return a.alignWithOneMask()
	}
	if s, _ := strain(start.M); s <= roundedStrain {
		return a.run(start)
	}
	a.moving = transformedBy(moving, start)
	if suffices := opt.Suffices; suffices != nil {
		a.opt.Suffices = func(t volume.Affine) bool { return suffices(start.After(t)) }
	}
	r, err := a.run(volume.IdentityAffine())
	if err != nil {
		return nil, err
	}
	r.Transform = start.After(r.Transform)
	r.Rigid = nil // without scales before the caller's, which may have some
	return r, nil
}

// alignWithOneMask aligns the whole images first and then again within the mask, which it also resamples into the other
// image. Within one small mask alone many positions fit.
func (a *aligner) alignWithOneMask() (*Result, error) {
	const whole = 0.7 // of the time
	part := func(from, share float64) *aligner {
		opt := a.opt
		if a.opt.Progress != nil {
			opt.Progress = func(fraction float64) { a.opt.Progress(from + float64(share*fraction)) }
		}
		return &aligner{ctx: a.ctx, opt: opt, fixed: a.fixed, moving: a.moving}
	}
	all := part(0, whole)
	all.opt.FixedMask, all.opt.MovingMask = nil, nil
	unmasked, err := all.run(volume.IdentityAffine())
	if err != nil {
		return nil, err
	}
	masked := part(whole, 1-whole)
	masked.opt.Initial = &unmasked.Transform
	if a.opt.FixedMask == nil {
		masked.opt.FixedMask = a.opt.MovingMask.Resample(a.fixed.Geometry, unmasked.Transform, volume.Nearest, 0, a.opt.Threads)
	} else if inverse, err := unmasked.Transform.Inverse(); err == nil {
		masked.opt.MovingMask = a.opt.FixedMask.Resample(a.moving.Geometry, inverse, volume.Nearest, 0, a.opt.Threads)
	}
	r, err := masked.run(unmasked.Transform)
	if fault.CodeOf(err) == fault.EmptyMask { // the resampled mask lies outside the other image, or between its voxels
		masked.opt.FixedMask, masked.opt.MovingMask = a.opt.FixedMask, a.opt.MovingMask
		r, err = masked.run(unmasked.Transform)
	}
	if err != nil {
		return nil, err
	}
	if unmasked.Confidence < r.Confidence {
		r.Certainty = unmasked.Certainty
	}
	r.SameModality = unmasked.SameModality // the few voxels of a mask tell less
	return r, nil
}

// roundedStrain is the strain up to which a matrix counts as a rotation: its digits may be rounded.
const roundedStrain = 1e-9

// transformedBy returns v with the inverse of start in its geometry, in the fixed image's space. There the caller's scales
// count as none: neither the voxel of the comparison nor the penalty of strain works against them.
func transformedBy(v *volume.Volume, start volume.Affine) *volume.Volume {
	inverse, _ := start.Inverse() // checked
	m := inverse.After(v.IndexToPhysical())
	g := v.Geometry
	g.Origin, g.Spacing = m.T, m.Scales()
	if g.Flat() {
		g.Spacing[2] = math.Sqrt(g.Spacing[0] * g.Spacing[1])
	}
	for c := range g.Axes() {
		for r := range 3 {
			g.Direction[3*r+c] = m.M[3*r+c] / g.Spacing[c]
		}
	}
	return &volume.Volume{Geometry: g, Data: v.Data}
}

// checkInput reports the first fault of an image and its mask.
func checkInput(name string, v, mask *volume.Volume) error {
	if err := v.Check(name); err != nil {
		return err
	}
	if mask == nil {
		return nil
	}
	if err := v.CheckMask(name, mask); err != nil {
		return err
	}
	for i, m := range mask.Data {
		if m != 0 && volume.IsFinite(v.Data[i]) {
			return nil
		}
	}
	return fault.New(fault.EmptyMask,
		"%s mask selects no voxel with a finite value; check that it belongs to this volume", name)
}

// aligner is one alignment under way.
type aligner struct {
	ctx           context.Context
	opt           Options
	fixed, moving *volume.Volume
	done          float64

	fixedBackground, movingBackground background
}

// checkpoint reports progress, which never decreases, and returns Cancelled where the context has ended.
func (a *aligner) checkpoint(fraction float64) error {
	a.done = max(a.done, fraction)
	if a.opt.Progress != nil {
		a.opt.Progress(a.done)
	}
	return a.cancelled()
}

// cancelled reports a context that has ended.
func (a *aligner) cancelled() error {
	if a.ctx.Err() != nil {
		return fault.Wrap(fault.Cancelled, context.Cause(a.ctx), "the alignment was cancelled")
	}
	return nil
}

// views are the features of the two images, by the same components. The moving image's grid may have other axes than
// LPS (its frame).
type views struct {
	fixed, moving  features
	coarse         samples        // without intensities
	plain          *objective     // on coarse
	bright         func() views   // with intensities as one component more; computed once, when first called
	distance       func() float64 // distributionDistance of the two; likewise
	bothHounsfield func() bool    // whether both are in Hounsfield units; likewise
}

// describe computes the features of both images on voxels of h mm, or larger ones where memory demands it, the moving
// image's axes along the columns of frame. It fails, and names the input, where an image has no voxel left at that size.
func (a *aligner) describe(h float64, frame [9]float64) (views, error) {
	threads := a.opt.Threads
	h = affordable(h, a.fixed.Geometry, a.moving.Geometry, frame)
	view := func(name string, v, mask *volume.Volume, of *background, frame [9]float64, threads int) (features, error) {
		blocks := downsample(v, mask, h, threads)
		blocks.background = of // one in every frame; the search over poses finds one anew (RATIONALE.md, Steadiness)
		w := newResampled(blocks, h, frame, threads)
		switch {
		case w.bodyCount > 0:
			return describe(w, threads), nil
		case mask != nil:
			return features{}, fault.New(fault.EmptyMask,
				"the %s mask selects less than one voxel of %.3g mm, at which the volumes are compared; enlarge it", name, h)
		}
		return features{}, fault.New(fault.ThinVolume,
			"the %s volume, %.3g mm at its thinnest, is less than one voxel of %.3g mm, at which the volumes are "+
				"compared; crop or resample the other volume to about its size", name, thinnest(blocks.extent), h)
	}
	var f, m features
	var errs [2]error
	parallel.Beside(threads, func(threads int) {
		f, errs[0] = view("fixed", a.fixed, a.opt.FixedMask, &a.fixedBackground, volume.Identity, threads)
	}, func(threads int) {
		m, errs[1] = view("moving", a.moving, a.opt.MovingMask, &a.movingBackground, frame, threads)
	})
	if err := cmp.Or(errs[:]...); err != nil {
		return views{}, err
	}
	basis := principal(f, m, threads)
	v := views{fixed: f.intoComponents(basis, threads), moving: m.intoComponents(basis, threads)}
	v.coarse = v.smoothed(coarseSigma, threads)
	v.plain = a.objective(v, v.coarse, coarsePoints)
	v.bright = sync.OnceValue(func() views { return v.withIntensity(threads) })
	v.bothHounsfield = sync.OnceValue(func() bool { return a.fixed.Hounsfield() && a.moving.Hounsfield() })
	ours, theirs := f.resampled, m.resampled // without the descriptors, which take most memory
	v.distance = sync.OnceValue(func() float64 { return distributionDistance(ours, theirs) })
	return v, nil
}

func (a *aligner) run(start volume.Affine) (*Result, error) {
	h := a.spacing()
	best, v, err := a.start(start, h)
	if err != nil {
		return nil, err
	}
	if !a.opt.Method.Refines() {
		return a.result(best, v.sameModality(best.transform, a.opt.Threads)), a.checkpoint(1)
	}
	if best, err = a.refineStarts(best, v); err != nil {
		return nil, err
	}
	if best, v, err = a.rotate(best, v, h); err != nil {
		return nil, err
	}
	if best, v, err = a.reframe(best, v, h); err != nil {
		return nil, err
	}
	same := best.same || v.sameModality(best.transform, a.opt.Threads)
	if a.opt.Suffices != nil && a.opt.Suffices(best.transform) {
		return a.result(best, same), a.checkpoint(1)
	}
	if best, err = a.polish(best, v, same); err != nil {
		return nil, err
	}
	result := a.result(best, same)
	if a.opt.Method == Affine && !same {
		rigid, err := a.rigidBeside(best, v)
		if err != nil {
			return nil, err
		}
		result.Rigid = a.result(rigid, same)
	}
	return result, a.checkpoint(1)
}

// start returns the transform that was given, or the translation between the centres of mass, with the features on
// voxels of h mm.
func (a *aligner) start(given volume.Affine, h float64) (outcome, views, error) {
	if err := a.checkpoint(0); err != nil {
		return outcome{}, views{}, err
	}
	v, err := a.describe(h, volume.Identity)
	if err != nil {
		return outcome{}, views{}, err
	}
	if a.opt.Method != None && a.opt.Initial == nil {
		given.T = volume.Sub(centroid(v.moving.resampled), centroid(v.fixed.resampled))
	}
	if err := a.checkpoint(0.2); err != nil {
		return outcome{}, views{}, err
	}
	score := v.score(given)
	return outcome{transform: given, score: score, start: score}, v, nil
}

// refineStarts refines the best places of a search over translations. It refines the start alone where that was given
// or the search finds nothing.
func (a *aligner) refineStarts(start outcome, v views) (outcome, error) {
	var candidates []peak
	if a.opt.Initial == nil {
		var err error
		if candidates, err = a.search(v); err != nil {
			return outcome{}, err
		}
	}
	if len(candidates) == 0 {
		candidates = []peak{{start.score, start.transform}}
	}
	return a.refineAll(v, candidates)
}

// rotate searches all orientations where the best so far fits poorly, or where two modalities fit far better with axes
// flipped. It returns the better of what it was given and what it found.
func (a *aligner) rotate(best outcome, v views, h float64) (outcome, views, error) {
	weak, least := best.evidence() < poor, better
	switch {
	case a.fixed.Flat() && weak:
		least = betterSlice
	case a.fixed.Flat(): // slices also match by chance, and to search their rotations costs little
		weak, least = best.evidence() < poorSlice, farBetter
	case !weak:
		weak = best.score < likely(min(v.fixed.bodyCount, v.moving.bodyCount))
	}
	if a.opt.Initial != nil || !weak && best.same {
		return best, v, nil
	}
	rotations, ok := a.newRotationSearch(h)
	if !ok || !weak && !rotations.axisFlipped() {
		return best, v, nil
	}
	found, err := a.searchRotations(rotations, best, h)
	if err != nil {
		return outcome{}, views{}, err
	}
	if found.views.plain != nil && found.turned.score > best.score+least && found.turned.rival.margin >= leastLead {
		best, v = found.turned, found.views
	} else {
		best.rival = best.rival.or(found.upright)
	}
	return best, v, nil
}

// likely is the score of two bodies, the smaller one of so many voxels, from which on they lie in the right pose: few
// voxels, as of a crop that one organ fills, match better by chance in a wrong one.
func likely(voxels float64) float64 {
	const many, least, most = 110e3, 0.36, 0.6
	return min(max(least*many/max(voxels, 1), least), most)
}

// result makes an outcome a Result.
func (a *aligner) result(o outcome, same bool) *Result {
	return &Result{
		Transform: o.transform, Score: min(max(o.score, 0), 1), Certainty: Certainty{o.confidence(), o.rival.mm},
		Overlap: Overlap(a.fixed.Geometry, a.moving.Geometry, o.transform), SameModality: same,
	}
}

// rigidBeside returns the best transform near an affine one without scales and shears.
func (a *aligner) rigidBeside(best outcome, v views) (outcome, error) {
	middle, rigid := centroid(v.fixed.resampled), volume.Affine{M: a.rotationOf(best.transform)}
	rigid.T = volume.Sub(best.transform.Apply(middle), rigid.Apply(middle))
	rigid, _, err := a.objective(v, v.coarse, a.manyPoints(v)).maximise(a.ctx, rigid, true, fine)
	if err != nil {
		return outcome{}, a.failed(err)
	}
	best.transform, best.score = rigid, v.score(rigid)
	return best, nil
}

// manyPoints is how many points the last refinement compares.
func (a *aligner) manyPoints(v views) int {
	return int(min(max(v.fixed.bodyCount/fineShare, coarsePoints), finePoints))
}

// polish refines with more points than the starts had. An affine between two modalities is then fitted to block
// matches.
func (a *aligner) polish(best outcome, v views, same bool) (outcome, error) {
	compared := v.coarse
	if same {
		bright := v.bright()
		// in the place of the coarse ones, which nobody reads again
		parallel.Beside(a.opt.Threads,
			func(threads int) { compared.fixed = bright.fixed.interleavedIn(v.coarse.fixed, fineSigma, threads) },
			func(threads int) { compared.moving = bright.moving.interleaved(fineSigma, threads) })
		compared.components++
	}
	o := a.objective(v, compared, a.manyPoints(v))
	t, _, err := o.maximise(a.ctx, best.transform, a.opt.Method == Rigid, fine)
	if err != nil {
		return outcome{}, a.failed(err)
	}
	if a.opt.Method == Affine && !same {
		if t, err = a.consensus(v, t); err != nil {
			return outcome{}, err
		}
	}
	best.transform, best.score = t, v.score(t)
	return best, nil
}

// score is that of the features under t.
func (v views) score(t volume.Affine) float64 {
	score, _, _ := v.plain.score(v.plain.centred(t))
	return score
}

func (a *aligner) objective(v views, s samples, points int) *objective {
	return newObjective(v.fixed.resampled, v.moving.resampled, s, points, a.opt.Seed, a.opt.Threads)
}

// samples are the features of two images as the refinement reads them (interleaved), and how many components of them it
// compares.
type samples struct {
	fixed, moving []float32
	components    int
}

func (v views) smoothed(sigma float64, threads int) samples {
	s := samples{components: len(v.fixed.planes)}
	parallel.Beside(threads,
		func(threads int) { s.fixed = v.fixed.interleaved(sigma, threads) },
		func(threads int) { s.moving = v.moving.interleaved(sigma, threads) })
	return s
}

// added is smoothed for a view whose components but the last are in s already. It shares the memory of s, whose readers do
// not look at the last one.
func (v views) added(s samples, sigma float64, threads int) samples {
	parallel.Beside(threads,
		func(threads int) { v.fixed.add(s.fixed, sigma, threads) },
		func(threads int) { v.moving.add(s.moving, sigma, threads) })
	s.components++
	return s
}
