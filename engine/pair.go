package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/internal/search"
	"github.com/morphseek/morphseek/engine/volume"
)

// check reports the first fault of the inputs.
func (p Pair) check() error {
	for _, in := range []struct {
		name    string
		v, mask *volume.Volume
	}{{"fixed", p.Fixed, p.FixedMask}, {"moving", p.Moving, p.MovingMask}} {
		if err := in.v.Check(in.name); err != nil {
			return err
		}
		if in.mask == nil {
			continue
		}
		if err := in.v.CheckMask(in.name, in.mask); err != nil {
			return err
		}
	}
	if err := p.checkField(); err != nil {
		return err
	}
	if err := p.checkRigid(); err != nil {
		return err
	}
	if err := p.checkChannels(); err != nil {
		return err
	}
	if p.Initial == nil {
		return p.checkUnits()
	}
	for _, x := range append(p.Initial.M[:], p.Initial.T[:]...) {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fault.New(fault.SingularTransform, "initial transform %v is not finite; correct it", *p.Initial)
		}
	}
	if _, err := p.Initial.Inverse(); err != nil {
		return fault.Wrap(fault.SingularTransform, err, "initial transform is singular; correct it")
	}
	return p.checkUnits()
}

// checkUnits reports fields of view that differ too much for one body, as of headers in metres and in millimetres. Their working grids would
// have more voxels than any memory, or none.
func (p Pair) checkUnits() error {
	const most = 100
	longest := func(g volume.Geometry) (mm float64) {
		for a, n := range g.Size {
			mm = max(mm, float64(n)*g.Spacing[a])
		}
		return mm
	}
	fixed, moving, scale, given := longest(p.Fixed.Geometry), longest(p.Moving.Geometry), 1.0, ""
	if p.Initial != nil {
		scale = math.Cbrt(math.Abs(p.Initial.Det()))
		given = fmt.Sprintf(", with an initial transform that scales by %.3g", scale)
	}
	if r := moving / (scale * fixed); !(r <= most && r >= 1.0/most) {
		return fault.New(fault.InvalidSpacing, "the fixed field of view is %.3g mm long and the moving one %.3g mm%s: more than a factor of %d lies between them; check the units of the headers, which must be millimetres", fixed, moving, given, most)
	}
	return nil
}

// prepare opens what could be missing, asks for the memory, and replaces voxels that are not finite: what fails, fails before the
// work.
func (r *registration) prepare() error {
	if err := r.checkShape(); err != nil {
		return err
	}
	if r.model != nil && r.opt.Uncertainty == "on" && r.opt.Tau == 0 {
		return fault.New(fault.InvalidArgument, "with tau 0 all samples of the network's policy are the same, so there is no uncertainty to measure; leave tau at 1")
	}
	fixed, moving := r.pair.Fixed, r.pair.Moving
	need, err := r.bytes()
	if err != nil {
		return err
	}
	if err := checkMemory(need, "registering these volumes"); err != nil {
		return err
	}
	for _, look := range []func(){
		func() { r.pair.Fixed, r.pair.Moving = fixed.Plausible(), moving.Plausible() },
		func() { r.fixed = r.finite("fixed", r.pair.Fixed) },
		func() { r.moving = r.finite("moving", r.pair.Moving) },
	} {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		look()
	}
	r.original = r.moving
	if r.pair.Moving != moving {
		r.original = allFinite(moving)
	}
	r.pair.FixedMask, r.pair.MovingMask = r.finiteMask("fixed", r.pair.FixedMask), r.finiteMask("moving", r.pair.MovingMask)
	r.canonical = aligned.Pair{
		Fixed: r.pair.Fixed.Canonical(), Moving: r.pair.Moving.Canonical(),
		FixedMask: r.pair.FixedMask.Canonical(), MovingMask: r.pair.MovingMask.Canonical(), Rigid: r.pair.Rigid.Canonical(),
	}
	r.prepareChannels()
	r.warnOfUnusedOptions()
	return r.openNetwork()
}

