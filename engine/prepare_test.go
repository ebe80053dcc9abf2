package engine

import (
	"context"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/memory"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// Masks of other software are NaN where they select nothing.
func TestNonFiniteMask(t *testing.T) {
	t.Parallel()
	size := [3]int{20, 18, 16}
	plain, dirty := blob(size, 0), blob(size, 0)
	for i := range plain.Data {
		plain.Data[i], dirty.Data[i] = 1, 1
		if i%size[0] < 7 {
			plain.Data[i], dirty.Data[i] = 0, float32(math.NaN())
		}
	}
	e, opt := open(t, Config{}), with(func(o *Options) { o.Refine = 3 })
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 1)}
	everywhere := register(t, e, p, opt)
	p.FixedMask = plain
	want := register(t, e, p, opt)
	p.FixedMask = dirty
	got := register(t, e, p, opt)
	if !slices.Equal(got.Field.Data, want.Field.Data) {
		t.Error("NaN in a mask selects")
	}
	if slices.Equal(everywhere.Field.Data, want.Field.Data) {
		t.Error("the mask does nothing, so this test says nothing")
	}
	if w := got.Metrics.Warnings; len(w) != 1 || !strings.Contains(w[0], "fixed mask") {
		t.Errorf("warnings %q", w)
	}
	plain.Data[10] = 0.25 // as of a map of probabilities
	p.FixedMask = plain
	if w := register(t, e, p, opt).Metrics.Warnings; len(w) != 1 || !strings.Contains(w[0], "fixed mask has values that are not whole") {
		t.Errorf("warnings %q", w)
	}
}

func TestOptionsWithoutEffectAreSaid(t *testing.T) {
	v := blob([3]int{20, 18, 16}, 0)
	start := volume.IdentityAffine()
	e, alone, placed := open(t, Config{}), Pair{Fixed: v, Moving: v}, Pair{Fixed: v, Moving: v, Initial: &start}
	for _, c := range []struct {
		name   string
		pair   Pair
		change func(*Options)
		says   string // empty: nothing
	}{
		{"a network's options without one", alone, func(o *Options) { o.Device, o.Steps, o.Trajectories, o.Tau = "cuda", 2, 4, 0.5 }, "steps, trajectories, tau, device had"},
		{"the only device", alone, func(o *Options) { o.Device = "cpu" }, ""},
		{"preset and similarity", alone, func(o *Options) { o.Preset, o.Similarity = "best", "mind" }, "preset, similarity had"},
		{"smoothness", alone, func(o *Options) { o.Smoothness = "2.5" }, "smoothness had"},
		{"smoothness of a refinement", alone, func(o *Options) { o.Smoothness, o.Refine = "low", 1 }, ""},
		{"preset and similarity of a refinement", alone, func(o *Options) { o.Preset, o.Similarity, o.Refine = "best", "mse", 1 }, ""},
		{"similarity of the search", alone, func(o *Options) { o.Similarity, o.Search = "mind", "on" }, ""},
		{"initial alignment", alone, func(o *Options) { o.Initial = "com" }, ""},
		{"initial transform", placed, nil, ""},
		{"initial alignment of a transform", placed, func(o *Options) { o.Initial = "com" }, "initial had"},
		{"tau alone", alone, func(o *Options) { withTiny(o); o.Tau = 5 }, "so tau had"},
		{"tau of the uncertainty", alone, func(o *Options) { withTiny(o); o.Tau, o.Uncertainty = 5, "on" }, ""},
		{"tau of trajectories", alone, func(o *Options) { withTiny(o); o.Tau, o.Trajectories = 5, 2 }, ""},
		{"trajectories of no temperature", alone, func(o *Options) { withTiny(o); o.Tau, o.Trajectories = 0, 2 }, "so trajectories had"},
		{"preset of a network", alone, func(o *Options) { withTiny(o); o.Preset, o.Refine = "best", -1 }, "so preset had"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := with(c.change)
			if opt.Model == tiny {
				testkit.ONNXRuntime(t)
				opt.Device = "cpu" // auto may have a note of its own
			}
			r := register(t, e, c.pair, opt)
			var idle []string
			for _, w := range r.Metrics.Warnings {
				if strings.Contains(w, "had no effect") {
					idle = append(idle, w)
				}
			}
			if (c.says == "") != (len(idle) == 0) || len(idle) > 1 || !strings.Contains(strings.Join(idle, ""), c.says) {
				t.Errorf("%+v: warnings %q; want %q", opt, idle, c.says)
			}
			if c.pair.Initial != nil && r.Metrics.Align.Method != "none" {
				t.Errorf("%+v: the transform that was given is said to be of the method %s", opt, r.Metrics.Align.Method)
			}
		})
	}
}

