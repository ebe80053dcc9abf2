package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/landmark"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/volume"
)

// fitLandmarks fits the landmarks and tells which contradict the rest. It refuses those that mirror the body.
func (p *problem) fitLandmarks(n *notes, flat Pair) error {
	if len(flat.Landmarks) == 0 {
		return nil
	}
	pairs := make([]landmark.Pair, len(flat.Landmarks))
	for i, l := range flat.Landmarks {
		pairs[i] = landmark.Pair{Fixed: l.Fixed, Moving: l.Moving}
	}
	m := &LandmarkMetrics{Count: len(pairs), ErrorMM: p.opt.LandmarkError, LeftOut: []string{}}
	wrong := landmark.Contradictory(pairs, p.opt.LandmarkError)
	for i, pair := range pairs {
		if slices.Contains(wrong, i) {
			m.LeftOut = append(m.LeftOut, flat.name(i))
			continue
		}
		p.landmarks = append(p.landmarks, pair)
	}
	if len(m.LeftOut) > 0 {
		n.warn(fmt.Sprintf("Landmarks that contradict the others were left out: %s. Check that both points of each mark the same place.", strings.Join(m.LeftOut, ", ")))
	}
	if p.given().Det() > 0 && landmark.Mirrored(p.landmarks, p.isFlat(), p.opt.LandmarkError) {
		return fault.New(fault.InvalidArgument, "the landmarks fit only if the moving ones are mirrored, and no body is: left and right, or another pair of sides, are exchanged between the fixed and the moving ones; check the names and the signs of the coordinates, LPS mm, in both")
	}
	fit := landmark.Fit(p.landmarks, p.opt.Initial == string(align.Affine))
	turn := fit
	if p.isFlat() { // a rotation out of the plane mirrors what lies in it
		turn = fit.WithinPlane()
	}
	if turn.Det() > 1e-3 {
		p.landmarkFit = &fit
	}
	m.BeforeMM = landmark.RMS(p.landmarks, p.given())
	n.metrics.LandmarkFit = m
	return nil
}

// From these values on, the landmarks change the deformation that the images ask for (RATIONALE.md, Landmarks).
const (
	likelier = 6.0 // rise of the log-likelihood of what is missing at them
	tooLong  = 3.0 // displacement of one, in its errors and in voxels, from which on the images are looked at again
)

// keepToLandmarks brings the result to the landmarks where they say that the images were misled: by a displacement that
// is as smooth as they let it be. Where that is long the refinement goes on from there, for what lies between them.
// What their error explains changes nothing.
func (p *problem) keepToLandmarks(e *env, st state) (proposal, error) {
	e.notes.metrics.LandmarkFit.InitialMM = landmark.RMS(p.landmarks, st.initial)
	e.notes.metrics.LandmarkFit.ImagesMM = p.landmarksApart(st, st.deform)
	pull, likelihood := p.missing(e.ctx, st, st.deform)
	base := st
	if st.deform != nil && st.deform != p.deform && !st.facts.Network {
		if other, l := p.missing(e.ctx, st, nil); l > likelihood+likelier {
			base, pull = p.deformed(st, nil), other
			e.notes.undeformed()
			e.notes.because("the images led the deformation away from the landmarks: it starts again from the initial alignment")
		}
	}
	if err := e.ctx.Err(); err != nil {
		return proposal{}, err
	}
	if pull == nil {
		e.notes.because(fmt.Sprintf("the landmarks lie %.1f mm from where they belong without a pull: too little for their error of %g mm, or too uneven, to move what lies between them", p.landmarksApart(base, base.deform), p.opt.LandmarkError))
		return proposal{state: base}, nil
	}
	pulled := p.pulled(base.deform, pull)
	e.notes.metrics.LandmarkFit.ReachMM = pull.Reach()
	e.notes.metrics.LandmarkFit.CrossMM = pull.Cross()
	e.notes.because(fmt.Sprintf("the landmarks lay up to %.1f mm from where the images put them: each pulls over %.0f mm", pull.Longest(), pull.Reach()))
	voxel := aligned.Spacing(p.pair.Fixed.Geometry)
	if st.refined && p.iterations(st) > 0 && pull.Longest() > tooLong*max(voxel, p.opt.LandmarkError) {
		by := plan.Again(p.opt.plan(), p.measured(st))
		u, _, err := refine.Run(e.ctx, p.under(st), pulled, by, p.refineOptions(e, st))
		if err != nil {
			return proposal{}, err
		}
		closer := plan.Closer(p.compare(p.look(st.initial, pulled), p.look(st.initial, u)))
		if closer && p.landmarksApart(st, u) <= pull.Cross() {
			if pull, _ := p.missing(e.ctx, st, u); pull != nil {
				u = p.pulled(u, pull)
			}
			pulled = u
			e.notes.because("the refinement went on from there")
		}
	}
	return proposal{state: p.deformed(st, pulled)}, nil
}