// bytes is about how much memory the registration takes at its peak.
func (r *registration) bytes() (int64, error) {
	const float = 4
	fixed, moving := r.pair.Fixed, r.pair.Moving
	images := aligned.Pair{Fixed: fixed, Moving: moving}
	refinement := refine.Bytes(images, effort[r.opt.Preset].voxels)
	need := float * int64(9*fixed.Voxels()+3*moving.Voxels()) // deformation and total field or its smoothed copy, two more; finite and canonical copies
	if r.begun != nil {
		need += float * 3 * int64(r.begun.Voxels())
	}
	if r.model != nil {
		grid := r.model.Grid(fixed.Geometry)
		if err := grid.Check("network grid of the fixed"); err != nil { // a header with metres for millimetres
			return 0, err
		}
		need += r.model.Bytes(grid, r.opt.Steps, r.opt.Trajectories)
		if r.opt.Uncertainty == "on" {
			const live = 12 // values a voxel: the start, a trajectory's field in and out, the mean, the squares
			need += float * live * int64(grid.Voxels())
		}
	}
	if r.pair.Rigid != nil {
		need += float * 5 * int64(fixed.Voxels()) // in their order and in that of the axes, where they lie, their rims
	}
	for _, c := range r.pair.Channels {
		need += float*int64(3*c.Fixed.Voxels()+3*c.Moving.Voxels()) + refinement // finite and canonical copies; what is measured of them
	}
	if r.opt.Symmetric == "on" {
		need += float * int64(21*fixed.Voxels()+9*moving.Voxels()) // both maps, their product, its root, that of the middle; copies
	}
	stage := align.Bytes(fixed.Geometry, moving.Geometry) // the most that one of the stages holds
	if r.searches() {
		stage = max(stage, search.Bytes(images))
	}
	if r.iterations() > 0 {
		stage = max(stage, refinement)
	}
	return need + stage, nil
}

// openNetwork checks that the model, if there is one, suits the images, and opens it on its device.
func (r *registration) openNetwork() error {
	if r.model == nil {
		return nil
	}
	if err := r.checkModel(); err != nil {
		return err
	}
	began := time.Now()
	runner, note, err := r.engine.sessions.Get(r.model, r.opt.Device, r.opt.Threads)
	if err != nil {
		return err
	}
	if note != "" {
		r.warn(note)
	}
	r.runner = runner
	r.metrics.Model, r.metrics.Device = r.model.Name, runner.Device()
	r.metrics.Seconds["open"] = time.Since(began).Seconds()
	return nil
}

// allFinite returns v with the least finite voxel in place of those that are NaN or infinite; v itself where there are none.
func allFinite(v *volume.Volume) *volume.Volume {
	lo, _ := v.MinMax()
	return v.Finite(lo)
}

// finite is allFinite with a warning where voxels were replaced.
func (r *registration) finite(name string, v *volume.Volume) *volume.Volume {
	clean := allFinite(v)
	if clean != v {
		r.warn("The " + name + " volume has voxels that are NaN or infinite, or nearly (beyond 1e37); they were taken for its minimum.")
	}
	return clean
}

// finiteMask replaces NaN and infinite voxels of a mask by 0.
func (r *registration) finiteMask(name string, mask *volume.Volume) *volume.Volume {
	if mask == nil {
		return nil
	}
	clean := mask.Finite(0)
	if clean != mask {
		r.warn("The " + name + " mask has voxels that are NaN or infinite; they select nothing.")
	}
	return clean
}

// selected is the part of the mask's grid around all that it selects; it selects something. Measured there, a thin mask of a large
// image does not fall between the voxels of the measuring grid.
func selected(mask *volume.Volume) volume.Geometry {
	g := mask.Geometry
	lo, hi := g.Size, [3]int{}
	for i, v := range mask.Data {
		if v != 0 {
			for a, k := range mask.Index(i) {
				lo[a], hi[a] = min(lo[a], k), max(hi[a], k+1)
			}
		}
	}
	g.Origin = g.IndexToPhysical().Apply([3]float64{float64(lo[0]), float64(lo[1]), float64(lo[2])})
	for a := range 3 {
		g.Size[a] = hi[a] - lo[a]
	}
	return g
}
