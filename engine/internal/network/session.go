package network

import (
	"context"
	"strings"
	"sync"

	"github.com/morphseek/morphseek/engine/fault"
)

// Step is one run of the step graph on a grid of Size = (D, H, W) voxels along z, y, x with J trajectories and a latent
// grid of C*d*h*w values. Where the model loops, a run may take T steps, of which each but the last hands its best
// trajectory on. All slices belong to the caller, who may reuse them once Run has returned; outputs are written in
// place.
type Step struct {
	Size   [3]int
	Latent [4]int // C, d, h, w
	T, J   int
	First  int // steps taken before this run

	Fixed, Moving []float32 // [1,1,D,H,W], normalised, on the same grid
	Previous      []float32 // [1,3,D,H,W]: u_{t-1} in voxels, planes along z, y, x (field.Field.Data)
	Epsilon       []float32 // [T*J,C,d,h,w]
	Tau           float32   // 0: z = mu

	U        []float32 // [J,3,D,H,W]: u_t of the last step, composed
	Reward   []float32 // [T*J], label-free, greater is better
	NJD      []float32 // [T*J], percent of voxels where u_t folds; written where the model loops
	Mu       []float32 // [T,C,d,h,w]
	LogSigma []float32 // [T,C,d,h,w]
}

// NewStep returns a run of t steps with j trajectories whose outputs and epsilon are allocated and whose epsilon is zero.
func NewStep(m Manifest, size [3]int, t, j int) *Step {
	voxels := size[0] * size[1] * size[2]
	s := &Step{Size: size, T: t, J: j}
	s.Latent = [4]int{m.Latent.Channels, size[0] / m.Latent.Stride, size[1] / m.Latent.Stride, size[2] / m.Latent.Stride}
	n := s.Latent[0] * s.Latent[1] * s.Latent[2] * s.Latent[3]
	s.Epsilon = make([]float32, t*j*n)
	s.U = make([]float32, j*3*voxels)
	s.Reward = make([]float32, t*j)
	s.NJD = make([]float32, t*j)
	s.Mu = make([]float32, t*n)
	s.LogSigma = make([]float32, t*n)
	return s
}

// Runner runs a step graph on a device. It is safe for concurrent use.
type Runner interface {
	// Run fills the step's outputs. When ctx ends it stops within a layer or so and returns Cancelled.
	Run(ctx context.Context, s *Step) error
	// Device is where it runs: "cpu", "cuda", "tensorrt", or the name of a plugin provider.
	Device() string
	// Close releases the runner; none may be running.
	Close()
}

// Sessions holds the open runners of an engine, one for each model, device and thread count. It is safe for concurrent
// use.
type Sessions struct {
	library string // explicit path of ONNX Runtime; may be empty

	mu   sync.Mutex
	open map[sessionKey]*session
}

type sessionKey struct {
	sha256    string
	ir, opset uint64
	device    string
	threads   int
}

type session struct {
	once   sync.Once
	runner Runner
	note   string
	err    error
}

// NewSessions returns an empty set. library is the path of the ONNX Runtime library, or empty to have it looked for.
func NewSessions(library string) *Sessions {
	return &Sessions{library: library, open: map[sessionKey]*session{}}
}

// Get returns the runner of m on device ("auto", "cpu", "cuda", "tensorrt" or "plugin:PATH"), opening it the first
// time. A note says why "auto" fell back to the CPU where there is a GPU or a runtime for one; else it is empty.
// Errors: RuntimeMissing, RuntimeFailed, DeviceUnavailable, OutOfMemory; InvalidArgument where the process has loaded
// ONNX Runtime from elsewhere than asked for.
func (s *Sessions) Get(m *Model, device string, threads int) (runner Runner, note string, err error) {
	key := sessionKey{m.SHA256, m.ir, m.opset, device, threads}
	s.mu.Lock()
	entry := s.open[key]
	if entry == nil {
		entry = &session{}
		s.open[key] = entry
	}
	s.mu.Unlock()
	entry.once.Do(func() { entry.runner, entry.note, entry.err = openSession(s.library, m, device, threads) })
	if entry.err != nil { // the next call tries again: a library may have been installed, memory freed
		s.mu.Lock()
		if s.open[key] == entry {
			delete(s.open, key)
		}
		s.mu.Unlock()
	}
	return entry.runner, entry.note, entry.err
}

// Close releases every runner; none may be running.
func (s *Sessions) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, entry := range s.open {
		if entry.runner != nil {
			entry.runner.Close()
		}
	}
	clear(s.open)
}

// runtimeError gives an ONNX Runtime error its code and says what to do.
func runtimeError(err error, doing string, m *Model) error {
	text := strings.ToLower(err.Error())
	for _, sign := range []string{"failed to allocate", "bad_alloc", "out of memory", "alloc_failed", "available memory of"} {
		if strings.Contains(text, sign) {
			return fault.Wrap(fault.OutOfMemory, err,
				"too little memory while %s model %s; use a smaller image, fewer trajectories, or device cpu", doing, m.Name)
		}
	}
	return fault.Wrap(fault.RuntimeFailed, err, "ONNX Runtime failed while %s model %s", doing, m.Name)
}