// landmarksApart returns the root mean square distance of the landmarks under a deformation behind the initial transform,
// mm. Beyond the grid the deformation fades, as the result does.
func (p *problem) landmarksApart(st state, deform *field.Field) float64 {
	points := p.fixedLandmarks()
	if deform != nil {
		if endless, err := deform.Endless(volume.IdentityAffine()); err == nil { // the identity has an inverse
			endless.TransformPoints(points)
		}
	}
	return p.landmarksMiss(points, st.initial)
}

// landmarksMiss returns the root mean square distance of the moving landmarks from where a transform carries points, mm.
func (p *problem) landmarksMiss(points []float64, by volume.Affine) float64 {
	carried := slices.Clone(p.landmarks)
	for i := range carried {
		carried[i].Fixed = [3]float64(points[3*i:])
	}
	return landmark.RMS(carried, by)
}

// fixedLandmarks returns the fixed points, x, y, z interleaved.
func (p *problem) fixedLandmarks() []float64 {
	points := make([]float64, 0, 3*len(p.landmarks))
	for _, l := range p.landmarks {
		points = append(points, l.Fixed[:]...)
	}
	return points
}

// missing returns what brings the landmarks together behind a deformation, nil where there is nothing to bring, and how
// likely that is.
func (p *problem) missing(ctx context.Context, st state, deform *field.Field) (*landmark.Pull, float64) {
	back, err := st.initial.Inverse()
	if err != nil { // it was checked
		return nil, math.Inf(-1)
	}
	points := p.fixedLandmarks()
	if deform != nil {
		deform.TransformPoints(points)
	}
	at, missing := make([][3]float64, len(p.landmarks)), make([][3]float64, len(p.landmarks))
	for i, l := range p.landmarks {
		at[i] = l.Fixed
		missing[i] = volume.Sub(back.Apply(l.Moving), [3]float64(points[3*i:]))
	}
	return landmark.NewPull(ctx, at, missing, p.opt.LandmarkError, p.pair.Fixed.Longest(), aligned.Spacing(p.pair.Fixed.Geometry))
}

// pulled returns a deformation with a pull added.
func (p *problem) pulled(deform *field.Field, pull *landmark.Pull) *field.Field {
	const nodes, perReach = 64, 16 // along the longest side
	coarse := p.pair.Grid(max(p.pair.Fixed.Longest()/nodes, pull.Reach()/perReach))
	whole := field.FromMM(coarse, pull.Sample(coarse, p.opt.Threads), p.opt.Threads)
	if deform != nil {
		more := whole.Resample(deform.Geometry, p.opt.Threads)
		whole = field.New(deform.Geometry)
		for i := range whole.Data {
			whole.Data[i] = deform.Data[i] + more.Data[i]
		}
	}
	whole.Lock(p.lockedCanonical())
	whole.Unfold(minJacobian, p.opt.Threads)
	return whole
}

// measureLandmarks notes how the result keeps to the landmarks.
func (p *problem) measureLandmarks(n *notes, total *field.Field, initial volume.Affine) error {
	if len(p.landmarks) == 0 {
		return nil
	}
	endless, err := total.Endless(initial)
	if err != nil {
		return err
	}
	points := p.fixedLandmarks()
	endless.TransformPoints(points)
	n.metrics.LandmarkFit.AfterMM = p.landmarksMiss(points, volume.IdentityAffine())
	return nil
}
