package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/bias"
	"github.com/morphseek/morphseek/engine/internal/memory"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/internal/search"
	"github.com/morphseek/morphseek/engine/volume"
)

// newProblem makes a problem of a pair that was checked; opt has its threads resolved. What could be missing is opened,
// and the memory asked for: what fails, fails before the work.
func newProblem(e *env, pair Pair, opt Options, model *network.Model) (*problem, error) {
	p := &problem{request: pair, opt: opt}
	flat, planes, err := pair.flattened()
	if err != nil {
		return nil, err
	}
	if planes != nil && model != nil {
		return nil, fault.New(fault.InvalidArgument, "the network %s is for volumes, and the images are slices; leave model at none", model.Name)
	}
	p.planes, p.rigid, p.fixed, p.moving = planes, flat.Rigid, flat.Fixed, flat.Moving
	p.initial, p.deform = startOf(e.notes, flat, opt.Threads)
	if model != nil {
		p.net = &net{Model: model}
	}
	p.facts = plan.Facts{
		Voxels: room(p.fixed.Geometry), Slices: p.isFlat(), Network: model != nil, Channels: len(pair.Channels) > 0,
	}
	if err := p.checkShape(); err != nil {
		return nil, err
	}
	if model != nil && opt.Uncertainty == "on" && opt.Tau == 0 {
		return nil, fault.New(fault.InvalidArgument, "with tau 0 all samples of the network's policy are the same, so there is no uncertainty to measure; leave tau at 1")
	}
	need, err := p.bytes(flat)
	if err != nil {
		return nil, err
	}
	if err := memory.Check(need, "registering these volumes"); err != nil {
		return nil, err
	}
	if e.tune {
		memory.Reserve(need)
	}
	if err := p.clean(e, flat); err != nil {
		return nil, err
	}
	p.warnOfUnusedOptions(e.notes)
	if err := p.openNetwork(e); err != nil {
		return nil, err
	}
	if err := p.fitLandmarks(e.notes, flat); err != nil {
		return nil, err
	}
	p.referee = sync.OnceValue(func() *referee.Referee { return referee.New(p.pair, opt.Threads) })
	return p, nil
}

// room returns the number of voxels of a grid. A slice counts as a cube of its side, so that the same thresholds hold for
// both.
func room(g volume.Geometry) int {
	if side := g.Side(); g.Flat() {
		return int(side * side * side)
	}
	return g.Voxels()
}

// clean makes the images without implausible voxels, and those with their axes along LPS.
func (p *problem) clean(e *env, flat Pair) error {
	var fixed, moving *volume.Volume
	parallel.Beside(p.opt.Threads,
		func(int) { fixed = flat.Fixed.Plausible(); p.fixed = fixed.Filled() },
		func(int) { moving = flat.Moving.Plausible(); p.moving = moving.Filled() })
	for _, side := range []struct {
		name  string
		image *volume.Volume
	}{{"fixed", flat.Fixed}, {"moving", flat.Moving}} {
		if slices.ContainsFunc(side.image.Data, func(x float32) bool { return !volume.IsFinite(x) }) {
			e.notes.warn(fmt.Sprintf("The %s volume has voxels that are NaN or infinite, or nearly (beyond 1e37); single ones were taken for what lies between their neighbours, larger holes left out, and others, as around a body, taken for its minimum.", side.name))
		}
	}
	if err := e.ctx.Err(); err != nil {
		return err
	}
	if p.original = p.moving; moving != flat.Moving {
		p.original = flat.Moving.Filled()
	}
	p.fixedMask = finiteMask(e.notes, "fixed", flat.FixedMask)
	movingMask := finiteMask(e.notes, "moving", flat.MovingMask)
	p.pair = aligned.Pair{
		Fixed: fixed.Canonical().Frozen(), Moving: moving.Canonical().Frozen(),
		FixedMask: p.fixedMask.Canonical(), MovingMask: movingMask.Canonical(), Rigid: p.rigid.Canonical(),
	}
	p.pair.FixedMask, p.pair.MovingMask = aligned.Known(p.pair.Fixed, p.pair.FixedMask), aligned.Known(p.pair.Moving, p.pair.MovingMask)
	if len(flat.Channels) == 0 && p.rigid == nil { // these may lie anywhere on the images' own grids
		p.crop(flat)
		p.average()
	}
	parallel.Beside(p.opt.Threads,
		func(threads int) { p.pair.Fixed = bias.Corrected(p.pair.Fixed, threads).Frozen() },
		func(threads int) { p.pair.Moving = bias.Corrected(p.pair.Moving, threads).Frozen() })
	p.facts.Voxels = room(p.pair.Fixed.Geometry)
	if p.net != nil {
		in := p.net.Intensity
		p.net.windows = [2][]float64{fixed.Percentiles(in.Low, in.High), moving.Percentiles(in.Low, in.High)}
	}
	p.addChannels(e.notes, flat)
	if p.fixed.Geometry == p.moving.Geometry && slices.Equal(p.fixed.Data, p.moving.Data) {
		e.notes.warn(sameImage)
	}
	return nil
}

