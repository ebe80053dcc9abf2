package engine

import (
	"fmt"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/landmark"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/volume"
)

// align finds the initial transform, or measures the caller's.
func (p *problem) align(e *env, st state) (proposal, error) {
	method := align.Method(p.opt.Initial)
	if p.deform != nil { // another alignment would discard the caller's deformation
		method = align.None
	}
	a, err := p.alignBy(e, p.pair, method, p.initial, e.progress)
	if err != nil {
		return proposal{}, err
	}
	if method == align.COM && p.initial != nil {
		method = align.None // the caller's stays
	}
	if e.notes.start(string(method)); p.deform != nil {
		e.notes.start("deformation")
	}
	if len(p.pair.Channels) > 0 {
		if a, st.intensities, err = p.alignByChannels(e, a, method); err != nil {
			return proposal{}, err
		}
	}
	if method.Refines() {
		if a, st, err = p.judgeStart(e, a, st); err != nil {
			return proposal{}, err
		}
	}
	if a, st, err = p.alignCutOut(e, a, st, method); err != nil {
		return proposal{}, err
	}
	if a, st, err = p.bringBack(e, a, st, method); err != nil {
		return proposal{}, err
	}
	st.facts.SameModality, st.facts.Score = a.SameModality, a.Score
	e.notes.metrics.Align = AlignMetrics{
		Method: string(method), Score: a.Score, Confidence: a.Confidence, RivalMM: a.RivalMM, Overlap: a.Overlap, SameModality: a.SameModality,
		Matrix: a.Transform.M, Translation: a.Transform.T, Turn: p.turned(a.Transform),
	}
	p.saysShape(e.notes)
	st = p.at(st, a.Transform)
	return proposal{state: p.deformed(st, p.deform)}, nil
}

// alignCutOut goes on from an alignment by what both images show, where one was cut out of its surroundings and the other
// shows them. The state has the mask.
func (p *problem) alignCutOut(e *env, a *align.Result, st state, method align.Method) (*align.Result, state, error) {
	pair := p.pair
	if pair.FixedMask != nil || pair.MovingMask != nil {
		return a, st, nil
	}
	pair.Initial = a.Transform
	if st.fixedMask, st.movingMask = pair.CutOut(p.opt.Threads); st.fixedMask == nil && st.movingMask == nil {
		return a, st, nil
	}
	e.notes.because("one image was cut out of its surroundings, which the other shows: only what both show is compared")
	back, err := a.Transform.Inverse()
	if !method.Refines() || err != nil {
		return a, st, nil
	}
	if pair.FixedMask, pair.MovingMask = st.fixedMask, st.movingMask; pair.FixedMask == nil {
		pair.FixedMask = st.movingMask.Resample(pair.Fixed.Geometry, a.Transform, volume.Nearest, 0, p.opt.Threads)
	} else {
		pair.MovingMask = st.fixedMask.Resample(pair.Moving.Geometry, back, volume.Nearest, 0, p.opt.Threads)
	}
	again, err := p.alignBy(e, pair, method, &a.Transform, nil)
	if err != nil {
		return nil, st, err
	}
	again.Certainty = a.Certainty
	margin := p.compare(p.look(a.Transform, nil), p.look(again.Transform, nil))
	if plan.Alignment(plan.IntensitiesCompare(again.SameModality, again.Score))(margin) != "" {
		return a, st, nil
	}
	e.notes.start(string(method))
	st.facts.From, st.alignment = 0, &again.Transform
	return again, st, nil
}

// judgeStart takes the simplest start that is not clearly beaten: the caller's transform or the headers', or a rigid one
// for an affine. The state has what was found, and whether the images lay as frames of one scan do.
func (p *problem) judgeStart(e *env, a *align.Result, st state) (*align.Result, state, error) {
	given := p.given()
	before, after := p.look(given, nil), p.look(a.Transform, nil)
	if a.Rigid != nil {
		rigid := p.look(a.Rigid.Transform, nil)
		if why := plan.Sheared(p.compare(rigid, after)); why != "" {
			a.Rigid.Certainty, a.Rigid.SameModality = a.Certainty, a.SameModality
			a, after = a.Rigid, rigid
			e.notes.start(string(align.Rigid))
			e.notes.because(why)
		}
	}
	st.alignment = &a.Transform
	margin := p.compare(before, after)
	why := plan.Alignment(plan.IntensitiesCompare(a.SameModality, a.Score))(margin)
	if why == "" {
		return a, st, nil
	}
	kept, err := p.alignBy(e, p.pair, align.None, &given, nil)
	if err != nil {
		return nil, st, err
	}
	kept.Certainty, kept.SameModality = a.Certainty, a.SameModality
	e.notes.start("header")
	st.facts.From = margin.From
	if st.facts.Frames() && given != volume.IdentityAffine() { // frames match by their headers alone, too
		st.facts.From = p.compare(p.look(volume.IdentityAffine(), nil), before).From
	}
	if p.initial != nil {
		e.notes.start("given")
	}
	e.notes.because(why)
	return kept, st, nil
}

