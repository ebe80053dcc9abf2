package engine

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

const tiny = "internal/network/testdata/tiny.onnx"

// blob is an off-centre ellipsoid with a texture, displaced by shift mm along x.
func blob(size [3]int, shift float64) *volume.Volume {
	g := volume.Geometry{Size: size, Spacing: [3]float64{1, 1, 1.5}, Origin: [3]float64{-20, 5, 0}, Direction: volume.Identity}
	v := volume.Zeros(g)
	c, toPhysical := g.Center(), g.IndexToPhysical()
	extent := float64(size[0])
	for i := range v.Data {
		p := toPhysical.Apply(g.Point(i))
		dx, dy, dz := (p[0]-c[0]-shift)/extent, (p[1]-c[1])/extent, (p[2]-c[2]-1)/extent
		body := 1 / (1 + math.Exp(40*(math.Sqrt(dx*dx+1.5*dy*dy+2*dz*dz)-0.3)))
		v.Data[i] = float32(100 * body * (1 + 0.5*math.Sin(20*dx+5*dy)*math.Cos(15*dz)))
	}
	return v
}

func open(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e := testkit.Must(Open(cfg))(t)
	t.Cleanup(func() { e.Close() })
	return e
}

// long skips a test that takes seconds, and asks of the engine what no processor changes, where the suite has run it
// already.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("go test without -short runs it")
	}
}

// with returns the default options but for those changed.
func with(change func(*Options)) Options {
	o := DefaultOptions()
	o.Model, o.Initial, o.Search, o.Refine, o.Threads = "none", "none", "off", 0, 2
	if change != nil {
		change(&o)
	}
	return o
}

func withTiny(o *Options) { o.Model = tiny }

func register(t testing.TB, e *Engine, p Pair, o Options) *Result {
	t.Helper()
	r := testkit.Must(e.Register(context.Background(), p, o, nil))(t)
	return r
}

// keptOnce checks that a registration with a cache is none that was done before, and that the next one like it is read.
func keptOnce(t *testing.T, e *Engine, p Pair, o Options) {
	t.Helper()
	if register(t, e, p, o).Metrics.Cached {
		t.Error("it was taken for another")
	}
	if !register(t, e, p, o).Metrics.Cached {
		t.Error("it was not kept")
	}
}

// stagesOf keeps the names of the stages that a registration reports, in their order.
func stagesOf(stages *[]string) func(Progress) bool {
	return func(p Progress) bool {
		if n := len(*stages); n == 0 || (*stages)[n-1] != p.Stage {
			*stages = append(*stages, p.Stage)
		}
		return true
	}
}

// noneLeft checks that no more goroutines run than before; the last one may be on its way out still.
func noneLeft(t *testing.T, before int) {
	t.Helper()
	for wait := 0; runtime.NumGoroutine() > before && wait < 500; wait++ {
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// slice is slice z of v, a volume by itself.
func slice(v *volume.Volume, z int) *volume.Volume {
	n := v.Size[0] * v.Size[1]
	s := &volume.Volume{Geometry: v.Geometry, Data: v.Data[z*n : (z+1)*n]}
	s.Size[2] = 1
	return s
}

// testEnv returns what stages run with.
func testEnv(e *Engine, opt Options) *env {
	return &env{ctx: context.Background(), sessions: e.sessions, report: newReporter(), notes: newNotes(opt), total: 1}
}