// sameImage warns of one image that was given twice.
const sameImage = "The fixed and the moving image are the same, voxel for voxel: if you mean two images, one file was given twice."

// crop leaves the padding of both images out, but for what landmarks lie in.
func (p *problem) crop(flat Pair) {
	parallel.Beside(p.opt.Threads, func(int) {
		shown := p.pair.Fixed.Shown()
		for _, l := range flat.Landmarks {
			shown = shown.Union(around(p.pair.Fixed, l.Fixed))
		}
		p.pair.Fixed, p.pair.FixedMask = cropped(p.pair.Fixed, p.pair.FixedMask, shown)
	}, func(int) {
		p.pair.Moving, p.pair.MovingMask = cropped(p.pair.Moving, p.pair.MovingMask, p.pair.Moving.Shown())
	})
}

// cropped returns an image and its mask within a box; both whole where the mask selects nothing there.
func cropped(v, mask *volume.Volume, b volume.Box) (image, selected *volume.Volume) {
	part := mask.Cropped(b)
	if part != nil && !slices.ContainsFunc(part.Data, func(x float32) bool { return x != 0 }) {
		return v, mask
	}
	return v.Cropped(b), part
}

// average replaces volumes by the means over blocks of their voxels where the finest grid has less than one voxel for two
// of theirs along an axis: no stage looks closer.
func (p *problem) average() {
	if p.isFlat() {
		return
	}
	most := p.opt.plan().Voxels()
	spacing := refine.FinestSpacing(p.pair, most)
	for _, side := range []struct{ image, mask **volume.Volume }{
		{&p.pair.Fixed, &p.pair.FixedMask}, {&p.pair.Moving, &p.pair.MovingMask},
	} {
		v := *side.image
		// by its own number of voxels, too: its header may hold another unit
		finest := min(spacing, aligned.Spacing(v.Geometry)*math.Cbrt(float64(v.Voxels())/float64(most)))
		block := [3]int{1, 1, 1}
		for a := range block {
			block[a] = max(min(int(finest/v.Spacing[a]), v.Size[a]/2), 1) // a volume stays one
		}
		if block == [3]int{1, 1, 1} {
			continue
		}
		mean, _ := v.BlockMeans(block, nil, p.opt.Threads)
		*side.image = mean.Frozen()
		if *side.mask != nil {
			_, part := v.BlockMeans(block, *side.mask, p.opt.Threads)
			for i, share := range part.Data { // a block counts that has any of it: thin masks stay whole
				part.Data[i] = float32(math.Ceil(float64(share)))
			}
			*side.mask = part
		}
	}
}

// around returns the box of the voxels of v on all sides of a point, LPS mm, or those nearest to it.
func around(v *volume.Volume, point [3]float64) (b volume.Box) {
	for a, x := range v.PhysicalToIndex().Apply(point) {
		x = min(max(x, 0), float64(v.Size[a]-1))
		b.Lo[a], b.Hi[a] = int(x), int(math.Ceil(x))+1
	}
	return b
}

// bytes returns about how much memory the registration takes at its peak.
func (p *problem) bytes(flat Pair) (int64, error) {
	const float = 4
	fixed, moving := flat.Fixed, flat.Moving
	images := aligned.Pair{Fixed: fixed, Moving: moving}
	refinement := refine.Bytes(images, p.opt.plan().Voxels())
	need := float * int64(9*fixed.Voxels()+3*moving.Voxels()) // deformation and total field or its smoothed copy, two more; finite and canonical copies
	if p.deform != nil {
		need += float * 3 * int64(p.deform.Voxels())
	}
	if p.net != nil {
		grid := p.net.Grid(fixed.Geometry)
		if err := grid.Check("network grid of the fixed"); err != nil { // a header with metres for millimetres
			return 0, err
		}
		need += p.net.Bytes(grid, p.opt.Steps, p.opt.Trajectories)
		if p.opt.Uncertainty == "on" {
			const live = 12 // values a voxel: the start, a trajectory's field in and out, the mean, the squares
			need += float * live * int64(grid.Voxels())
		}
	}
	if p.rigid != nil {
		need += float * 5 * int64(fixed.Voxels()) // in their order and in that of the axes, where they lie, their rims
	}
	for _, c := range flat.Channels {
		need += float*int64(3*c.Fixed.Voxels()+3*c.Moving.Voxels()) + refinement // finite and canonical copies; what is measured of them
	}
	if p.opt.Symmetric == "on" {
		need += float * int64(21*fixed.Voxels()+9*moving.Voxels()) // both maps, their product, its root, that of the middle; copies
	}
	stage := align.Bytes(fixed.Geometry, moving.Geometry) // the most that one of the stages holds
	if st := p.start(); p.searches(st) || p.looks(st) {
		stage = max(stage, search.Bytes(images))
	}
	if st := p.start(); p.iterations(st) > 0 || p.looks(st) {
		stage = max(stage, refinement)
	}
	return need + stage, nil
}

