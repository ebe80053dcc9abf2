package engine

import (
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/metric"
	"github.com/morphseek/morphseek/engine/volume"
)

// finish makes the total transform, resamples the moving image by it, once and from the original, and measures both.
func (r *registration) finish() error {
	fixed, moving, threads := r.fixed, r.moving, r.opt.Threads
	deformed := r.deform != nil
	r.weigh()
	total := r.total(r.release())
	r.measureLandmarks(total)
	background, _ := r.original.MinMax()
	warped := total.Warp(r.original, volume.Linear, background, threads)
	r.report.at(0.3, "measuring")

	m := &r.metrics
	s := total.Stats(threads)
	m.NJDPercent, m.SDLogJ = s.NJDPercent, s.SDLogJ
	m.JacobianMin, m.JacobianMax = s.JacobianMin, s.JacobianMax
	m.DisplacementMean, m.DisplacementMax = s.DisplacementMeanMM, s.DisplacementMaxMM
	where := fixed.Geometry
	if r.pair.FixedMask != nil {
		where = selected(r.pair.FixedMask)
	}
	grid := measuringGrid(where)
	plausible, outside := warped, background
	if r.original != moving {
		outside, _ = moving.MinMax()
		plausible = total.Warp(moving, volume.Linear, outside, threads)
	}
	for _, measure := range []struct {
		into  *float64
		image *volume.Volume
		by    volume.Affine
	}{
		{&m.SimilarityBefore, moving, volume.IdentityAffine()},
		{&m.SimilarityAlign, moving, r.initial},
		{&m.SimilarityAfter, plausible, volume.IdentityAffine()},
	} {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		*measure.into = r.similarity(grid, measure.image.Resample(grid, measure.by, volume.Linear, outside, threads))
	}
	found := doubts(*m, deformed)
	if r.apart {
		found = append(found, noMiddle)
	}
	r.warn(found...)
	m.Verdict = verdict(m.Referee, r.evidence(), append(startDoubts(m.Align), found...), math.Cbrt(math.Abs(fixed.IndexToPhysical().Det())))
	r.result = &Result{
		Transform: Transform{Field: total, Initial: r.initial, Moving: moving.Geometry, Threads: threads}, Warped: warped, Uncertainty: r.sd,
	}
	return nil
}

// minJacobian is the least Jacobian determinant of the deformation on the fixed grid. It bars folds, not compression, which networks need
// where one image lacks a tissue (RATIONALE.md, Folds and compression).
const minJacobian = 0.001

// release hands the deformation over to total, which may change it. The registration has none afterwards, so that its memory can be freed.
func (r *registration) release() *field.Field {
	deform := r.deform
	r.deform = nil
	return deform
}

// total returns the initial transform and a deformation, nil being none, as one field on the fixed grid. A deformation without folding on its
// own grid may fold between that grid's points on a finer or anisotropic fixed grid. There the folds are opened.
func (r *registration) total(deform *field.Field) *field.Field {
	if deform != nil {
		deform = deform.Resample(r.fixed.Geometry, r.opt.Threads)
		if r.pair.Rigid == nil {
			deform.Unfold(minJacobian, r.opt.Threads)
		}
	}
	return r.shaped(deform)
}

// measuringGrid returns every k-th voxel of g along each axis, k as small as leaves no more than about a million voxels: similarity
// is a mean over the image, and costs more than the warp.
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

// similarity compares an image on the measuring grid with the fixed one, inside the fixed mask. Outside the moving image counts
// as background.
func (r *registration) similarity(grid volume.Geometry, image *volume.Volume) float64 {
	id, threads := volume.IdentityAffine(), r.opt.Threads
	fixed := r.fixed.Resample(grid, id, volume.Linear, 0, threads)
	var mask *volume.Volume
	if r.pair.FixedMask != nil {
		mask = r.pair.FixedMask.Resample(grid, id, volume.Nearest, 0, threads)
	}
	if r.metrics.Align.SameModality {
		const radius = 4
		r.metrics.Similarity = "local NCC"
		return metric.LocalNCC(fixed, image, mask, radius, threads)
	}
	const bins = 32
	r.metrics.Similarity = "normalized mutual information"
	_, nmi := metric.MutualInformation(fixed, image, mask, bins, threads)
	return nmi
}
