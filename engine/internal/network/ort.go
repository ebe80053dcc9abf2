//go:build cgo

package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/morphseek/morphseek/engine/fault"
)

// ONNX Runtime's environment is the process's: the first engine to run a network loads it, and it stays.
var (
	loading sync.Mutex
	library string // where it was loaded from
)

// loadRuntime loads ONNX Runtime once, and reports an explicit path that is not where it was loaded from. A failure is
// not kept: the next call tries again.
func loadRuntime(explicit string) error {
	loading.Lock()
	defer loading.Unlock()
	if ort.IsInitialized() && explicit == "" {
		return nil
	}
	candidates, err := libraryCandidates(explicit)
	if err != nil {
		return err
	}
	if ort.IsInitialized() {
		if sameFile(explicit, library) {
			return nil
		}
		return fault.New(fault.InvalidArgument,
			"the ONNX Runtime library %s is asked for, but this process has loaded %s and can hold one: give that path or none, or start another process", explicit, library)
	}
	// ONNX Runtime reads this once, as it loads (with cgo, Setenv reaches C's getenv). Its own call for this comes too
	// late: by then a device id is written to disk and an event is sent.
	if err := os.Setenv("ORT_DISABLE_TELEMETRY", "1"); err != nil {
		return fault.Wrap(fault.Internal, err, "ONNX Runtime's telemetry could not be switched off")
	}
	var failures []error
	for _, path := range candidates {
		ort.SetSharedLibraryPath(path)
		err := ort.InitializeEnvironment(ort.WithLogLevelFatal()) // errors come back anyway; its log would print those of a run that was cancelled
		if err == nil {
			library = path
			return ort.DisableTelemetry()
		}
		if strings.Contains(err.Error(), "API base") {
			err = fmt.Errorf("%s is too old: version 1.24 or newer is needed", path)
		}
		failures = append(failures, err)
	}
	return fault.Wrap(fault.RuntimeMissing, errors.Join(failures...),
		"ONNX Runtime was not found or does not load; install it (pip install 'morphseek[network]'), or set %s to the path of its library", LibraryVariable)
}

// sameFile says whether two paths name one file.
func sameFile(a, b string) bool {
	one, err1 := os.Stat(a)
	other, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

// ortRunner is a Runner on ONNX Runtime.
type ortRunner struct {
	model   *Model
	device  string
	session *ort.DynamicAdvancedSession
}

// runtimeInfo returns where ONNX Runtime was loaded from, its version, and the execution providers that it was built
// with.
func runtimeInfo(explicit string) (path, version string, providers []string) {
	if loadRuntime(explicit) != nil {
		return "", "", []string{}
	}
	if a, err := connect(library); err == nil {
		providers = a.providers()
	}
	return library, ort.GetVersion(), providers
}

func openSession(explicit string, m *Model, device string, threads int) (runner Runner, note string, err error) {
	if err := loadRuntime(explicit); err != nil {
		return nil, "", err
	}
	wanted := device
	if device == auto {
		wanted = cuda
	}
	if wanted != cpu {
		r, err := newORTRunner(m, wanted, threads)
		switch {
		case err == nil:
			return r, "", nil
		case device != auto && fault.CodeOf(err) == fault.OutOfMemory:
			return nil, "", err
		case device != auto:
			return nil, "", unavailable(device, library, err)
		}
		note = fallback(library, err, gpus())
	}
	r, err := newORTRunner(m, cpu, threads)
	if err != nil {
		return nil, "", runtimeError(err, "opening", m)
	}
	return r, note, nil
}

func newORTRunner(m *Model, device string, threads int) (Runner, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	settings := []error{
		options.SetIntraOpNumThreads(threads),
		options.SetInterOpNumThreads(1),
		options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelEnableAll),
		options.SetMemPattern(false), // sizes change from pair to pair
		// The arena would keep a run's memory for the life of the session; without it the time is the same.
		options.SetCpuMemArena(false),
		// Idle threads must not spin: the engine's own loops run between the steps.
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
		// Otherwise ONNX Runtime guesses the format from the bytes, and could read another model than the one that was
		// verified.
		options.AddSessionConfigEntry("session.load_model_format", "ONNX"),
	}
	if err := errors.Join(settings...); err != nil {
		return nil, err
	}
	name, err := appendProviders(options, device)
	if err != nil {
		return nil, err
	}
	inputs, outputs := m.tensors()
	s, err := ort.NewDynamicAdvancedSessionWithONNXData(m.runnable(), inputs, outputs, options)
	if err != nil {
		return nil, err
	}
	return &ortRunner{m, name, s}, nil
}

// preload loads the CUDA libraries of the Python wheels before the first session on a GPU. What fails here is reported
// by ONNX Runtime when it loads its provider.
var preload = sync.OnceFunc(func() {
	for _, path := range cudaLibraries(library) {
		openLibrary(path)
	}
})