// openNetwork checks that the model, if there is one, suits the images, and opens it on its device.
func (p *problem) openNetwork(e *env) error {
	if p.net == nil {
		return nil
	}
	if err := checkModel(e.notes, p.net.Manifest, p.fixed, p.moving); err != nil {
		return err
	}
	if behind := p.net.Initial; p.initial == nil && p.opt.Initial != behind && (behind == "none" || behind == "com") {
		e.notes.warn(fmt.Sprintf("Model %s was trained behind initial %s, and initial is %s; give initial %s.", p.net.Name, behind, p.opt.Initial, behind))
	}
	began := time.Now()
	runner, note, err := e.sessions.Get(p.net.Model, p.opt.Device, p.opt.Threads)
	if err != nil {
		return err
	}
	if note != "" {
		e.notes.warn(note)
	}
	p.net.runner = runner
	e.notes.network(p.net.Name, runner.Device())
	e.notes.took("open", began)
	return nil
}

// finiteMask replaces NaN and infinite voxels of a mask by 0, and warns of them and of what is no mask but shares.
func finiteMask(n *notes, name string, mask *volume.Volume) *volume.Volume {
	if mask == nil {
		return nil
	}
	clean := mask.Finite(0)
	if clean != mask {
		n.warn(fmt.Sprintf("The %s mask has voxels that are NaN or infinite; they select nothing.", name))
	}
	if slices.ContainsFunc(clean.Data, func(x float32) bool { return x != float32(math.Trunc(float64(x))) }) {
		n.warn(fmt.Sprintf("The %s mask has values that are not whole numbers, as probabilities have; all but 0 select. Give it 1 above a threshold and 0 below.", name))
	}
	return clean
}

// checkShape reports what cannot be asked of a deformation together.
func (p *problem) checkShape() error {
	if p.locked() == [3]bool{true, true, true} {
		return fault.New(fault.InvalidArgument, "along is %q, which is the thickness of the fixed slice: nothing could move; name an axis of its plane", p.opt.Along)
	}
	if p.rigid != nil && (p.net != nil || p.opt.Along != "all") {
		return fault.New(fault.InvalidArgument, "rigid regions are for the search and the refinement along all axes: leave model at none and along at all")
	}
	if p.opt.Symmetric == "on" && (p.net != nil || p.rigid != nil || p.opt.Along != "all") {
		return fault.New(fault.InvalidArgument, "a symmetric registration has neither a network, nor rigid regions, nor axes that it keeps to, which would hold one way alone: leave symmetric off, or model at none, along at all and rigid regions out")
	}
	if p.opt.Symmetric == "on" && len(p.request.Landmarks) > 0 {
		return fault.New(fault.InvalidArgument, "a symmetric registration keeps to no landmarks; leave symmetric off, or the landmarks out")
	}
	if p.opt.Symmetric == "on" && p.deform != nil {
		return fault.New(fault.InvalidArgument, "a symmetric registration starts from a linear transform, and this one bends; leave symmetric off, or start from its initial part")
	}
	if p.net != nil && p.opt.Along != "all" {
		return fault.New(fault.InvalidArgument, "along is %q, and a network's displacement keeps to no axis; leave model at none", p.opt.Along)
	}
	return nil
}

// warnOfUnusedOptions tells of the options that are not at their default and do nothing beside the others.
func (p *problem) warnOfUnusedOptions(n *notes) {
	o, network := p.opt, p.net != nil
	ofNetworks := slices.DeleteFunc(optionsOf("network"), func(name string) bool {
		return name == "model" || name == "device" && o.Device == "cpu" // what says that no network runs, and where everything else does
	})
	for _, c := range []struct {
		is           bool
		because, say string
		names        []string
	}{
		{p.deform != nil, "The initial deformation was given", "its affine part stays", []string{"initial"}},
		{p.deform == nil && p.initial != nil && o.Initial == "com", "The initial transform was given", "initial rigid or affine starts from it", []string{"initial"}},
		{!network, "No network ran", "name a model", ofNetworks},
		{network && o.Tau == 0, "With tau 0 every trajectory is the same", "leave tau at 1", []string{"trajectories"}},
		{network && o.Tau != 0 && o.Trajectories == 1 && o.Uncertainty == "off", "A single trajectory is not sampled", "set trajectories", []string{"tau"}},
		{len(p.request.Landmarks) == 0, "There are no landmarks", "give some", []string{"landmark_error"}},
		{!p.searches(p.start()) && !p.looks(p.start()) && p.iterations(p.start()) == 0, "Neither the search nor the refinement ran", "set refine", []string{"preset", "similarity", "smoothness", "along"}},
	} {
		if names := o.changed(c.names...); c.is && len(names) > 0 {
			n.warn(c.because + ", so " + strings.Join(names, ", ") + " had no effect: " + c.say + ".")
		}
	}
}
