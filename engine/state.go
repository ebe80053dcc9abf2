package engine

import (
	"sync"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/volume"
)

// state is where a registration stands after a stage. A stage returns another state and leaves the one before as it is.
type state struct {
	initial volume.Affine // fixed -> moving, LPS mm
	deform  *field.Field  // before initial, on the grid of the stage that made it; nil is the identity
	start   view          // of initial alone
	end     view          // of both
	facts   plan.Facts    // measured so far

	fixedMask, movingMask *volume.Volume // what an image shows that was cut out of its surroundings; else nil

	alignment   *volume.Affine     // what the alignment found, whether or not it was taken; nil where none was asked for
	intensities []bool             // of each channel: the intensities of its two images correspond
	fit         *refine.Refinement // of deform at the coarse resolutions, from which the refinement goes on; may be nil
	refined     bool               // by the refinement, in the regime of facts
	network     *networkInput      // what the network was given; nil unless the uncertainty is asked for
}

// view is what the referee sees of one transform, which it looks at when first asked.
type view func() referee.State

// look returns the referee's view of a deformation behind an initial transform; nil is none.
func (p *problem) look(initial volume.Affine, deform *field.Field) view {
	return sync.OnceValue(func() referee.State { return p.referee().Look(initial, deform) })
}

// at returns the state with another initial transform, and without a deformation.
func (p *problem) at(st state, initial volume.Affine) state {
	st.initial, st.deform, st.start = initial, nil, p.look(initial, nil)
	st.end = st.start
	return st
}

// deformed returns the state with another deformation; nil is none.
func (p *problem) deformed(st state, deform *field.Field) state {
	switch st.fit = nil; {
	case deform == nil:
		st.end = st.start
	case deform != st.deform:
		st.end = p.look(st.initial, deform)
	}
	st.deform = deform
	return st
}

// compare says by how much the end of one state is better than that of another.
func (p *problem) compare(before, after view) referee.Margin {
	return p.referee().Compare(before(), after())
}

// networkInput is what a network was given, kept for the uncertainty.
type networkInput struct {
	fixed, moving []float32
	start         *field.Field // before the first step, on the network grid
	steps         int
}

// proposal is what a stage made of the state before, and the state that stays where the referee sees no gain in it.
type proposal struct {
	state
	rival *state // nil: the proposal is taken unseen
	rule  plan.Rule
}

// under returns the pair under a state's initial transform, with its masks.
func (p *problem) under(st state) aligned.Pair {
	pair := p.pair
	if st.fixedMask != nil || st.movingMask != nil {
		pair.FixedMask, pair.MovingMask = st.fixedMask, st.movingMask
	}
	pair.Initial, pair.Channels = st.initial, nil
	for k, c := range p.pair.Channels {
		c.Intensities = st.intensities[k]
		pair.Channels = append(pair.Channels, c)
	}
	return pair
}

// start returns the state before the first stage.
func (p *problem) start() state { return state{facts: p.facts} }

// searches says whether the discrete search runs.
func (p *problem) searches(st state) bool {
	return p.opt.Search == "on" || p.opt.Search == "auto" && !st.facts.Network && p.deform == nil
}

// looks says whether the pair decides on the network: where the caller leaves all else to the library, the alignment,
// too. Images that lie apart do not tell their contrasts.
func (p *problem) looks(st state) bool {
	return st.facts.Network && p.opt.Search == "auto" && p.opt.Refine < 0 && p.deform == nil && align.Method(p.opt.Initial).Refines()
}

// iterations resolves the option refine.
func (p *problem) iterations(st state) int { return st.facts.Iterations(p.opt.plan()) }