func TestOutOfMemory(t *testing.T) {
	v := blob([3]int{128, 128, 128}, 0)
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	debug.SetMemoryLimit(memory.Held() + 1<<20)
	_, err := open(t, Config{}).Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), nil)
	testkit.Fails(t, err, fault.OutOfMemory)

	// A rod that lies askew has few voxels, and the box around it many.
	rod := blob([3]int{600, 12, 12}, 0)
	rod.Direction = [9]float64{0.8, -0.6, 0, 0.48, 0.64, -0.6, 0.36, 0.48, 0.8}
	debug.SetMemoryLimit(memory.Held() + 1<<30)
	_, err = open(t, Config{}).Register(context.Background(), Pair{Fixed: rod, Moving: rod}, with(nil), nil)
	testkit.Fails(t, err, fault.OutOfMemory)
}

func TestNonFiniteVoxels(t *testing.T) {
	size := [3]int{20, 18, 16}
	clean, dirty := blob(size, 1), blob(size, 1)
	clean.Data[5] = -1 // the minimum, in both
	dirty.Data[5] = -1
	for i := 0; i < len(dirty.Data); i += 97 {
		clean.Data[i], dirty.Data[i] = -1, float32(math.Inf(i%2*2-1))
	}
	dirty.Data[97] = float32(math.NaN())
	before := slices.Clone(dirty.Data)
	e := open(t, Config{})
	want := register(t, e, Pair{Fixed: blob(size, 0), Moving: clean}, with(nil))
	got := register(t, e, Pair{Fixed: blob(size, 0), Moving: dirty}, with(nil))
	if !slices.Equal(got.Warped.Data, want.Warped.Data) {
		t.Error("NaN and infinite voxels are not taken for the minimum")
	}
	if w := got.Metrics.Warnings; len(w) != 1 || !strings.Contains(w[0], "moving") {
		t.Errorf("warnings %q", w)
	}
	for i, x := range dirty.Data {
		if math.Float32bits(x) != math.Float32bits(before[i]) {
			t.Fatal("the caller's volume was changed")
		}
	}
}

// A manifest asks for more latent values than any memory has: an error, where Go's allocator would end the process.
func TestLatentMemory(t *testing.T) {
	size := [3]int{96, 96, 96}
	m := network.Model{Manifest: network.Manifest{Latent: network.Latent{Channels: 1 << 16, Stride: 1}, SizeMultiple: 1, Steps: 3}, Loops: true}
	pair, opt := Pair{Fixed: blob(size, 0), Moving: blob(size, 1)}, with(nil)
	testkit.Refused(newProblem(testEnv(open(t, Config{}), opt), pair, opt, &m))(t, fault.OutOfMemory)
}

// The blocks that stand for a large image keep a thin mask whole, and two planes two.
func TestBlocksOfLargeImages(t *testing.T) {
	e, opt := open(t, Config{}), with(func(o *Options) { o.Preset = "fast" })
	for _, size := range [][3]int{{224, 224, 224}, {2100, 2100, 2}} {
		v := volume.Zeros(testkit.Grid(size))
		mask := volume.Zeros(v.Geometry)
		for i := range v.Data {
			at := v.Index(i)
			v.Data[i] = float32(10 + at[0]%7 + at[1]%5 + at[2]%3)
			if at[0] == size[0]/2 {
				mask.Data[i] = 0.4
			}
		}
		p := testkit.Must(newProblem(testEnv(e, opt), Pair{Fixed: v, Moving: v, FixedMask: mask}, opt, nil))(t)
		selected := 0
		for _, x := range p.pair.FixedMask.Data {
			if x == 1 {
				selected++
			}
		}
		n := p.pair.Fixed.Size
		if n == size || n[2] < 2 || selected != n[1]*n[2] || p.pair.Moving.Size != n {
			t.Errorf("%v became %v, of whose mask %d voxels are left", size, n, selected)
		}
	}
}

// A mask may lie in padding, which the stages do not see otherwise.
func TestMaskInPadding(t *testing.T) {
	fixed, moving, _ := testkit.Phantom(24, 1, false)
	fixed = testkit.Padded(fixed, 12, 12, func(float32) float32 { return 0 })
	mask := volume.Zeros(fixed.Geometry)
	mask.Data[0] = 1
	opt := with(nil)
	p, err := newProblem(testEnv(open(t, Config{}), opt), Pair{Fixed: fixed, Moving: moving, FixedMask: mask}, opt, nil)
	if err != nil || p.pair.FixedMask.Data[0] != 1 {
		t.Error(err)
	}
}

