// Package engine is the public face of the registration core: Open an engine, Register pairs. It knows images only as
// voxels with geometry; reading files is the front ends' business.
package engine

import (
	"context"
	"sync"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/memory"
	"github.com/morphseek/morphseek/engine/internal/network"
)

// Version of the library, semantic. The build sets nothing: this line is the source for every front end. Raise it with
// every change that changes results: they are cached by it.
const Version = "0.53.0"

// Config is what an Engine keeps over many registrations.
type Config struct {
	RuntimeLibrary string // path of the ONNX Runtime library; empty: looked for (engine/internal/network says where)
	ModelDir       string // extra folder of bundles; may be empty

	// TuneCollector says that Go's garbage collector serves this engine alone, as in a library for C or Python: it collects
	// early, and while a registration runs earlier still, for less memory.
	TuneCollector bool
}

// Engine holds the runtime and its open models. It is safe for concurrent use.
type Engine struct {
	cfg      Config
	sessions *network.Sessions

	mu     sync.Mutex
	calls  int // under way
	closed bool
}

// Open makes an engine. ONNX Runtime is loaded when the first network runs, so an engine without one still aligns.
func Open(cfg Config) (*Engine, error) {
	if cfg.TuneCollector {
		memory.Lean()
	}
	return &Engine{cfg: cfg, sessions: network.NewSessions(cfg.RuntimeLibrary)}, nil
}

// Close ends the engine: later calls get InvalidHandle. Calls under way go on, and the last of them to end releases the
// models, so that a ProgressFunc may close the engine that it reports on.
func (e *Engine) Close() error {
	e.mu.Lock()
	last := !e.closed && e.calls == 0
	e.closed = true
	e.mu.Unlock()
	if last {
		e.sessions.Close()
	}
	return nil
}

// within makes a call, for as long as which the models stay, unless the engine is closed. Every method is one.
func within[T any](e *Engine, call func() (T, error)) (value T, err error) {
	defer fault.Recovered(&err)
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.calls++
	}
	e.mu.Unlock()
	if closed {
		return value, fault.New(fault.InvalidHandle, "the engine is closed")
	}
	defer func() {
		e.mu.Lock()
		e.calls--
		last := e.closed && e.calls == 0
		e.mu.Unlock()
		if last {
			e.sessions.Close()
		}
	}()
	return call()
}

// heartbeat is the longest that a ProgressFunc waits for its next call.
const heartbeat = 100 * time.Millisecond

// Register runs those stages of stages.go that the options ask for, and measures the result. The work is done on other
// goroutines; the calling one hands their progress to progress (which may be nil) and returns when they have ended, also
// after a cancellation (by ctx or by progress), with Cancelled. Every error carries a fault code; a panic becomes
// Internal. The volumes are only read.
func (e *Engine) Register(ctx context.Context, pair Pair, opt Options, progress ProgressFunc) (*Result, error) {
	return within(e, func() (*Result, error) { return e.follow(ctx, pair, opt, progress) })
}

// follow is Register on the calling goroutine.
func (e *Engine) follow(ctx context.Context, pair Pair, opt Options, progress ProgressFunc) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	var (
		report  = newReporter()
		done    = make(chan struct{})
		output  *Result
		failure error
	)
	go func() {
		defer close(done)
		defer fault.Recovered(&failure)
		output, failure = e.register(ctx, pair, opt, report)
	}()
	defer func() { // the workers have let go of the caller's volumes when this returns, whatever progress does
		cancel()
		<-done
	}()

	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-report.news:
		case <-beat.C:
			report.sample()
		}
		for _, p := range report.take() {
			if progress != nil && ctx.Err() == nil && !progress(p) {
				cancel()
			}
		}
	}
	if ctx.Err() != nil {
		return nil, fault.Wrap(fault.Cancelled, context.Cause(ctx), "the registration was cancelled")
	}
	if failure == nil {
		output.Metrics.doubt(pair.Doubts)
	}
	return output, failure
}

// TrimMemory gives memory that is no longer used back to the system at once, where it may be more than a quarter of a gigabyte.
func TrimMemory() { memory.Trim() }

// AvailableMemory returns what the system and the process's limits leave, in bytes.
func AvailableMemory() int64 { return memory.Available() }

// ModelInfo describes a model bundle to a front end.
type ModelInfo = network.Info

// Devices tries what there is to run networks on, by one small step each. It says what is missing; nothing is an error.
func (e *Engine) Devices() (network.Inventory, error) {
	return within(e, func() (network.Inventory, error) { return e.sessions.Inventory(), nil })
}

// ListModels returns the built-in bundles and those of the configured folder, verified; faulty ones say why.
func (e *Engine) ListModels() ([]ModelInfo, error) {
	return within(e, func() ([]ModelInfo, error) { return network.List(e.cfg.ModelDir), nil })
}

// VerifyModel reads the bundle called name (built in, in the configured folder, or a path) and checks it as a registration
// would. Errors: ModelNotFound, ModelCorrupt, ModelTampered, ModelVersion, ModelExternal.
func (e *Engine) VerifyModel(name string) (ModelInfo, error) {
	return within(e, func() (ModelInfo, error) {
		m, err := network.Load(name, e.cfg.ModelDir)
		if err != nil {
			return ModelInfo{}, err
		}
		return ModelInfo{Manifest: m.Manifest, Path: m.Path}, nil
	})
}
