package gopy

import (
	"context"
	"sync/atomic"

	"github.com/morphseek/morphseek/bridge/internal/wire"
	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

// The process has one engine, because ONNX Runtime's environment is the process's too.
var shared atomic.Pointer[engine.Engine]

// Open makes the process's engine; a later call replaces it. Both arguments may be empty (see engine.Config).
func Open(runtimeLibrary, modelDir string) (err error) {
	defer guard(&err)
	e, err := engine.Open(engine.Config{RuntimeLibrary: runtimeLibrary, ModelDir: modelDir, TuneCollector: true})
	if err != nil {
		return err
	}
	if old := shared.Swap(e); old != nil {
		return old.Close()
	}
	return nil
}

// current returns the process's engine.
func current() (*engine.Engine, error) {
	if e := shared.Load(); e != nil {
		return e, nil
	}
	return nil, fault.New(fault.InvalidHandle, "the engine is not open")
}

// Version returns the library's version.
func Version() string { return engine.Version }

// OptionTable returns engine.OptionSpecs as JSON.
func OptionTable() (table string, err error) {
	defer guard(&err)
	return text(engine.OptionSpecs())
}

// FaultTable returns fault.Table as JSON.
func FaultTable() (table string, err error) {
	defer guard(&err)
	return text(fault.Table)
}

// CheckOptions reads the JSON object of options as Register does, and returns every option as the engine takes it, as JSON.
func CheckOptions(options string) (read string, err error) {
	defer guard(&err)
	opt, err := engine.ParseOptions(options)
	if err != nil {
		return "", err
	}
	return text(opt)
}

// Result is a finished registration, to be copied out by its methods and then dropped.
type Result struct{ r *engine.Result }

// Register runs one registration: call is what wire.Parse reads. progress is called on this goroutine, as callbacks into
// Python must be, at every change and at least every 100 ms; false cancels.
func Register(
	call string, progress func(stage string, fraction float64, message string) bool,
) (result *Result, err error) {
	defer guard(&err)
	pair, opt, err := wire.Parse(call)
	if err != nil {
		return nil, err
	}
	e, err := current()
	if err != nil {
		return nil, err
	}
	r, err := e.Register(context.Background(), pair, opt, func(p engine.Progress) bool {
		return progress(p.Stage, p.Fraction, p.Message)
	})
	if err != nil {
		return nil, err
	}
	return &Result{r}, nil
}

// Metrics returns engine.Metrics as JSON.
func (r *Result) Metrics() (metrics string, err error) {
	defer guard(&err)
	return text(r.r.Metrics)
}

// Copy fills the caller's buffers, once: the field (3 planes of float32), the warped image (float32), both on the fixed grid, and the
// initial transform (12 float64). The field and the image are the caller's from then on; the result forgets them.
func (r *Result) Copy(field, warped, initial uint64) (err error) {
	defer guard(&err)
	copy(floats(field, len(r.r.Field.Data)), r.r.Field.Data)
	copy(floats(warped, len(r.r.Warped.Data)), r.r.Warped.Data)
	*wire.Address[volume.Affine](initial) = r.r.Initial
	r.r.Field, r.r.Warped = nil, nil
	engine.TrimMemory()
	return nil
}

// AvailableMemory returns what the system and the process's limits leave, in bytes.
func AvailableMemory() int64 { return engine.AvailableMemory() }

// Uncertainty fills the caller's buffer: float32 on the fixed grid, mm. Only where the option asked for it.
func (r *Result) Uncertainty(out uint64) (err error) {
	defer guard(&err)
	copy(floats(out, len(r.r.Uncertainty.Data)), r.r.Uncertainty.Data)
	return nil
}

// query returns an answer of the process's engine, as JSON.
func query(ask func(*engine.Engine) (any, error)) (answer string, err error) {
	defer guard(&err)
	e, err := current()
	if err != nil {
		return "", err
	}
	value, err := ask(e)
	if err != nil {
		return "", err
	}
	return text(value)
}

// Models returns the list of known bundles, engine.ModelInfo, as JSON.
func Models() (list string, err error) {
	return query(func(e *engine.Engine) (any, error) { return e.ListModels() })
}

// Devices returns what there is to run networks on, network.Inventory, as JSON.
func Devices() (inventory string, err error) {
	return query(func(e *engine.Engine) (any, error) { return e.Devices() })
}

// VerifyModel checks the bundle called name, a built-in name or a path, and returns its engine.ModelInfo as JSON.
func VerifyModel(name string) (info string, err error) {
	return query(func(e *engine.Engine) (any, error) { return e.VerifyModel(name) })
}