func TestPaddingChangesNothing(t *testing.T) {
	e := open(t, Config{})
	for _, c := range []struct {
		name         string
		outside      func(nearest float32) float32
		fixed, moved [2]int // planes more before and behind
	}{
		{"zeros", func(float32) float32 { return 0 }, [2]int{1, 1}, [2]int{7, 2}},
		{"the border again", func(x float32) float32 { return x }, [2]int{3, 0}, [2]int{1, 1}},
		{"NaN", func(float32) float32 { return float32(math.NaN()) }, [2]int{2, 5}, [2]int{0, 1}},
	} {
		for shape, phantom := range map[string]func(int, float64, bool) (_, _ *volume.Volume, _ *field.Field){"volumes": testkit.Phantom, "slices": testkit.Slice} {
			t.Run(c.name+", "+shape, func(t *testing.T) {
				fixed, moving, _ := phantom(32, 2, false)
				for _, v := range []**volume.Volume{&fixed, &moving} {
					*v = testkit.Padded(*v, 3, 3, func(float32) float32 { return 0 })
				}
				opt := with(func(o *Options) { o.Initial, o.Search, o.Refine = "affine", "auto", 10 })
				want := register(t, e, Pair{Fixed: fixed, Moving: moving}, opt)
				got := register(t, e, Pair{
					Fixed: testkit.Padded(fixed, c.fixed[0], c.fixed[1], c.outside), Moving: testkit.Padded(moving, c.moved[0], c.moved[1], c.outside),
				}, opt)
				checkPlaces(t, "with padding and without", got, want, fixed.Geometry)
			})
		}
	}
}

// checkPlaces checks that two results take all voxels of a grid to the same places.
func checkPlaces(t *testing.T, when string, got, want *Result, g volume.Geometry) {
	t.Helper()
	points := make([]float64, 0, 3*g.Voxels())
	for i := range g.Voxels() {
		p := g.IndexToPhysical().Apply(g.Point(i))
		points = append(points, p[:]...)
	}
	there := slices.Clone(points)
	want.TransformPoints(points)
	got.TransformPoints(there)
	testkit.Close(t, "where voxels go "+when, there, points, 1e-4)
}

// A crop's frame of one value, as programs leave where they resample, is outside whatever the value.
func TestAFrameChangesNothing(t *testing.T) {
	t.Parallel()
	e, opt := open(t, Config{}), with(func(o *Options) { o.Initial, o.Search, o.Refine = "affine", "auto", 10 })
	fixed, moving, _ := testkit.Phantom(40, 2, false)
	box := volume.Box{Lo: [3]int{11, 11, 11}, Hi: [3]int{29, 29, 29}}
	fixed, moving = fixed.Cropped(box), moving.Cropped(box)
	want := register(t, e, Pair{Fixed: fixed, Moving: moving}, opt)
	lo, hi := fixed.MinMax()
	for _, value := range []float32{hi + (hi-lo)/2, lo - (hi-lo)/2} {
		framed := func(v *volume.Volume, lo, hi int) *volume.Volume {
			return testkit.Padded(v, lo, hi, func(float32) float32 { return value })
		}
		for _, pair := range []Pair{{Fixed: fixed, Moving: framed(moving, 3, 0)}, {Fixed: framed(fixed, 1, 1), Moving: framed(moving, 1, 1)}} {
			got := register(t, e, pair, opt)
			checkPlaces(t, "with a frame and without", got, want, fixed.Geometry)
		}
	}
}

// A hole of voxels that are not finite is unknown, as outside a mask.
func TestHolesAreUnknown(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(32, 2, false)
	known := volume.Zeros(moving.Geometry)
	for i := range known.Data {
		if at := known.Index(i); max(at[0]-16, 16-at[0], at[1]-16, 16-at[1], at[2]-16, 16-at[2]) <= 3 {
			moving.Data[i] = float32(math.NaN())
		} else {
			known.Data[i] = 1
		}
	}
	e, opt := open(t, Config{}), with(func(o *Options) { o.Refine = 3 })
	got := register(t, e, Pair{Fixed: fixed, Moving: moving}, opt)
	want := register(t, e, Pair{Fixed: fixed, Moving: moving, MovingMask: known}, opt)
	if !slices.Equal(got.Field.Data, want.Field.Data) {
		t.Error("a hole is not as outside a mask")
	}
	if w := got.Metrics.Warnings; len(w) != 1 || !strings.Contains(w[0], "moving volume has voxels that are NaN") {
		t.Errorf("warnings %q", w)
	}
}
