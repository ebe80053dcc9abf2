package engine

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func TestDeviceUnavailable(t *testing.T) {
	v := blob([3]int{16, 16, 16}, 0)
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	r, err := e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(func(o *Options) { o.Model, o.Device = tiny, "cuda" }), nil)
	if err == nil && r.Metrics.Device == "cuda" {
		return // there is one
	}
	testkit.Fails(t, err, fault.DeviceUnavailable)
}

// brokenGPU is a runner whose device fails.
type brokenGPU struct{ err error }

func (b brokenGPU) Run(context.Context, *network.Step) error { return b.err }
func (brokenGPU) Device() string                             { return "cuda" }
func (brokenGPU) Close()                                     {}

func TestFailingGPU(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	m := testkit.Must(network.Load(tiny, ""))(t)
	for _, c := range []struct {
		device string
		fails  fault.Code
		want   fault.Code
		on     string
	}{
		{"auto", fault.OutOfMemory, fault.OK, "cpu"},
		{"auto", fault.Cancelled, fault.Cancelled, "cuda"},
		{"cuda", fault.OutOfMemory, fault.OutOfMemory, "cuda"},
	} {
		t.Run(fmt.Sprint(c.device, ", ", c.fails), func(t *testing.T) {
			p := &problem{net: &net{Model: m, runner: brokenGPU{fault.New(c.fails, "the device failed")}}}
			p.opt.Device, p.opt.Threads = c.device, 1
			run := testEnv(e, p.opt)
			run.notes.network(m.Name, "cuda")
			s := network.NewStep(m.Manifest, [3]int{8, 8, 8}, 1, 1)
			s.Fixed, s.Moving, s.Previous = make([]float32, 512), make([]float32, 512), make([]float32, 3*512)
			err := p.step(run, s)
			if device := run.notes.metrics.Device; fault.CodeOf(err) != c.want || device != c.on {
				t.Errorf("%s, %v: %v on %s", c.device, c.fails, err, device)
			}
			if warnings := run.notes.metrics.Warnings; (c.on == "cpu") != (len(warnings) == 1) {
				t.Errorf("%s, %v: warnings %q", c.device, c.fails, warnings)
			}
		})
	}
}

// onCPU is a runner that says that it has a GPU, and counts its runs.
type onCPU struct {
	network.Runner
	runs int
}

func (o *onCPU) Device() string { return "cuda" }

func (o *onCPU) Run(ctx context.Context, s *network.Step) error {
	o.runs++
	return o.Runner.Run(ctx, s)
}

// A GPU takes all steps of a model that loops in one run; what comes out is what the CPU gets step by step.
func TestOneRunOnGPU(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	for _, file := range []string{"loop.onnx", "offset.onnx"} {
		t.Run(file, func(t *testing.T) {
			m := testkit.Must(network.Load("internal/network/testdata/"+file, ""))(t)
			runner, _, err := e.sessions.Get(m, "cpu", 1)
			testkit.OK(t, err)
			oneRunOnGPU(t, e, m, runner)
		})
	}
}

func oneRunOnGPU(t *testing.T, e *Engine, m *network.Model, runner network.Runner) {
	for _, trajectories := range []int{1, 3} {
		var fields [2]*field.Field
		var steps [2][]StepMetrics
		gpu := &onCPU{Runner: runner}
		for i, on := range []network.Runner{runner, gpu} {
			pair := Pair{Fixed: blob([3]int{20, 16, 12}, 0), Moving: blob([3]int{20, 16, 12}, 2)}
			opt := with(func(o *Options) { o.Trajectories, o.Steps, o.Seed, o.Threads = trajectories, 4, 7, 1 })
			run := testEnv(e, opt)
			p := testkit.Must(newProblem(run, pair, opt, m))(t)
			p.net.runner = on
			made := testkit.Must(p.network(run, p.at(p.start(), volume.IdentityAffine())))(t)
			fields[i], steps[i] = made.deform, run.notes.metrics.Steps
			for k := range steps[i] {
				s := &steps[i][k]
				s.Seconds, s.NJDPercent = 0, math.Round(1e4*s.NJDPercent) // a float32 in the graph
			}
		}
		if same := slices.Equal(fields[0].Data, fields[1].Data); gpu.runs != 1 || !same {
			t.Errorf("J = %d: %d runs; the fields are equal: %v", trajectories, gpu.runs, same)
		}
		if a, b := steps[0], steps[1]; len(a) != 4 || !reflect.DeepEqual(a, b) {
			t.Errorf("J = %d: steps\n%+v on a GPU, on the CPU\n%+v", trajectories, b, a)
		}
	}
}

