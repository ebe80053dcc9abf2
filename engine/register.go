package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/morphseek/morphseek/engine/align"
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/metric"
	"github.com/morphseek/morphseek/engine/network"
	"github.com/morphseek/morphseek/engine/policy"
	"github.com/morphseek/morphseek/engine/refine"
	"github.com/morphseek/morphseek/engine/search"
	"github.com/morphseek/morphseek/engine/volume"
)

// registration is one Register under way. The stages hand each other initial and deform.
type registration struct {
	engine *Engine
	ctx    context.Context
	pair   Pair    // from prepare on, its images without voxels far beyond the others: what is compared
	opt    Options // threads resolved
	report *reporter

	fixed, moving *volume.Volume // the pair's, every voxel finite
	original      *volume.Volume // the caller's moving image, every voxel finite: what is resampled
	seen          search.Pair    // pair as all but networks see it: the axes' order of a file has no say in where rounding leads
	model         *network.Model // nil: none
	runner        network.Runner

	initial volume.Affine // fixed -> moving LPS mm, from align on
	deform  *field.Field  // the displacement behind initial, on the grid of the stage that made it; nil is the identity
	result  *Result       // from finish

	refinement *refine.Refinement // under way, from the look at the pair on
	agreement  refine.Agreement   // of the images, at its coarse resolutions
	differs    bool               // the images passed as one modality and are of two contrasts

	referee *referee.Referee // from judges
	start   referee.State    // of the initial transform, once the referee looked at it

	networkInput *networkInput  // from network on, where the uncertainty is asked for
	sd           *volume.Volume // of the displacement, mm, on the fixed grid; nil unless asked for
	metrics      Metrics
}

// stage is one part of a registration. weight is its usual share of the time, for the progress.
type stage struct {
	name   string
	on     bool
	weight float64
	run    func() error
}

func (r *registration) stages() []stage {
	return []stage{
		{"align", true, 4, r.align},
		{"search", r.searches(), 6, r.search},
		{"network", r.model != nil, 4, r.network},
		{"refine", r.iterations() > 0, 12, r.refine},
		{"uncertainty", r.opt.Uncertainty == "on", 4, r.uncertainty},
		{"finish", true, 1, r.finish},
	}
}

