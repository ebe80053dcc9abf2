package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/morphseek/morphseek/engine/internal/network"
)

// env is what the stages of one registration run with.
type env struct {
	ctx      context.Context
	sessions *network.Sessions
	tune     bool // Config.TuneCollector
	report   *reporter
	notes    *notes
	total    float64 // weight of all that will run
	done     float64 // weight of what ran
}

// progress reports the fraction of the current stage that is done.
func (e *env) progress(fraction float64) { e.report.at(fraction, "") }

// run runs one part of a registration, and reports that it does.
func (e *env) run(name string, weight float64, do func() error) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	e.report.begin(name, e.done/e.total, (e.done+weight)/e.total, "%s", name)
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	e.notes.took(name, began)
	e.done += weight
	e.report.sample()
	if e.tune {
		runtime.GC() // frees the stage's few, large blocks before the next stage asks for its own
	}
	return nil
}
