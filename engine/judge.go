package engine

import (
	"fmt"
	"math"

	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/volume"
)

// Every stage proposes. The referee decides here whether its proposal is taken, by a measure that no stage optimises. Ties go to the state before.

// judges returns the referee of the pair, which is made when it is first asked.
func (r *registration) judges() *referee.Referee {
	if r.referee == nil {
		r.referee = referee.New(r.canonical, r.opt.Threads)
	}
	return r.referee
}

// startState returns what the referee sees of the initial transform, once it is settled.
func (r *registration) startState() referee.State {
	if r.start.Unknown() {
		r.start = r.judges().Look(r.initial, nil)
	}
	return r.start
}

// judgeStart takes the simplest start that is not clearly beaten: the caller's transform, or without one the headers', where the alignment
// brings the images no closer. It takes a rigid one where scales and shears lead them apart nearly everywhere.
func (r *registration) judgeStart(found *align.Result) (*align.Result, error) {
	given := volume.IdentityAffine()
	if r.pair.Initial != nil {
		given = *r.pair.Initial
	}
	judge := r.judges()
	before, after := judge.Look(given, nil), judge.Look(found.Transform, nil)
	if found.Rigid != nil {
		rigid := judge.Look(found.Rigid.Transform, nil)
		if m := judge.Compare(rigid, after); m.T < -steadyT {
			found.Rigid.Confidence, found.Rigid.SameModality = found.Confidence, found.SameModality
			found, after = found.Rigid, rigid
			r.metrics.Plan.Start = string(align.Rigid)
			r.because(fmt.Sprintf("scales and shears bring the images no closer (%+.2f): the alignment is rigid", gain(m)))
		}
	}
	r.start, r.found = after, &found.Transform
	margin := judge.Compare(before, after)
	why := staysAt(margin, intensitiesCompare(found.SameModality, found.Score))
	if why == "" {
		return found, nil
	}
	kept, err := r.alignBy(r.canonical, align.None, &given, nil)
	if err != nil {
		return nil, err
	}
	kept.Confidence, kept.SameModality = found.Confidence, found.SameModality
	r.start = before
	r.metrics.Plan.Start = "header"
	r.frames = margin.From >= still
	if r.frames && given != volume.IdentityAffine() { // frames match by their headers alone, too
		r.frames = judge.Compare(judge.Look(volume.IdentityAffine(), nil), before).From >= still
	}
	if r.pair.Initial != nil {
		r.metrics.Plan.Start = "given"
	}
	r.because(why)
	return kept, nil
}

// judgeDeformation drops the deformation where it brings the images no closer than the alignment did. A network's stands, because it learned
// from labels what the images do not show.
func (r *registration) judgeDeformation() {
	if r.deform == nil || r.model != nil {
		return
	}
	if r.begun != nil {
		if r.end = r.judgeBegun("a refinement"); r.deform == r.begun {
			r.metrics.Plan.Search, r.metrics.Plan.SmoothnessMM = 0, 0
		}
		return
	}
	judge, start := r.judges(), r.startState()
	r.end = judge.Look(r.initial, r.deform)
	if m := judge.Compare(start, r.end); !worthwhile(m) {
		r.because(fmt.Sprintf("a deformation brought the images no closer (%+.2f): the initial alignment stays", gain(m)))
		r.deform, r.end = nil, start
		r.metrics.Plan.Search, r.metrics.Plan.SmoothnessMM = 0, 0
	}
}

// weigh notes what the referee sees of the result.
func (r *registration) weigh() {
	judge, start := r.judges(), r.startState()
	switch {
	case r.deform == nil:
		r.end = start
	case r.end.Unknown():
		r.end = judge.Look(r.initial, r.deform)
	}
	m := judge.Compare(start, r.end)
	e := RefereeMetrics{Gain: gain(m), Correlation: m.To, Common: m.Common}
	e.Start, e.ReachMM = judge.Evidence(r.initial, nil)
	if e.Start < r.evidence().sharp {
		e.End, _ = judge.Evidence(r.initial, r.deform)
	}
	// slices show no difference between a mirrored pair and another one (RATIONALE.md, Slices)
	if !r.isFlat() && e.Correlation < oneImage && (e.Start >= sharp || e.End < sharpEnd) {
		gain, axis, at := judge.Reflection(r.initial)
		e.Mirrored, e.Axis = max(gain, -1), alongBody(r.canonical.Fixed.Direction, axis)
		if gain > maybeMirrored {
			e.Mirrored = r.gainMirrored(at)
		}
	}
	r.metrics.Referee = e
	r.channelMetrics()
}

// gainMirrored is how much closer an alignment of the moving image mirrored brings the images than one of the image as it is, or than the
// initial transform, which may be none: the mean over several scales. It goes on from a reflection of the fixed image's space.
func (r *registration) gainMirrored(reflection volume.Affine) float64 {
	mirrored := r.canonical
	mirrored.Moving, mirrored.Channels = r.canonical.Moving.Reversed(0), nil
	if mask := r.canonical.MovingMask; mask != nil {
		mirrored.MovingMask = mask.Reversed(0)
	}
	g := mirrored.Moving.Geometry
	flip := volume.IdentityAffine()
	flip.M[0], flip.T[0] = -1, float64(g.Size[0]-1)
	unmirrored := g.IndexToPhysical().After(flip).After(g.PhysicalToIndex()) // and back
	from := unmirrored.After(r.initial).After(reflection)
	other, err := r.alignBy(mirrored, align.Affine, &from, nil)
	if err == nil && r.found == nil {
		var found *align.Result
		if found, err = r.alignBy(r.canonical, align.Affine, &r.initial, nil); err == nil {
			r.found = &found.Transform
		}
	}
	if err != nil { // a mirrored image cannot be aligned there
		return -1
	}
	judge, theirs := r.judges(), referee.New(mirrored, r.opt.Threads)
	closer := func(than volume.Affine) (mean float64) {
		margins := judge.AcrossScales(theirs, than, other.Transform)
		for _, m := range margins {
			mean += gain(m) / float64(len(margins))
		}
		return mean
	}
	least := closer(r.initial)
	if *r.found != r.initial {
		least = min(least, closer(*r.found))
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
	if again, err := r.alignBy(r.canonical, align.Affine, &there, nil); err == nil {
		least = min(least, closer(again.Transform))
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