// alignByChannels aligns the channels too, says of each whether its intensities compare, and takes the alignment of one
// where it brings all of them clearly closer than that of the pair's own images does.
func (p *problem) alignByChannels(e *env, a *align.Result, method align.Method) (*align.Result, []bool, error) {
	compare := make([]bool, len(p.pair.Channels))
	by, from := method, p.initial
	if !method.Refines() { // to see whether intensities compare, where nothing is to be aligned
		by, from = align.Affine, &a.Transform
	}
	best := p.look(a.Transform, nil)
	for k, c := range p.pair.Channels {
		compare[k] = c.Labels == 0
		other, err := p.alignBy(e, c.Under(volume.IdentityAffine()), by, from, nil)
		if fault.CodeOf(err) == fault.Cancelled {
			return nil, nil, err
		}
		if err != nil { // this channel cannot be aligned
			compare[k] = false
			continue
		}
		switch {
		case c.Labels > 0:
		case p.opt.Similarity == "auto":
			compare[k] = plan.IntensitiesCompare(other.SameModality, other.Score)
		default:
			compare[k] = !refine.Similarity(p.opt.Similarity).Descriptors()
		}
		if !method.Refines() {
			continue
		}
		seen := p.look(other.Transform, nil)
		if margin := p.compare(best, seen); plan.Closer(margin) {
			e.notes.because(fmt.Sprintf("the alignment of %s brings all channels closer (%+.2f) than that of the first", p.request.ChannelName(k), plan.Gain(margin)))
			other.SameModality, other.Confidence, other.Score, other.Rigid = a.SameModality, max(a.Confidence, other.Confidence), max(a.Score, other.Score), nil
			a, best = other, seen
		}
	}
	return a, compare, nil
}

// From these distances on, a start counts as led astray by the images: the deformable stages do not reach so far
// (RATIONALE.md, Landmarks).
const (
	farApart     = 1.0 / 16 // of the image's longest side
	farApartFew  = 1.0 / 8  // by points that fix no rotation
	worseThanFit = 1.5      // times as far as where they are fitted
)

// leadsAstray says whether the images led a start astray: the landmarks lie much farther apart under it than under the
// transform that fits them.
func (p *problem) leadsAstray(start volume.Affine) bool {
	if p.landmarkFit == nil {
		return false
	}
	far := farApart
	if len(p.landmarks) < landmark.EnoughTurn {
		far = farApartFew
	}
	apart := landmark.RMS(p.landmarks, start)
	return apart > float64(far*p.pair.Fixed.Longest())+p.opt.LandmarkError && apart > float64(worseThanFit*landmark.RMS(p.landmarks, *p.landmarkFit))
}

// bringBack aligns again from what fits the landmarks where the images led the alignment away from them, and takes that
// fit itself where they do so again. The state is without the facts of the alignment that it replaces.
func (p *problem) bringBack(e *env, a *align.Result, st state, method align.Method) (*align.Result, state, error) {
	if method == align.None || !p.leadsAstray(a.Transform) { // nothing is to be aligned
		return a, st, nil
	}
	why := "the images led the initial alignment away from the landmarks: it starts from what fits these"
	st.facts.From = 0
	if method.Refines() {
		again, err := p.alignBy(e, p.pair, method, p.landmarkFit, nil)
		if err != nil {
			return nil, st, err
		}
		if !p.leadsAstray(again.Transform) {
			e.notes.start(string(method))
			e.notes.because(why)
			st.alignment = &again.Transform
			return again, st, nil
		}
		why = "the images led the initial alignment away from the landmarks, from these, too: what fits them is taken"
	}
	kept, err := p.alignBy(e, p.pair, align.None, p.landmarkFit, nil)
	if err != nil {
		return nil, st, err
	}
	kept.Confidence, kept.SameModality = 1, a.SameModality // the alignment's own confidence is of another place
	e.notes.start("landmarks")
	e.notes.because(why)
	return kept, st, nil
}

// saysShape notes in the plan what was asked of the deformation.
func (p *problem) saysShape(n *notes) {
	if p.opt.Along != "all" {
		axes := strings.Join(strings.Split(p.opt.Along, ""), " and ")
		n.because("the deformation keeps to the fixed image's axes: " + axes)
	}
	if p.rigid != nil {
		if k := len(p.rigid.Labels()); k == 1 {
			n.because("a region moves as one body")
		} else {
			n.because(fmt.Sprintf("%d regions move each as one body", k))
		}
	}
}