// appendProviders lets a session run on a device and returns what to call it. ONNX Runtime's CPU provider takes the
// operators that the others have no kernels for.
func appendProviders(options *ort.SessionOptions, device string) (name string, err error) {
	if path, ok := strings.CutPrefix(device, plugin); ok {
		a, err := connect(library)
		if err != nil {
			return "", err
		}
		best, err := a.register(path)
		if err != nil {
			return "", err
		}
		return best.provider, a.append(options, best)
	}
	if device == cpu {
		return cpu, nil
	}
	preload()
	if device == tensorrt {
		trt, err := ort.NewTensorRTProviderOptions()
		if err != nil {
			return "", err
		}
		defer trt.Destroy()
		if err := options.AppendExecutionProviderTensorRT(trt); err != nil {
			for _, path := range providerLibraries(library) { // ONNX Runtime writes the loader's error to its log alone
				if _, cause := openLibrary(path); cause != nil {
					err = cause
				}
			}
			return "", err
		}
	}
	gpu, err := ort.NewCUDAProviderOptions()
	if err != nil {
		return "", err
	}
	defer gpu.Destroy()
	// HEURISTIC picks the same algorithm every time; TF32 would cost three digits.
	if err := gpu.Update(map[string]string{"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"}); err != nil {
		return "", err
	}
	return device, options.AppendExecutionProviderCUDA(gpu)
}

func (r *ortRunner) Device() string { return r.device }

func (r *ortRunner) Close() { r.session.Destroy() }

// Run hands the step's slices to ONNX Runtime without copying them.
func (r *ortRunner) Run(ctx context.Context, s *Step) (err error) {
	d, h, w := int64(s.Size[0]), int64(s.Size[1]), int64(s.Size[2])
	c, ld, lh, lw := int64(s.Latent[0]), int64(s.Latent[1]), int64(s.Latent[2]), int64(s.Latent[3])
	t, j := int64(s.T), int64(s.J)
	if t != 1 && !r.model.Loops {
		return fault.New(fault.Internal, "network: model %s takes one step a run, not %d", r.model.Name, t)
	}

	var pinner runtime.Pinner // ONNX Runtime keeps the addresses while it runs
	defer pinner.Unpin()
	var inputs, outputs []ort.Value
	defer func() {
		for _, v := range append(inputs, outputs...) {
			v.Destroy()
		}
	}()
	type tensor struct {
		into  *[]ort.Value
		name  string
		data  []float32
		shape ort.Shape
	}
	tensors := []tensor{
		{&inputs, "fixed", s.Fixed, ort.Shape{1, 1, d, h, w}},
		{&inputs, "moving", s.Moving, ort.Shape{1, 1, d, h, w}},
		{&inputs, "u_prev", s.Previous, ort.Shape{1, 3, d, h, w}},
		{&inputs, "epsilon", s.Epsilon, ort.Shape{t * j, c, ld, lh, lw}},
		{&inputs, "tau", []float32{s.Tau}, ort.Shape{1}},
		{&outputs, "u", s.U, ort.Shape{j, 3, d, h, w}},
		{&outputs, "reward", s.Reward, ort.Shape{t * j}},
		{&outputs, "mu", s.Mu, ort.Shape{t, c, ld, lh, lw}},
		{&outputs, "log_sigma", s.LogSigma, ort.Shape{t, c, ld, lh, lw}},
	}
	if r.model.Loops {
		tensors = append(tensors, tensor{&outputs, njdOutput, s.NJD, ort.Shape{t * j}})
	}
	for _, t := range tensors {
		if int64(len(t.data)) != t.shape.FlattenedSize() || len(t.data) == 0 {
			return fault.New(fault.Internal,
				"network: %s has %d values where the shape %v needs %d", t.name, len(t.data), t.shape, t.shape.FlattenedSize())
		}
		pinner.Pin(&t.data[0])
		v, err := ort.NewTensor(t.shape, t.data)
		if err != nil {
			return runtimeError(err, "feeding", r.model)
		}
		*t.into = append(*t.into, v)
	}
	var counts []int64 // in the order of Model.tensors
	if r.model.Loops {
		counts = append(counts, t)
	}
	if r.model.counts {
		counts = append(counts, int64(s.First))
	}
	for i := range counts {
		pinner.Pin(&counts[i])
		v, err := ort.NewTensor(ort.Shape{1}, counts[i:i+1])
		if err != nil {
			return runtimeError(err, "feeding", r.model)
		}
		inputs = append(inputs, v)
	}

	options, err := ort.NewRunOptions()
	if err != nil {
		return runtimeError(err, "starting", r.model)
	}
	defer options.Destroy()
	terminated := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		options.Terminate()
		close(terminated)
	})
	err = r.session.RunWithOptions(inputs, outputs, options)
	if !stop() {
		<-terminated // options outlive their last use
	}
	if ctx.Err() != nil {
		return fault.Wrap(fault.Cancelled, ctx.Err(), "the registration was cancelled")
	}
	if err != nil {
		return runtimeError(err, "running", r.model)
	}
	return nil
}
