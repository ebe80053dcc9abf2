package engine

import (
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/bodies"
	"github.com/morphseek/morphseek/engine/metric"
	"github.com/morphseek/morphseek/engine/volume"
)

// finish makes the total transform, resamples the moving image by it, once and from the original, and measures both.
func (p *problem) finish(e *env, st state, result *Result) error {
	fixed, moving, threads := p.fixed, p.moving, p.opt.Threads
	m := &e.notes.metrics
	m.Referee, m.Channels, m.Plan.Facts = p.weigh(e, st), p.channelMetrics(st), st.facts.Numbers()
	deformed, initial := st.deform != nil, st.initial
	voxel := math.Cbrt(math.Abs(fixed.IndexToPhysical().Det()))
	if st.facts.Large { // nothing finer was looked at
		voxel = max(voxel, st.facts.Spacing)
	}
	scale := voxel * st.facts.ErrorFactor(p.opt.plan())
	total := p.total(st)
	st = state{} // its memory can be freed
	if err := p.measureLandmarks(e.notes, total, initial); err != nil {
		return err
	}
	background, _ := p.original.MinMax()
	warped := total.Warp(p.original, volume.Linear, background, threads)
	e.report.at(0.3, "measuring")

	s := total.Stats(threads)
	m.NJDPercent, m.SDLogJ = s.NJDPercent, s.SDLogJ
	m.JacobianMin, m.JacobianMax = s.JacobianMin, s.JacobianMax
	m.DisplacementMean, m.DisplacementMax = s.DisplacementMeanMM, s.DisplacementMaxMM
	where := fixed.Geometry
	if p.fixedMask != nil {
		where = selected(p.fixedMask)
	}
	grid := measuringGrid(where)
	plausible, outside := warped, background
	if p.original != moving {
		outside, _ = moving.MinMax()
		plausible = total.Warp(moving, volume.Linear, outside, threads)
	}
	here := p.fixed.Resample(grid, volume.IdentityAffine(), volume.Linear, 0, threads)
	var mask *volume.Volume
	if p.fixedMask != nil {
		mask = p.fixedMask.Resample(grid, volume.IdentityAffine(), volume.Nearest, 0, threads)
	}
	for _, measure := range []struct {
		into  *float64
		image *volume.Volume
		by    volume.Affine
	}{
		{&m.SimilarityBefore, moving, volume.IdentityAffine()},
		{&m.SimilarityAlign, moving, initial},
		{&m.SimilarityAfter, plausible, volume.IdentityAffine()},
	} {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		there := measure.image.Resample(grid, measure.by, volume.Linear, outside, threads)
		m.Similarity, *measure.into = similarity(here, there, mask, m.Align.SameModality, threads)
	}
	reasons := append(startDoubts(*m, p.isFlat()), doubts(*m, deformed)...)
	reasons = append(reasons, e.notes.doubts...)
	e.notes.warn(reasons...)
	m.Verdict = verdict(m.Referee, evidenceFor(p.isFlat()), reasons, scale)
	result.Transform = Transform{Field: total, Initial: initial, Moving: moving.Geometry, Threads: threads}
	result.Warped = warped
	return nil
}

// total returns the transform of a state as one field on the fixed grid. It may change the deformation, which nobody may
// read afterwards, and opens folds that a deformation without any on its own grid may have between that grid's points.
func (p *problem) total(st state) *field.Field {
	deform := st.deform
	if deform != nil {
		deform = deform.Resample(p.fixed.Geometry, p.opt.Threads)
		if p.rigid == nil {
			deform.Unfold(minJacobian, p.opt.Threads)
		}
	}
	return p.shaped(st.initial, deform)
}

// selected returns the part of the mask's grid around all that it selects; it selects something. Measured there, a thin mask
// of a large image does not fall between the voxels of the measuring grid.
func selected(mask *volume.Volume) volume.Geometry {
	b := volume.EmptyBox(mask.Size)
	for i, v := range mask.Data {
		if v != 0 {
			b = b.With(mask.Index(i))
		}
	}
	return mask.Part(b)
}

// measuringGrid returns every k-th voxel of g along each axis, k as small as leaves no more than about a million
// voxels: similarity is a mean over the image, and costs more than the warp.
func measuringGrid(g volume.Geometry) volume.Geometry {
	const most = 1 << 20
	k := int(math.Ceil(g.Root(float64(g.Voxels()) / most)))
	var first [3]float64
	toPhysical := g.IndexToPhysical()
	for a, n := range g.Size {
		k := min(k, n)
		first[a] = float64((k - 1) / 2)
		g.Size[a] = (n-1-(k-1)/2)/k + 1
		g.Spacing[a] *= float64(k)
	}
	g.Origin = toPhysical.Apply(first)
	return g
}

// similarity compares two images on the measuring grid inside a mask, and names the measure. Outside the moving image
// counts as background.
func similarity(fixed, moving, mask *volume.Volume, sameModality bool, threads int) (string, float64) {
	if sameModality {
		const radius = 4
		return "local NCC", metric.LocalNCC(fixed, moving, mask, radius, threads)
	}
	const bins = 32
	return "normalized mutual information", metric.NormalizedMutualInformation(fixed, moving, mask, bins, threads)
}

// shaped returns the total transform of a deformation on the fixed grid, which it may change; nil is the identity.
func (p *problem) shaped(initial volume.Affine, deform *field.Field) *field.Field {
	if p.rigid != nil {
		if deform == nil { // the initial transform may scale
			deform = field.New(p.fixed.Geometry)
		}
		rigid := bodies.On(deform.Geometry, p.rigid, p.opt.Threads)
		rigid.Make(deform, nil, initial)
		rigid.Unfold(deform, minJacobian, p.opt.Threads)
	}
	locked := p.locked()
	if deform != nil {
		deform.Lock(locked)
	}
	if locked != [3]bool{} && deform != nil && initial == volume.IdentityAffine() {
		return deform // exactly: by way of millimetres, a locked axis would get a rounding error
	}
	return field.Total(initial, deform, p.fixed.Geometry, p.opt.Threads)
}