// register is Register on the working goroutine.
func (e *Engine) register(ctx context.Context, pair Pair, opt Options, report *reporter) (*Result, error) {
	start := time.Now()
	if err := opt.Check(); err != nil {
		return nil, err
	}
	report.begin("align", 0, 0, "looking at the volumes") // large ones take seconds to be checked, in which a caller may think better of it
	if err := pair.check(); err != nil {
		return nil, err
	}
	opt.Threads = parallel.Threads(opt.Threads)
	model, err := e.model(opt.Model)
	if err != nil {
		return nil, err
	}
	var cached string
	if opt.Cache != "" {
		cached = cachePath(pair, opt, model)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if result := fromCache(cached, pair, opt); result != nil {
			report.begin("finish", 1, 1, "the same registration was done before: its result is taken from %s", cached)
			return result, nil
		}
	}

	r := &registration{engine: e, ctx: ctx, pair: pair, opt: opt, report: report, model: model}
	r.metrics = Metrics{
		Version: Version, Model: "none", Device: "cpu", Seed: opt.Seed, Threads: opt.Threads,
		Steps: []StepMetrics{}, Seconds: map[string]float64{}, Warnings: []string{}, Plan: PlanMetrics{Reasons: []string{}},
	}
	if err := r.prepare(); err != nil {
		return nil, err
	}
	stages := r.stages()
	total, before := 0.0, 0.0
	for _, s := range stages {
		if s.on {
			total += s.weight
		}
	}
	for _, s := range stages {
		if !s.on {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		report.begin(s.name, before/total, (before+s.weight)/total, "%s", s.name)
		began := time.Now()
		if err := s.run(); err != nil {
			return nil, err
		}
		r.metrics.Seconds[s.name] = time.Since(began).Seconds()
		before += s.weight
		report.sample()
		if e.cfg.TuneCollector {
			runtime.GC() // few, large blocks: hand back the stage's before the next one asks for its own
		}
	}
	report.begin("finish", 1, 1, "done")
	r.metrics.Seconds["total"] = time.Since(start).Seconds()
	r.metrics.PeakBytes = report.peakBytes()
	r.result.Metrics = r.metrics
	if cached != "" {
		if err := keep(r.result, cached, cacheLimit); err != nil { // the result is worth more than its copy
			r.result.Metrics.Warnings = append(r.result.Metrics.Warnings, "The result was not kept for the next time: "+err.Error())
		}
	}
	return r.result, nil
}

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

// checkUnits reports fields of view that no two images of one body have: headers in metres and millimetres. Their working grids would
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

// model resolves the model option; nil is none. Until a network that does not depend on the contrast is built in, "default" is none:
// a network is only as good as its match with the images, and only the user knows that a built-in one was trained on such.
func (e *Engine) model(name string) (*network.Model, error) {
	if name == "none" || name == "default" {
		return nil, nil
	}
	return network.Load(name, e.cfg.ModelDir)
}

// prepare opens what could be missing, asks for the memory, and replaces voxels that are not finite: what fails, fails before the
// work.
func (r *registration) prepare() error {
	if r.model != nil && r.opt.Uncertainty == "on" && r.opt.Tau == 0 {
		return fault.New(fault.InvalidArgument, "with tau 0 all samples of the network's policy are the same, so there is no uncertainty to measure; leave tau at 1")
	}
	fixed, moving := r.pair.Fixed, r.pair.Moving
	const floats = 4
	need := floats * int64(9*fixed.Voxels()+3*moving.Voxels()) // deformation and total field or its smoothed copy, two more; finite and canonical copies
	if r.model != nil {
		grid := r.model.Grid(fixed.Geometry)
		if err := grid.Check("network grid of the fixed"); err != nil { // a header with metres for millimetres
			return err
		}
		n := int64(grid.Voxels())
		need += floats * (2 + 3 + 3*int64(r.opt.Trajectories)) * n
		steps := int64(1) // in one run of the graph
		if r.model.Loops {
			steps = int64(cmp.Or(r.opt.Steps, r.model.Steps))
		}
		need += floats * steps * (int64(r.opt.Trajectories) + 2) * int64(r.model.LatentSize(grid)) // noise, mu, log sigma
		if r.opt.Uncertainty == "on" {
			const live = 12 // values a voxel: the start, a trajectory's field in and out, the mean, the squares
			need += floats * live * n
		}
	}
	stage := align.Bytes(fixed.Geometry, moving.Geometry) // the most that one of the stages holds
	if r.searches() {
		stage = max(stage, search.Bytes(search.Pair{Fixed: fixed, Moving: moving}))
	}
	if r.iterations() > 0 {
		const live = 24 // values a voxel that the refinement holds: images, window moments, fields
		stage = max(stage, floats*live*int64(refine.Voxels(search.Pair{Fixed: fixed, Moving: moving}, effort[r.opt.Preset].voxels)))
	}
	need += stage
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
	r.seen = search.Pair{
		Fixed: r.pair.Fixed.Canonical(), Moving: r.pair.Moving.Canonical(),
		FixedMask: r.pair.FixedMask.Canonical(), MovingMask: r.pair.MovingMask.Canonical(),
	}
	r.warnOfIdle()
	if r.model == nil {
		return nil
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

// warnOfIdle tells of the options that are not at their default and do nothing beside the others.
func (r *registration) warnOfIdle() {
	o, network := r.opt, r.model != nil
	ofNetworks := []string{"steps", "trajectories", "tau", "device"}
	if o.Device == "cpu" { // where everything runs then
		ofNetworks = ofNetworks[:3]
	}
	for _, c := range []struct {
		is           bool
		because, say string
		names        []string
	}{
		{r.pair.Initial != nil && o.Initial == "com", "The initial transform was given", "initial rigid or affine starts from it", []string{"initial"}},
		{!network, "No network ran", "name a model", ofNetworks},
		{network && o.Tau == 0, "With tau 0 every trajectory is the same", "leave tau at 1", []string{"trajectories"}},
		{network && o.Tau != 0 && o.Trajectories == 1 && o.Uncertainty == "off", "A single trajectory is not sampled", "set trajectories", []string{"tau"}},
		{!r.searches() && r.iterations() == 0, "Neither the search nor the refinement ran", "set refine", []string{"preset", "similarity", "smoothness"}},
	} {
		if names := o.changed(c.names...); c.is && len(names) > 0 {
			r.warn(c.because + ", so " + strings.Join(names, ", ") + " had no effect: " + c.say + ".")
		}
	}
}

func (r *registration) warn(text string) {
	r.metrics.Warnings = append(r.metrics.Warnings, text)
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

// align finds the initial transform, or measures the caller's.
func (r *registration) align() error {
	a, err := align.Align(r.ctx, allFinite(r.seen.Fixed), allFinite(r.seen.Moving), align.Options{
		Method:    align.Method(r.opt.Initial),
		FixedMask: r.seen.FixedMask, MovingMask: r.seen.MovingMask,
		Initial: r.pair.Initial, Threads: r.opt.Threads, Seed: r.opt.Seed,
		Progress: func(fraction float64) { r.report.at(fraction, "") },
	})
	if err != nil {
		return err
	}
	method := r.opt.Initial
	if method == "com" && r.pair.Initial != nil {
		method = "none" // the caller's stays
	}
	r.metrics.Plan.Start = method
	if method == "rigid" || method == "affine" {
		if a, err = r.judgeStart(a); err != nil {
			return err
		}
	}
	r.initial, r.seen.Initial = a.Transform, a.Transform
	r.metrics.Align = AlignMetrics{
		Method: method, Score: a.Score, Confidence: a.Confidence, Overlap: a.Overlap, SameModality: a.SameModality,
		Matrix: a.Transform.M, Translation: a.Transform.T,
	}
	if a.Overlap < 0.3 {
		r.warn(fmt.Sprintf("The fields of view overlap by only %.0f %% of the smaller one: check that the images show the same part of the body.", 100*a.Overlap))
	}
	if r.opt.Initial == "rigid" || r.opt.Initial == "affine" {
		if a.Confidence < 0.1 {
			r.warn("The initial alignment is not sure of itself (another position fits nearly as well): look at the result, or give an initial transform.")
		}
	}
	return nil
}

// searches says whether the discrete search runs.
func (r *registration) searches() bool {
	return r.opt.Search == "on" || r.opt.Search == "auto" && r.model == nil
}

// search looks for large displacements; where it is left to the library, only if there may be any.
func (r *registration) search() error {
	share, why := 1.0, ""
	if r.opt.Search == "auto" {
		if err := r.look(nil); err != nil {
			return err
		}
		share, why = searchFor(r.refinedBy(), r.metrics.Align, r.agreement)
		r.because(why)
	}
	if share == 0 {
		r.report.at(1, "%s", why)
		return nil
	}
	by := r.given()
	if by == nil {
		apart, _ := regularisation(r.refinedBy(), r.pair.Fixed.Voxels(), refine.Agreement{})
		by = &apart
	}
	passes, trees := r.passes()
	u, err := search.Run(r.ctx, r.seen, search.Options{
		Passes: passes, Trees: trees, Intensities: r.refinedBy() != refine.MIND, Stiffness: searchStiffness(r.refinedBy(), r.pair.Fixed.Voxels(), *by), Threads: r.opt.Threads,
		Progress: func(fraction float64) { r.report.at(fraction, "") },
	})
	if err != nil {
		return err
	}
	if share < 1 { // what does not fold does not in part
		for i := range u.Data {
			u.Data[i] *= float32(share)
		}
	}
	r.deform, r.refinement = u, nil
	r.metrics.Plan.Search = share
	return nil
}

// look fits the pair smoothly at the coarse resolutions and notes how well the images agree then: what the search and the smoothness are
// chosen by. The refinement goes on from there where there is no search. What is asked for, or else by, is what the coarse resolutions have
// instead; by is nil where it is not known yet.
func (r *registration) look(by *refine.Regularisation) error {
	for {
		coarse, brief := smooth, true
		if r.refinedBy() == refine.MIND {
			coarse = acrossContrasts(r.pair.Fixed.Voxels())
		}
		if given := r.given(); given != nil {
			coarse, brief = *given, false
		} else if by != nil {
			coarse, brief = *by, false
		}
		if r.refinement == nil {
			r.refinement = refine.New(r.seen, r.deform, r.refineOptions())
		}
		a, err := r.refinement.Coarse(r.ctx, coarse, brief)
		if err != nil {
			return err
		}
		if r.refinedBy() == refine.NCC && a.Correlation < oneBody {
			a.Fine = r.refinement.AgreementAtFinest()
		}
		r.agreement = a
		if r.opt.Similarity != "auto" || r.model != nil || r.refinedBy() != refine.NCC || !contrastDiffers(r.metrics.Align, a) {
			return nil
		}
		r.differs, r.refinement, by = true, nil, nil
		r.because("the contrast of one image over the other changes from place to place: descriptors are compared, not intensities")
	}
}

// because notes a reason of the plan.
func (r *registration) because(why string) {
	r.metrics.Plan.Reasons = append(r.metrics.Plan.Reasons, why)
}

// given is the regularisation that the option smoothness asks for; nil leaves it to the library.
func (r *registration) given() *refine.Regularisation {
	var by refine.Regularisation
	switch word, mm := r.opt.smoothness(); {
	case word == "auto" && r.model != nil: // it has moved two people's detail already
		by = rough(r.refinedBy(), r.pair.Fixed.Voxels())
	case word == "auto":
		return nil
	case word != "":
		by = byWord(word, r.refinedBy(), r.pair.Fixed.Voxels())
	default:
		by = byLength(mm, refine.New(r.seen, nil, refine.Options{Similarity: r.refinedBy(), Voxels: effort[r.opt.Preset].voxels}).Spacing(), slices.Min(r.pair.Fixed.Size[:]))
	}
	return &by
}

// refineOptions are those of the refinement.
func (r *registration) refineOptions() refine.Options {
	iterations := r.iterations()
	if iterations == 0 { // for the search's sake
		iterations = effort[r.opt.Preset].iterations
	}
	return refine.Options{
		Similarity: r.refinedBy(), Iterations: iterations, Voxels: effort[r.opt.Preset].voxels, Threads: r.opt.Threads,
		Progress: func(fraction float64) { r.report.at(fraction, "") },
	}
}

// passes is how often the search goes over its levels, and over how many trees. In a crop, where few levels run, a second time finds 0.1
// points of Dice in forty pairs of hippocampi and none in sixty others, for a tenth of the time, and four trees find none.
func (r *registration) passes() (passes, trees int) {
	if r.pair.Fixed.Voxels() < crop {
		return 1, 1
	}
	e := effort[r.opt.Preset]
	return e.passes, e.trees
}

// effort is what a preset spends on the search and on the refinement.
var effort = map[string]struct{ passes, trees, iterations, voxels int }{
	"fast":    {1, 1, 30, 1 << 20},
	"default": {2, 4, 30, 6 << 20},
	"best":    {2, 4, 80, 16 << 20},
}

// iterations resolves the refine option. After a network only an explicit number refines: the label-free similarities are
// less than what a network trained with labels knows. On a small volume iterations are cheap, and twice as many gain a little
// (forty pairs of hippocampi: 0.2 points of Dice; heads and trunks: nothing).
func (r *registration) iterations() int {
	switch {
	case r.opt.Refine >= 0:
		return r.opt.Refine
	case r.model != nil:
		return 0
	case r.pair.Fixed.Voxels() < crop:
		return 2 * effort[r.opt.Preset].iterations
	}
	return effort[r.opt.Preset].iterations
}

// refinedBy resolves the similarity option.
func (r *registration) refinedBy() refine.Similarity {
	switch {
	case r.opt.Similarity != "auto":
		return refine.Similarity(r.opt.Similarity)
	case r.metrics.Align.SameModality && r.metrics.Align.Score >= leastScore && !r.differs:
		return refine.NCC
	}
	return refine.MIND
}

// refine improves on the stages before by gradient steps on the pair.
func (r *registration) refine() error {
	var by *refine.Regularisation // of two people, where the search says so
	if r.refinement == nil {
		if r.given() == nil && r.deform != nil && r.refinedBy() == refine.NCC {
			r.refinement = refine.New(r.seen, r.deform, r.refineOptions())
			if r.agreement = r.refinement.Agreement(r.deform); r.agreement.Correlation < stillApart {
				low := rough(refine.NCC, r.pair.Fixed.Voxels())
				by = &low
			}
		}
		if err := r.look(by); err != nil {
			return err
		}
	}
	similarity := r.refinedBy()
	switch given := r.given(); {
	case given != nil:
		by = given
	case by != nil && similarity == refine.NCC:
		r.because("the images agree little after the search: fine detail is followed, as between two people")
	default:
		chosen, why := regularisation(similarity, r.pair.Fixed.Voxels(), r.agreement)
		r.because(why)
		by = &chosen
	}
	u, levels, err := r.refinement.Fine(r.ctx, *by)
	if err != nil {
		return err
	}
	r.deform = u
	r.metrics.Refine = RefineMetrics{Similarity: string(similarity), Levels: levels}
	r.metrics.Plan.Similarity, r.metrics.Plan.SmoothnessMM = string(similarity), by.Fluid*r.refinement.Spacing()
	r.refinement = nil
	r.judgeDeformation()
	return nil
}

// network runs the step graph T times on the network grid, each time keeping the best trajectory.
func (r *registration) network() error {
	m, threads := r.model.Manifest, r.opt.Threads
	grid := m.Grid(r.fixed.Geometry)
	fixed := r.input(r.fixed, r.pair.Fixed, grid, volume.IdentityAffine())
	moving := r.input(r.moving, r.pair.Moving, grid, r.initial)
	u := r.deformOn(grid)
	n := len(u.Data)

	trajectories, tau := r.opt.Trajectories, r.opt.Tau
	if trajectories == 1 {
		tau = 0
	}
	steps := r.opt.Steps
	if steps == 0 {
		steps = m.Steps
	}
	run := 1 // steps: on the CPU nothing is copied, and the user hears of each
	if r.model.Loops && r.runner.Device() != "cpu" {
		run = steps
	}
	s := network.NewSteps(m, [3]int{grid.Size[2], grid.Size[1], grid.Size[0]}, run, trajectories)
	s.Fixed, s.Moving, s.Previous, s.Tau = fixed.Data, moving.Data, u.Data, float32(tau)
	if r.opt.Uncertainty == "on" {
		r.networkInput = &networkInput{fixed.Data, moving.Data, field.Over(grid, slices.Clone(u.Data)), steps}
	}
	latent := len(s.LogSigma) / run
	for t := 0; t < steps; t += run {
		r.report.at(float64(t)/float64(steps), "network %s on %s, step %d of %d", m.Name, r.runner.Device(), t+run, steps)
		began := time.Now()
		s.First = t
		for k := range run {
			policy.Sample(s.Epsilon[k*trajectories*latent:(k+1)*trajectories*latent], trajectories, r.opt.Seed, t+k)
		}
		if err := r.step(s); err != nil {
			return err
		}
		best := 0
		for k := range run {
			first := k * trajectories
			rewards := s.Reward[first : first+trajectories]
			if best = policy.Best(rewards); best < 0 {
				return fault.New(fault.RuntimeFailed, "model %s gives no usable reward in step %d; it does not fit these images or is damaged", m.Name, t+k+1)
			}
			step := StepMetrics{Reward: float64(rewards[best]), Trajectory: best, NJDPercent: float64(s.NJD[first+best])}
			if trajectories > 1 {
				group := make([]float64, trajectories)
				for j, x := range rewards {
					group[j] = float64(x)
				}
				step.Advantage = policy.Advantages(group)[best]
				if tau > 0 {
					epsilon := s.Epsilon[(first+best)*latent : (first+best+1)*latent]
					step.LogLikelihood = policy.LogLikelihood(epsilon, s.LogSigma[k*latent:(k+1)*latent], tau, policy.SqrtN)
				}
			}
			r.metrics.Steps = append(r.metrics.Steps, step)
		}
		copy(u.Data, s.U[best*n:(best+1)*n])
		stats := u.Stats(threads)
		if math.IsNaN(stats.DisplacementMaxMM) || math.IsInf(stats.DisplacementMaxMM, 0) {
			return fault.New(fault.RuntimeFailed, "model %s gives a displacement that is not finite in step %d; it does not fit these images or is damaged", m.Name, t+run)
		}
		done := r.metrics.Steps[t:]
		done[run-1].NJDPercent = stats.NJDPercent
		for k := range done {
			done[k].Seconds = time.Since(began).Seconds() / float64(run)
		}
	}
	r.deform = u
	return nil
}

// step runs the step graph. Where device auto chose a GPU and it fails (its memory is small, say), the CPU takes over.
func (r *registration) step(s *network.Step) error {
	err := r.runner.Run(r.ctx, s)
	if err == nil || r.opt.Device != "auto" || r.runner.Device() == "cpu" || fault.CodeOf(err) == fault.Cancelled {
		return err
	}
	runner, _, failed := r.engine.sessions.Get(r.model, "cpu", r.opt.Threads)
	if failed != nil {
		return failed
	}
	r.warn("The GPU failed, so the network ran on the CPU: " + err.Error())
	r.runner, r.metrics.Device = runner, runner.Device()
	return r.runner.Run(r.ctx, s)
}

// input returns v on the network grid, read through the map a and normalised as the model wants it, by the finite voxels of the
// original.
func (r *registration) input(v, original *volume.Volume, grid volume.Geometry, a volume.Affine) *volume.Volume {
	in := r.model.Intensity
	// The background is put in before normalisation: as the intensity that becomes it.
	p := original.Percentiles(in.Low, in.High)
	background := p[0] + float64((in.Background-in.Out[0])/(in.Out[1]-in.Out[0])*(p[1]-p[0]))
	out := v.ResampleClosed(grid, a, float32(background), r.opt.Threads)
	in.Normalise(out, p[0], p[1])
	return out
}

// deformOn returns the deformation so far on grid g.
func (r *registration) deformOn(g volume.Geometry) *field.Field {
	if r.deform == nil {
		return field.New(g)
	}
	return r.deform.Resample(g, r.opt.Threads)
}

// finish makes the total transform, resamples the moving image by it, once and from the original, and measures both.
func (r *registration) finish() error {
	fixed, moving, threads := r.fixed, r.moving, r.opt.Threads
	const rounding = 1e-4 // of the similarity: one map, sampled in two ways
	deformed := r.deform != nil
	total := r.total()
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
	before, when := m.SimilarityBefore, "before"
	if deformed && m.SimilarityAlign > before {
		before, when = m.SimilarityAlign, "after the initial alignment"
	}
	if m.SimilarityAfter < before-rounding {
		r.warn(fmt.Sprintf("The images match less well after the registration (similarity %.3f) than %s (%.3f): look at the result, and try another model or initial alignment.",
			m.SimilarityAfter, when, before))
	}
	if !m.Align.SameModality && m.SimilarityAfter < unrelated {
		r.warn(fmt.Sprintf("The images have next to nothing in common where they were laid (normalized mutual information %.3f; pairs that match have 1.05 and more): check that both show the same part of the body, and look at the result.",
			m.SimilarityAfter))
	}
	if m.NJDPercent > 0.5 {
		r.warn("The deformation folds over itself in more than 0.5 % of the volume: distances and volumes measured there are not reliable.")
	}
	r.result = &Result{Field: total, Initial: r.initial, Warped: warped, Moving: moving.Geometry, Uncertainty: r.sd}
	return nil
}

// unrelated is a normalized mutual information that no registration of two images of one body falls below. After default registrations
// pairs of noise, of other organs and of mirrored ones had 1.003 to 1.019, MR and CT trunks 1.058 to 1.148.
const unrelated = 1.025

// leastJ is the least Jacobian determinant of the deformation on the fixed grid. It bars folds, not compression: networks shrink
// tissue to hundredths where the other image has none, and opening that takes their result apart (at 0.01 the mean Dice of 40
// hippocampi fell by 0.3 points).
const leastJ = 0.001

// total returns the initial transform and the deformation as one field on the fixed grid. A deformation without folding on its
// own grid may fold between that grid's points, which a finer or anisotropic fixed grid brings to light: it is opened there.
func (r *registration) total() *field.Field {
	deform := r.deform
	r.deform = nil
	if deform != nil {
		deform = deform.Resample(r.fixed.Geometry, r.opt.Threads)
		deform.Unfold(leastJ, r.opt.Threads)
	}
	return field.Total(r.initial, deform, r.fixed.Geometry, r.opt.Threads)
}

// measuringGrid returns every k-th voxel of g along each axis, k as small as leaves no more than about a million voxels: similarity
// is a mean over the image, and costs more than the warp.
func measuringGrid(g volume.Geometry) volume.Geometry {
	const most = 1 << 20
	k := int(math.Ceil(math.Cbrt(float64(g.Voxels()) / most)))
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

// selected is the part of the mask's grid around all that it selects, which is not nothing. Measured there, a thin mask of a large
// image does not fall between the voxels of the measuring grid.
func selected(mask *volume.Volume) volume.Geometry {
	g := mask.Geometry
	lo, hi := g.Size, [3]int{}
	for i, v := range mask.Data {
		if v != 0 {
			for a, k := range [3]int{i % g.Size[0], i / g.Size[0] % g.Size[1], i / (g.Size[0] * g.Size[1])} {
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
