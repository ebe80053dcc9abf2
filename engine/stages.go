package engine

import (
	"fmt"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/internal/search"
	"github.com/morphseek/morphseek/engine/volume"
)

// align finds the initial transform, or measures the caller's.
func (r *registration) align() error {
	r.layLandmarks()
	method := r.opt.Initial
	if r.begun != nil { // another alignment would discard the caller's deformation
		method = "none"
	}
	a, err := r.alignBy(r.canonical, align.Method(method), r.pair.Initial, func(fraction float64) { r.report.at(fraction, "") })
	if err != nil {
		return err
	}
	if method == "com" && r.pair.Initial != nil {
		method = "none" // the caller's stays
	}
	if r.metrics.Plan.Start = method; r.begun != nil {
		r.metrics.Plan.Start = "deformation"
	}
	if len(r.canonical.Channels) > 0 {
		if a, err = r.alignByChannels(a, align.Method(method)); err != nil {
			return err
		}
	}
	if method == "rigid" || method == "affine" {
		if a, err = r.judgeStart(a); err != nil {
			return err
		}
	}
	if a, err = r.bringBack(a, align.Method(method)); err != nil {
		return err
	}
	r.initial, r.canonical.Initial = a.Transform, a.Transform
	r.metrics.Align = AlignMetrics{
		Method: method, Score: a.Score, Confidence: a.Confidence, Overlap: a.Overlap, SameModality: a.SameModality,
		Matrix: a.Transform.M, Translation: a.Transform.T, Turn: r.turned(),
	}
	r.warn(startDoubts(r.metrics.Align)...)
	r.saysShape()
	return nil
}

// turned is the angle, degrees, between the initial transform and where it started.
func (r *registration) turned() float64 {
	turned := r.initial
	if r.pair.Initial != nil {
		back, err := r.pair.Initial.Inverse()
		if err != nil { // it was checked
			return 0
		}
		turned = turned.After(back)
	}
	return turned.Turn()
}

// alignBy aligns a pair by a method, from a transform or, by nil, from nothing; progress may be nil.
func (r *registration) alignBy(pair aligned.Pair, method align.Method, from *volume.Affine, progress func(fraction float64)) (*align.Result, error) {
	return align.Align(r.ctx, allFinite(pair.Fixed), allFinite(pair.Moving), align.Options{
		Method: method, Initial: from, FixedMask: pair.FixedMask, MovingMask: pair.MovingMask,
		Threads: r.opt.Threads, Seed: r.opt.Seed, Progress: progress,
	})
}

// searches says whether the discrete search runs.
func (r *registration) searches() bool {
	return r.opt.Search == "on" || r.opt.Search == "auto" && r.model == nil && r.begun == nil
}

// search looks for large displacements; where it is left to the library, only if there may be any.
func (r *registration) search() error {
	share, why := 1.0, ""
	if r.opt.Search == "auto" {
		if err := r.look(false, nil); err != nil {
			return err
		}
		if r.frames = r.frames && r.moved(); r.frames {
			share, why = 1, "the images lie and match as frames of one scan: the search looks for what moved by itself"
		} else {
			share, why = searchFor(r.refinedBy(), r.metrics.Align, r.agreement, r.isFlat())
		}
		r.because(why)
	}
	by := r.given()
	if by != nil { // the smooth fit used another regularisation
		r.refinement = nil
	}
	if share == 0 {
		r.report.at(1, "%s", why)
		return nil
	}
	if by == nil {
		apart, _ := regularisation(r.refinedBy(), r.room(), refine.Agreement{}, false)
		by = &apart
	}
	passes, trees := r.passes()
	u, err := search.Run(r.ctx, r.canonical, search.Options{
		Passes: passes, Trees: trees, Intensities: r.refinedBy() != refine.MIND, Stiffness: searchStiffness(r.refinedBy(), r.room(), *by), Threads: r.opt.Threads, Locked: r.lockedCanonical(),
		Progress: func(fraction float64) { r.report.at(fraction, "") },
	})
	if err != nil {
		return err
	}
	if share < 1 { // a part of a displacement without folds has none either
		for i := range u.Data {
			u.Data[i] *= float32(share)
		}
	}
	r.deform, r.refinement = u, nil
	r.metrics.Plan.Search = share
	if r.begun != nil {
		if r.judgeBegun("a search"); r.deform == r.begun {
			r.metrics.Plan.Search = 0
		}
	}
	return nil
}

// look fits the pair smoothly at the coarse resolutions and notes how well the images agree then: what the search and the smoothness are
// chosen by. The refinement goes on from there where there is no search. What the option smoothness asks for, where asked says so, or else by
// is what the coarse resolutions have instead; by is nil where it is not known yet.
func (r *registration) look(asked bool, by *refine.Regularisation) error {
	for {
		coarse, brief := smooth, true
		if r.refinedBy() == refine.MIND {
			coarse = acrossContrasts(r.room())
		}
		if given := r.given(); asked && given != nil {
			coarse, brief = *given, false
		} else if by != nil {
			coarse, brief = *by, false
		}
		if r.refinement == nil {
			r.refinement = refine.New(r.canonical, r.deform, r.refineOptions())
		}
		a, err := r.refinement.Coarse(r.ctx, coarse, brief)
		if err != nil {
			return err
		}
		if r.refinedBy() == refine.NCC && a.Correlation < oneBody {
			a.Detail = r.refinement.Detail()
		}
		r.agreement = a
		if r.refinedBy() == refine.NCC {
			r.agreement = mostTelling(a, r.refinement.OfChannels())
		}
		if r.opt.Similarity != "auto" || r.model != nil || r.refinedBy() != refine.NCC || !contrastDiffers(r.metrics.Align, a) {
			return nil
		}
		r.differs, r.refinement, by = true, nil, nil
		r.because("the contrast of one image over the other changes from place to place: descriptors are compared, not intensities")
	}
}

