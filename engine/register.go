package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/landmark"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/volume"
)

// registration is one Register under way. The stages hand each other initial and deform.
type registration struct {
	engine *Engine
	ctx    context.Context
	asked  Pair    // the caller's; of slices, in their planes
	planes *planes // where these lie; nil for volumes
	pair   Pair    // from prepare on, its images without voxels far beyond the others: what is compared
	opt    Options // threads resolved
	report *reporter

	fixed, moving *volume.Volume // the pair's, every voxel finite
	original      *volume.Volume // the caller's moving image, every voxel finite: what is resampled
	canonical     aligned.Pair   // the pair with axes along LPS, for all but networks: the order of a file's axes must not change the result
	model         *network.Model // nil: none
	runner        network.Runner

	initial volume.Affine // fixed -> moving LPS mm, from align on
	deform  *field.Field  // the displacement behind initial, on the grid of the stage that made it; nil is the identity
	begun   *field.Field  // the caller's deformation, without folds; nil: none
	result  *Result       // from finish

	refinement *refine.Refinement // under way, from the look at the pair on
	agreement  refine.Agreement   // of the images, at its coarse resolutions
	apart      bool               // the two ways of a symmetric registration have no middle
	differs    bool               // the images passed as one modality and are of two contrasts
	frames     bool               // they lie and match as frames of one scan

	referee *referee.Referee // from judges
	found   *volume.Affine   // the alignment found, whether or not it was taken; nil where none was asked for
	start   referee.State    // of the initial transform, once the referee looked at it
	end     referee.State    // of the deformation behind it, likewise

	landmarks []landmark.Pair       // that do not contradict the rest
	laid      *volume.Affine        // the linear transform that fits them; nil without
	roughness refine.Regularisation // of the refinement that ran

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
		{"landmarks", len(r.pair.Landmarks) > 0, 4, r.keepToLandmarks},
		{"reverse", r.opt.Symmetric == "on", 26, r.reverse},
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
	report.begin("align", 0, 0, "looking at the volumes") // the check of large ones takes seconds, in which a caller may cancel
	if err := pair.check(); err != nil {
		return nil, err
	}
	if err := pair.checkLandmarks(opt.LandmarkError); err != nil {
		return nil, err
	}
	opt.Threads = parallel.Threads(opt.Threads)
	model, err := e.model(opt.Model)
	if err != nil {
		return nil, err
	}
	var cached string
	strangers := ""
	if opt.Cache != "" {
		strangers = openToStrangers(opt.Cache)
	}
	if opt.Cache != "" && strangers == "" {
		cached = cachePath(pair, opt, model)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if result := fromCache(cached, pair, opt); result != nil {
			report.begin("finish", 1, 1, "the same registration was done before: its result is taken from %s", cached)
			return result, nil
		}
	}

	pair, at, err := pair.flattened()
	if err != nil {
		return nil, err
	}
	if at != nil && model != nil {
		return nil, fault.New(fault.InvalidArgument, "the network %s is for volumes, and the images are slices; leave model at none", model.Name)
	}
	r := newRegistration(ctx, e, pair, opt, report, model)
	r.planes = at
	if strangers != "" {
		r.metrics.Warnings = append(r.metrics.Warnings, "The cache was not used: "+strangers)
	}
	r.begin()
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if err := r.runStages(r.stages()); err != nil {
		return nil, err
	}
	report.begin("finish", 1, 1, "done")
	r.metrics.Seconds["total"] = time.Since(start).Seconds()
	r.metrics.PeakBytes = report.peakBytes()
	r.result.Metrics = r.metrics
	if at != nil {
		at.layBack(r.result)
	}
	if cached != "" {
		if err := keep(r.result, cached, cacheLimit); err != nil { // the registration succeeds without its cached copy
			r.result.Metrics.Warnings = append(r.result.Metrics.Warnings, "The result was not kept for the next time: "+err.Error())
		}
	}
	return r.result, nil
}

// newRegistration returns one that has not begun; its threads are resolved.
func newRegistration(ctx context.Context, e *Engine, pair Pair, opt Options, report *reporter, model *network.Model) *registration {
	return &registration{engine: e, ctx: ctx, asked: pair, pair: pair, opt: opt, report: report, model: model, metrics: Metrics{
		Version: Version, Model: "none", Device: "cpu", Seed: opt.Seed, Threads: opt.Threads,
		Steps: []StepMetrics{}, Seconds: map[string]float64{}, Warnings: []string{}, Plan: PlanMetrics{Reasons: []string{}},
	}}
}

// runStages runs those of the stages that are on, one after the other.
func (r *registration) runStages(stages []stage) error {
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
		if err := r.ctx.Err(); err != nil {
			return err
		}
		r.report.begin(s.name, before/total, (before+s.weight)/total, "%s", s.name)
		began := time.Now()
		if err := s.run(); err != nil {
			return err
		}
		r.metrics.Seconds[s.name] = time.Since(began).Seconds()
		before += s.weight
		r.report.sample()
		if r.engine.cfg.TuneCollector {
			runtime.GC() // frees the stage's few, large blocks before the next stage asks for its own
		}
	}
	return nil
}
