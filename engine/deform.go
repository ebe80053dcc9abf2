package engine

import (
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/internal/search"
)

// search looks for large displacements; where it is left to the library, only if there may be any.
func (p *problem) search(e *env, st state) (proposal, error) {
	asked := p.opt.Search == "on"
	if !asked {
		var err error
		if st, err = p.fit(e, st, false); err != nil {
			return proposal{}, err
		}
		if st.facts.Frames() {
			st.facts.Still = !p.moved(st)
		}
		st.facts.Unsearched = st.facts.Agreement
	}
	o, facts := p.opt.plan(), p.measured(st)
	by := plan.SearchFor(o, facts)
	if asked {
		by = plan.SearchAsked(o, facts)
	}
	e.notes.because(by.Why)
	st.facts.Searched = by.Share
	if st.facts.IsGiven(o) { // the fit used another regularisation
		st.fit = nil
	}
	if by.Share == 0 {
		e.report.at(1, "%s", by.Why)
		return proposal{state: st}, nil
	}
	pair := p.under(st)
	u, err := search.Run(e.ctx, pair, search.Options{
		Passes: by.Passes, Trees: by.Trees, Intensities: !st.facts.Similarity(o).Descriptors(), Stiffness: by.Stiffness,
		Threads: p.opt.Threads, Locked: p.lockedCanonical(), Progress: e.progress,
	})
	if err != nil {
		return proposal{}, err
	}
	if by.Share < 1 { // a part of a displacement may fold where the whole does not; finish opens the folds
		for i := range u.Data {
			u.Data[i] *= float32(by.Share)
		}
	}
	if search.Fits(pair) {
		e.notes.metrics.Plan.Search = by.Share
	} else {
		e.notes.because("the images are too small for the search: it looked for nothing")
	}
	next := proposal{state: p.deformed(st, u)}
	switch {
	case p.deform != nil:
		next.rival, next.rule = p.rival(st), plan.Continued("search")
	case !st.facts.Network && p.iterations(st) == 0: // no refinement will end with it
		next.rival, next.rule = p.rival(st), plan.Deformation
	}
	return next, nil
}

// rival returns the state that a deformation must beat: the caller's deformation, or the initial transform alone.
func (p *problem) rival(st state) *state {
	st = p.deformed(st, p.deform)
	return &st
}

// fit fits the pair smoothly at the coarse resolutions and adds to the facts how well the images agree then, by which the
// search and smoothness are chosen. last says that no search follows: then what the caller or the facts ask for is fitted.
func (p *problem) fit(e *env, st state, last bool) (state, error) {
	o := p.opt.plan()
	for {
		if st.fit == nil {
			st.fit = refine.New(p.under(st), st.deform, p.refineOptions(e, st))
		}
		by, brief := plan.Coarse(o, p.measured(st), last)
		a, err := st.fit.Coarse(e.ctx, by, brief)
		if err != nil {
			return st, err
		}
		if st.facts.Similarity(o) == refine.NCC {
			if a.Correlation < plan.OneBody {
				a.Detail = st.fit.Detail()
				if st.deform == nil {
					st.facts.Strain, st.facts.Bend = st.initial.Strain(), st.fit.Bend()
				}
			}
			a = plan.MostTelling(a, st.fit.OfChannels())
		}
		st.facts.Agreement = a
		if !st.facts.Large && st.facts.MatchesInTheLarge(o) {
			st.facts.Large, st.facts.Apart, st.fit = true, false, nil
			continue
		}
		if !st.facts.ContrastVaries(o) {
			return st, nil
		}
		st.facts.Varies, st.facts.Apart, st.fit = true, false, nil
		e.notes.because("the contrast of one image over the other's changes from place to place: descriptors are compared, not intensities")
	}
}

// measured returns the facts with the finest grid of the refinement, where a smoothness in mm asks for it or it is coarser than the pair asks for.
func (p *problem) measured(st state) plan.Facts {
	f, o := st.facts, p.opt.plan()
	if o.Width() > 0 || f.Large {
		finest := refine.New(p.under(st), nil, refine.Options{Similarity: f.Similarity(o), Voxels: f.Finest(o)})
		f.Spacing, f.Shortest = finest.Spacing(), finest.Shortest()
	}
	return f
}

// moved says whether the images match except for a part that moved, by the smooth fit.
func (p *problem) moved(st state) bool {
	return st.facts.IsAlike(p.opt.plan()) && plan.Closer(p.compare(st.start, p.look(st.initial, st.fit.Found())))
}

// refineOptions returns the options of the refinement.
func (p *problem) refineOptions(e *env, st state) refine.Options {
	o := p.opt.plan()
	return refine.Options{
		Similarity: st.facts.Similarity(o), Iterations: st.facts.FitIterations(o), Voxels: st.facts.Finest(o),
		Threads: p.opt.Threads, Locked: p.lockedCanonical(), Progress: e.progress,
	}
}

// refine improves on the stages before by gradient steps on the pair.
func (p *problem) refine(e *env, st state) (proposal, error) {
	o := p.opt.plan()
	if st.fit == nil {
		if st.deform != nil && !st.facts.IsGiven(o) && st.facts.Similarity(o) == refine.NCC {
			st.fit = refine.New(p.under(st), st.deform, p.refineOptions(e, st))
			st.facts.Agreement = st.fit.Agreement(st.deform)
			st.facts.Apart = plan.StillApart(st.facts.Agreement.Correlation)
		}
		var err error
		if st, err = p.fit(e, st, true); err != nil {
			return proposal{}, err
		}
	}
	similarity := st.facts.Similarity(o)
	if st.facts.MayMap(o) {
		mapped, m, err := st.fit.Matched(e.ctx, plan.Mapped(o, st.facts))
		if err != nil {
			return proposal{}, err
		}
		if st.facts.IsMapped(m) {
			st.fit, similarity, st.facts.Mapped = mapped, refine.NCC, m.Correlation
		}
	}
	st.facts = p.measured(st)
	by := plan.For(o, st.facts)
	u, levels, err := st.fit.Fine(e.ctx, by.By)
	if err != nil {
		return proposal{}, err
	}
	smoothness, agreement := by.By.Fluid*st.fit.Spacing(), 0.0
	if similarity == refine.NCC && st.facts.Mapped == 0 && !st.facts.IsGiven(o) { // a rough fit agrees more
		agreement = st.facts.Agreement.Correlation
	}
	e.notes.because(o.SmoothnessBound(smoothness))
	e.notes.refined(RefineMetrics{Similarity: string(similarity), Levels: levelMetrics(levels)}, by, smoothness, agreement)
	st.refined = true
	next := proposal{state: p.deformed(st, u)}
	switch {
	case st.facts.Network: // it learned from labels what the images do not show
	case p.deform != nil:
		next.rival, next.rule = p.rival(st), plan.Continued("refinement")
	default:
		next.rival, next.rule = p.rival(st), plan.Deformation
	}
	return next, nil
}