// A model for one size runs on images of any: larger voxels hold a larger image.
func TestOneSize(t *testing.T) {
	size := [3]int{16, 24, 32} // z, y, x
	m := network.Manifest{SizeMultiple: 8, MinSize: size, Size: &size}
	for _, c := range []struct {
		size    [3]int
		spacing [3]float64
	}{
		{[3]int{20, 24, 10}, [3]float64{1, 1, 1.5}},
		{[3]int{64, 24, 20}, [3]float64{2, 1, 2.25}}, // 24 slices of 1.5 mm once 20 are a multiple of 8
	} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			v := blob(c.size, 0)
			g := m.Grid(v.Geometry)
			if g.Size != [3]int{32, 24, 16} || g.Spacing != c.spacing {
				t.Errorf("%v: grid %v of %v mm", c.size, g.Size, g.Spacing)
			}
			if volume.Distance(g.Center(), v.Center()) > 1e-9 {
				t.Errorf("%v: centre %v, the image's %v", c.size, g.Center(), v.Center())
			}
		})
	}
}

func TestTrajectories(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	p := Pair{Fixed: blob([3]int{16, 16, 16}, 0), Moving: blob([3]int{16, 16, 16}, 2)}
	many := with(func(o *Options) { o.Model, o.Trajectories, o.Steps, o.Seed = tiny, 8, 1, 3 })
	one := many
	one.Trajectories = 1
	a, again, mean := register(t, e, p, many), register(t, e, p, many), register(t, e, p, one)
	if !slices.Equal(a.Field.Data, again.Field.Data) {
		t.Error("the same seed gives another field")
	}
	if len(a.Metrics.Steps) != 1 || a.Metrics.Steps[0].Reward < mean.Metrics.Steps[0].Reward {
		t.Errorf("the best of 8, %+v, is worse than the mean, %+v", a.Metrics.Steps, mean.Metrics.Steps)
	}
	if s := a.Metrics.Steps[0]; s.Trajectory > 0 && !(s.Advantage > 0 && s.LogLikelihood < 0) {
		t.Errorf("step %+v", s)
	}
	many.Seed = 4
	if b := register(t, e, p, many); a.Metrics.Steps[0].Trajectory > 0 && slices.Equal(a.Field.Data, b.Field.Data) {
		t.Error("another seed gives the same field")
	}
}

// A network for two people is left out where the images are of one body, and one for one contrast where they are of two: the result is that
// without a network. It runs where the caller asks for the network and nothing else, or has aligned the pair.
func TestNetworkIsLeftOut(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	same, moved, _ := testkit.Phantom(40, 3, false)
	other, _, _ := testkit.Phantom(40, 3, true)
	for _, c := range []struct {
		name   string
		fixed  *volume.Volume
		model  string
		alone  bool
		reason string
	}{
		{"one body", same, tiny, false, "as those of one body"},
		{"one body in two contrasts, a model for any", other, tiny, false, "as those of one body"},
		{"two contrasts, a model for one", other, "hippocampus", false, "of two contrasts"},
		{"one body, the network alone", same, tiny, true, ""},
		{"one body, as it lies", same, tiny, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			by := func(model string) *Result {
				return register(t, e, Pair{Fixed: c.fixed, Moving: moved}, with(func(o *Options) {
					o.Model, o.Search, o.Refine, o.Initial = model, "auto", -1, "affine"
					switch c.name {
					case "one body, the network alone":
						o.Search, o.Refine = "off", 0
					case "one body, as it lies":
						o.Initial = "none"
					}
				}))
			}
			r := by(c.model)
			reasons := strings.Join(r.Metrics.Plan.Reasons, "; ")
			if left := r.Metrics.Model == "none"; left == c.alone || !strings.Contains(reasons, c.reason) {
				t.Fatalf("model %q because %q", r.Metrics.Model, reasons)
			}
			if warned := strings.Contains(strings.Join(r.Metrics.Warnings, " "), "did not run"); warned == c.alone {
				t.Errorf("warnings %q", r.Metrics.Warnings)
			}
			if !c.alone && !slices.Equal(r.Field.Data, by("none").Field.Data) {
				t.Error("the result is another than without a network")
			}
		})
	}
}
