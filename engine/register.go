package engine

import (
	"context"
	"time"

	"github.com/morphseek/morphseek/engine/internal/memory"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// register is Register on the working goroutine.
func (e *Engine) register(ctx context.Context, pair Pair, opt Options, report *reporter) (*Result, error) {
	began := time.Now()
	if err := opt.Check(); err != nil {
		return nil, err
	}
	report.begin("align", 0, 0, "looking at the volumes") // the check of large ones takes seconds, in which a caller may cancel
	if err := pair.check(opt); err != nil {
		return nil, err
	}
	if e.cfg.TuneCollector {
		const live = 80 // bytes a voxel, about
		defer memory.Tighten(live * int64(pair.Fixed.Voxels()+pair.Moving.Voxels()))()
	}
	opt.Threads = parallel.Threads(opt.Threads)
	model, err := loadModel(opt.Model, e.cfg.ModelDir)
	if err != nil {
		return nil, err
	}
	run := &env{ctx: ctx, sessions: e.sessions, tune: e.cfg.TuneCollector, report: report, notes: newNotes(opt)}
	run.notes.metrics.Version = Version
	return cached(run, Version, pair, opt, model, func() (*Result, error) {
		result, err := run.register(pair, opt, model)
		if err == nil {
			result.Metrics.Seconds["total"] = time.Since(began).Seconds()
		}
		return result, err
	})
}

// register computes a registration.
func (e *env) register(pair Pair, opt Options, model *network.Model) (*Result, error) {
	p, err := newProblem(e, pair, opt, model)
	if err != nil {
		return nil, err
	}
	e.total = p.weight() + finishWeight
	solve := p.solve
	if opt.Symmetric == "on" {
		e.total += reverseWeight
		solve = p.bothWays
	}
	if opt.Uncertainty == "on" {
		e.total += uncertaintyWeight
	}
	st, err := solve(e)
	if err != nil {
		return nil, err
	}
	result := &Result{}
	if opt.Uncertainty == "on" {
		err = e.run("uncertainty", uncertaintyWeight, func() (err error) {
			result.Uncertainty, err = p.uncertainty(e, st)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err = e.run("finish", finishWeight, func() error {
		last := st
		st = state{} // finish frees its deformation on the way
		return p.finish(e, last, result)
	})
	if err != nil {
		return nil, err
	}
	e.report.begin("finish", 1, 1, "done")
	e.notes.metrics.PeakBytes = e.report.peakBytes()
	result.Metrics = e.notes.metrics
	if p.planes != nil {
		p.planes.layBack(result)
	}
	return result, nil
}
