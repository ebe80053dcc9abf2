package engine

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/volume"
)

// weigh returns what the referee sees of the result.
func (p *problem) weigh(e *env, st state) RefereeMetrics {
	m := p.compare(st.start, st.end)
	r := RefereeMetrics{Gain: plan.Gain(m), Correlation: m.To}
	if most := p.referee().Covered(st.initial); most > 0 {
		r.Common = min(m.Common/most, 1)
	}
	r.Start, r.ReachMM = p.referee().Evidence(st.initial, nil)
	if r.Start < evidenceFor(p.isFlat()).sharp {
		r.End, _ = p.referee().Evidence(st.initial, st.deform)
	}
	// slices show no difference between a mirrored pair and another one (RATIONALE.md, Slices)
	if !p.isFlat() && r.Correlation < oneImage && (r.Start >= sharp || r.End < sharpEnd) {
		gain, axis, at := p.referee().Reflection(st.initial)
		r.Mirrored, r.Axis = max(gain, -1), alongBody(p.pair.Fixed.Direction, axis)
		if gain > maybeMirrored {
			r.Mirrored = p.gainMirrored(e, st, at)
		}
	}
	return r
}

// gainMirrored returns how much closer an alignment of the moving image mirrored brings the images than one of the image as
// it is, or than the initial transform, which may be none: the mean over several scales. It goes on from a reflection
// of the fixed image's space, and no farther than it takes to see that the image is not mirrored.
func (p *problem) gainMirrored(e *env, st state, reflection volume.Affine) float64 {
	mirrored := p.pair
	mirrored.Moving, mirrored.Channels = p.pair.Moving.Reversed(0), nil
	if mask := p.pair.MovingMask; mask != nil {
		mirrored.MovingMask = mask.Reversed(0)
	}
	g := mirrored.Moving.Geometry
	flip := volume.IdentityAffine()
	flip.M[0], flip.T[0] = -1, float64(g.Size[0]-1)
	unmirrored := g.IndexToPhysical().After(flip).After(g.PhysicalToIndex()) // and back
	from := unmirrored.After(st.initial).After(reflection)
	closer := func(theirs *referee.Referee, than, other volume.Affine) (mean float64) {
		margins := p.referee().AcrossScales(theirs, than, other)
		for _, m := range margins {
			mean += plan.Gain(m) / float64(len(margins))
		}
		return mean
	}
	least := 0.0
	other, err := p.alignAs(e, mirrored, align.Options{Method: align.Affine, Initial: &from, Suffices: func(t volume.Affine) bool {
		least = closer(referee.New(mirrored, p.opt.Threads), st.initial, t) // which lives no longer: the last refinement needs much memory
		return least < hardlyMirrored
	}})
	if err != nil { // a mirrored image cannot be aligned there
		return -1
	}
	if least < hardlyMirrored {
		return least
	}
	theirs := referee.New(mirrored, p.opt.Threads)
	least = closer(theirs, st.initial, other.Transform)
	alignment := st.alignment
	if alignment == nil && least > asMirrored { // no alignment was made of the image as it is
		own, err := p.alignBy(e, p.pair, align.Affine, &st.initial, nil)
		if err != nil {
			return -1
		}
		alignment = &own.Transform
	}
	if alignment != nil && *alignment != st.initial {
		least = min(least, closer(theirs, *alignment, other.Transform))
	}
	if least <= asMirrored {
		return least
	}
	// what is its own mirror image may only have been aligned better from there: the image as it is starts there, too
	back, err := reflection.Inverse()
	if err != nil {
		return least
	}
	there := unmirrored.After(other.Transform).After(back)
	if again, err := p.alignBy(e, p.pair, align.Affine, &there, nil); err == nil {
		least = min(least, closer(theirs, again.Transform, other.Transform))
	}
	return least
}

// alongBody names the direction in the body in which an axis of a grid mostly runs.
func alongBody(direction [9]float64, axis int) string {
	most := 0
	for row := range 3 {
		if math.Abs(direction[3*row+axis]) > math.Abs(direction[3*most+axis]) {
			most = row
		}
	}
	return [3]string{"left and right", "front and back", "head and foot"}[most]
}