// moved says whether the images match except for a part that moved, by the smooth fit.
func (r *registration) moved() bool {
	if !isAlike(r.refinedBy(), r.agreement) {
		return false
	}
	judge := r.judges()
	return worthwhile(judge.Compare(r.startState(), judge.Look(r.initial, r.refinement.Found())))
}

// because notes a reason of the plan.
func (r *registration) because(why string) {
	r.metrics.Plan.Reasons = append(r.metrics.Plan.Reasons, why)
}

// match goes on with intensities where a curve maps one contrast to the other, and returns what fits such a pair; nil where none does.
func (r *registration) match() (*refine.Regularisation, error) {
	if len(r.canonical.Channels) > 0 || r.refinedBy() != refine.MIND || r.opt.Similarity != "auto" || r.given() != nil || r.agreement.Gain >= mostUnmapped {
		return nil, nil // isMapped would refuse the last of these, after the work
	}
	by := mapped(r.room())
	refinement, m, err := r.refinement.Matched(r.ctx, by)
	if err != nil || !isMapped(r.agreement, m) {
		return nil, err
	}
	r.refinement = refinement
	r.because(fmt.Sprintf("a curve maps the contrast of one image to the other's, and they agree by %.2f then: intensities are compared, and tissue moves together", m.Correlation))
	return &by, nil
}

// given is the regularisation that the option smoothness asks for; nil leaves it to the library.
func (r *registration) given() *refine.Regularisation {
	var by refine.Regularisation
	switch word, mm := r.opt.smoothness(); {
	case word == "auto" && r.model != nil: // the network has deformed fine detail already
		by = rough(r.refinedBy(), r.room())
	case word == "auto":
		return nil
	case word != "":
		by = byWord(word, r.refinedBy(), r.room())
	default:
		by = byLength(mm, refine.New(r.canonical, nil, refine.Options{Similarity: r.refinedBy(), Voxels: effort[r.opt.Preset].voxels}).Spacing(), r.shortest())
	}
	return &by
}

// shortest is how many voxels the fixed image has along its shortest axis; of a slice, in its plane.
func (r *registration) shortest() int {
	return slices.Min(r.pair.Fixed.Size[:r.pair.Fixed.Axes()])
}

// refineOptions are those of the refinement.
func (r *registration) refineOptions() refine.Options {
	iterations := r.iterations()
	if iterations == 0 { // the search needs the coarse resolutions
		iterations = effort[r.opt.Preset].iterations
	}
	return refine.Options{
		Similarity: r.refinedBy(), Iterations: iterations, Voxels: effort[r.opt.Preset].voxels, Threads: r.opt.Threads, Locked: r.lockedCanonical(),
		Progress: func(fraction float64) { r.report.at(fraction, "") },
	}
}

// refine improves on the stages before by gradient steps on the pair.
func (r *registration) refine() error {
	var by *refine.Regularisation // of two people, where the search says so
	if r.refinement == nil {
		if r.given() == nil && r.deform != nil && r.refinedBy() == refine.NCC {
			r.refinement = refine.New(r.canonical, r.deform, r.refineOptions())
			if r.agreement = r.refinement.Agreement(r.deform); r.agreement.Correlation < stillApart {
				low := rough(refine.NCC, r.room())
				by = &low
			}
		}
		if err := r.look(true, by); err != nil {
			return err
		}
	}
	similarity := r.refinedBy()
	matched, err := r.match()
	switch given := r.given(); {
	case err != nil:
		return err
	case given != nil:
		by = given
	case matched != nil:
		by, similarity = matched, refine.NCC
	case by != nil && similarity == refine.NCC:
		r.because("the images agree little after the search: fine detail is followed, as between two people")
	default:
		chosen, why := regularisation(similarity, r.room(), r.agreement, r.frames)
		r.because(why)
		by = &chosen
	}
	if r.roughness = *by; matched != nil { // that goes on without the curve
		r.roughness = acrossContrasts(r.room())
	}
	u, levels, err := r.refinement.Fine(r.ctx, *by)
	if err != nil {
		return err
	}
	r.deform = u
	r.metrics.Refine = RefineMetrics{Similarity: string(similarity), Levels: levelMetrics(levels)}
	r.metrics.Plan.Similarity, r.metrics.Plan.SmoothnessMM = string(similarity), by.Fluid*r.refinement.Spacing()
	if matched == nil && similarity == refine.NCC && r.given() == nil { // a rough fit agrees more
		r.metrics.Plan.Agreement = r.agreement.Correlation
	}
	r.refinement = nil
	r.judgeDeformation()
	return nil
}
