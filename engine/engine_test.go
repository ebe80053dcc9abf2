package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/golden"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/snapshot"
	"github.com/morphseek/morphseek/engine/internal/testort"
	"github.com/morphseek/morphseek/engine/internal/testpair"
	"github.com/morphseek/morphseek/engine/metric"
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
		x, y, z := i%size[0], i/size[0]%size[1], i/size[0]/size[1]
		p := toPhysical.Apply([3]float64{float64(x), float64(y), float64(z)})
		dx, dy, dz := (p[0]-c[0]-shift)/extent, (p[1]-c[1])/extent, (p[2]-c[2]-1)/extent
		body := 1 / (1 + math.Exp(40*(math.Sqrt(dx*dx+1.5*dy*dy+2*dz*dz)-0.3)))
		v.Data[i] = float32(100 * body * (1 + 0.5*math.Sin(20*dx+5*dy)*math.Cos(15*dz)))
	}
	return v
}

func open(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// long skips a test that takes seconds, and asks of the engine what no processor changes, where the suite has run it already.
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
	r, err := e.Register(context.Background(), p, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// register.bin holds a registration by torch, numpy and scipy: intensities normalised by percentiles, three chained steps of the
// bundle from the identity, one warp; and the field of the bundle that displaces the images from step to step.
func TestRegisterGolden(t *testing.T) {
	data, err := os.ReadFile("internal/network/testdata/register.bin")
	if err != nil {
		t.Fatal(err)
	}
	size := [3]int{16, 8, 12}
	n := size[0] * size[1] * size[2]
	values := make([]float32, 9*n)
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	g := volume.Geometry{Size: size, Spacing: [3]float64{1.5, 1, 2}, Origin: [3]float64{3, -4, 50}, Direction: volume.Identity}
	p := Pair{Fixed: &volume.Volume{Geometry: g, Data: values[:n]}, Moving: &volume.Volume{Geometry: g, Data: values[n : 2*n]}}
	u, warped, offset := values[2*n:5*n], values[5*n:6*n], values[6*n:]

	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	follows := func(r *Result, u []float32) {
		t.Helper()
		for i, want := range u {
			if math.Abs(float64(r.Field.Data[i]-want)) > 1e-4 {
				t.Fatalf("u[%d] = %g, torch %g", i, r.Field.Data[i], want)
			}
		}
	}
	follows(register(t, e, p, with(func(o *Options) { o.Model = "internal/network/testdata/offset.onnx" })), offset)
	r := register(t, e, p, with(withTiny))
	follows(r, u)
	compared := 0
	for i, want := range warped {
		at := [3]float32{float32(i%16) + r.Field.X[i], float32(i/16%8) + r.Field.Y[i], float32(i/128) + r.Field.Z[i]}
		if at[0] < 0 || at[1] < 0 || at[2] < 0 || at[0] > 15 || at[1] > 7 || at[2] > 11 {
			continue // ITK repeats the outer half voxel, scipy does not
		}
		compared++
		if math.Abs(float64(r.Warped.Data[i]-want)) > 0.05 { // of 300
			t.Fatalf("warped[%d] = %g, scipy %g", i, r.Warped.Data[i], want)
		}
	}
	if compared < n/2 {
		t.Errorf("only %d voxels compared", compared)
	}
	m := r.Metrics
	if m.Model != "tiny" || m.Device != "cpu" || len(m.Steps) != 3 || m.Seconds["network"] <= 0 || m.Seconds["total"] < m.Seconds["network"] {
		t.Errorf("metrics %+v", m)
	}
}

func TestRegisterAffine(t *testing.T) {
	size := [3]int{48, 40, 32}
	fixed, moving := blob(size, 0), blob(size, 6)
	e := open(t, Config{})
	r := register(t, e, Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Initial = "affine" }))
	m := r.Metrics
	// No stage follows, so "after" is the same transform: but as a float32 field, where "aligned" goes by the float64 matrix.
	if !(m.SimilarityAlign > m.SimilarityBefore+0.1) || math.Abs(m.SimilarityAfter-m.SimilarityAlign) > 1e-6 {
		t.Errorf("similarity %s before %g, aligned %g, after %g", m.Similarity, m.SimilarityBefore, m.SimilarityAlign, m.SimilarityAfter)
	}
	c := fixed.Center()
	points := slices.Clone(c[:])
	if err := r.TransformPoints(points); err != nil {
		t.Fatal(err)
	}
	if d := points[0] - c[0]; math.Abs(d-6) > 1 {
		t.Errorf("the centre moves by %g mm along x, the image by 6", d)
	}
	if m.NJDPercent != 0 || m.DisplacementMax < 5 || m.PeakBytes < 0 || m.Align.Method != "affine" {
		t.Errorf("metrics %+v", m)
	}
	if _, err := json.Marshal(m); err != nil {
		t.Error(err)
	}
}

func TestIdentity(t *testing.T) {
	v := blob([3]int{20, 18, 16}, 0)
	r := register(t, open(t, Config{}), Pair{Fixed: v, Moving: v}, with(nil))
	for _, u := range r.Field.Data {
		if math.Abs(float64(u)) > 1e-5 {
			t.Fatalf("displacement %g between equal images", u)
		}
	}
	for i, x := range r.Warped.Data {
		if math.Abs(float64(x-v.Data[i])) > 1e-2 {
			t.Fatalf("voxel %d: %g became %g", i, v.Data[i], x)
		}
	}
	if r.Metrics.Model != "none" || len(r.Metrics.Warnings) != 0 {
		t.Errorf("metrics %+v", r.Metrics)
	}
}

// One pair of images has one alignment, in whatever order a file keeps their axes.
func TestOrderOfAxes(t *testing.T) {
	long(t)
	turned := func(v *volume.Volume) *volume.Volume { return testpair.Reordered(v, [3]int{2, 0, 1}, [3]bool{true}) }
	asIs := func(v *volume.Volume) *volume.Volume { return v }
	fixed, moving := blob([3]int{34, 30, 26}, 0), blob([3]int{36, 30, 28}, 3)
	mask := volume.Zeros(fixed.Geometry)
	for i := range mask.Data {
		if fixed.Data[i] > 5 || i%34 < 12 {
			mask.Data[i] = 1
		}
	}
	e := open(t, Config{})
	opt := with(func(o *Options) { o.Initial, o.Search, o.Refine, o.Uncertainty = "affine", "on", -1, "on" })
	for _, masked := range []bool{false, true} {
		var want []float64
		var uncertain float64
		for _, order := range []struct {
			fixed, moving func(*volume.Volume) *volume.Volume
		}{{asIs, asIs}, {turned, asIs}, {asIs, turned}, {turned, turned}} {
			p := Pair{Fixed: order.fixed(fixed), Moving: order.moving(moving)}
			if masked {
				p.FixedMask = order.fixed(mask)
			}
			r := register(t, e, p, opt)
			var points []float64
			for i := 0; i < fixed.Voxels(); i += 37 {
				at := fixed.IndexToPhysical().Apply([3]float64{float64(i % 34), float64(i / 34 % 30), float64(i / (34 * 30))})
				points = append(points, at[:]...)
			}
			r.Field.TransformPoints(points)
			sum := r.Metrics.Uncertainty.MeanMM
			if want == nil {
				want, uncertain = points, sum
				continue
			}
			golden.Close(t, "points", points, want, 1e-4)
			if math.Abs(sum-uncertain) > 1e-4 {
				t.Errorf("mask: %v: uncertainty of %g mm, %g in another order", masked, sum, uncertain)
			}
		}
	}
}

// What the search finds in pairs that are neither well nor badly aligned counts in part.
func TestSearchShare(t *testing.T) {
	for _, c := range []struct{ score, want float64 }{{0.3, 1}, {0.66, 1}, {0.67, 0.75}, {0.68, 0.5}, {0.7, 0}, {0.9, 0}} {
		if got := searchShare(c.score); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("score %g: %g, want %g", c.score, got, c.want)
		}
	}
}

// Images of nothing in common are laid somewhere all the same, and the alignment may be sure of the place.
func TestUnrelatedImagesAreTold(t *testing.T) {
	size := [3]int{32, 32, 32}
	textured := func(seed uint64) *volume.Volume {
		rng := rand.New(rand.NewPCG(seed, 1))
		v := volume.Zeros(volume.Geometry{Size: size, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity})
		for i := range v.Data {
			v.Data[i] = float32(rng.NormFloat64())
		}
		s := [3]float64{1.5, 1.5, 1.5}
		filter.Gaussian(size, s, 1, 0, filter.From(size, slices.Clone(v.Data)), filter.To(size, v.Data))
		return v
	}
	inverted := textured(1)
	for i, x := range inverted.Data {
		inverted.Data[i] = -x * x * x
	}
	for _, c := range []struct {
		name   string
		moving *volume.Volume
		told   bool
	}{
		{"another texture", textured(2), true}, {"another contrast", inverted, false},
	} {
		r := register(t, open(t, Config{}), Pair{Fixed: textured(1), Moving: c.moving}, with(nil))
		told := slices.ContainsFunc(r.Metrics.Warnings, func(w string) bool { return strings.Contains(w, "in common") })
		if r.Metrics.Align.SameModality || told != c.told {
			t.Errorf("%s: similarity %.3f, one modality %v, warnings %q", c.name, r.Metrics.SimilarityAfter, r.Metrics.Align.SameModality, r.Metrics.Warnings)
		}
	}
}

// An image and itself are what everybody tries first: nothing moves, and the verdict says so.
func TestAnImageAndItself(t *testing.T) {
	cone := func(x float64) *volume.Volume { // without a texture, and exact in float32
		v := volume.Zeros(volume.Geometry{Size: [3]int{32, 32, 32}, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity})
		for i := range v.Data {
			dx, dy, dz := float64(i%32)-x, float64(i/32%32)-16, float64(i/1024)-16
			v.Data[i] = float32(max(0, 8-math.Sqrt(float64(dx*dx)+float64(dy*dy)+float64(dz*dz))))
		}
		return v
	}
	body, _, _ := testpair.Phantom(40, 0, false)
	elsewhere := *body
	elsewhere.Origin[1] += 7
	for _, c := range []struct {
		name          string
		fixed, moving *volume.Volume
		initial       string
		most          float64 // displacement, mm
	}{
		{"itself", body, body, "affine", 0}, {"as it lies", body, body, "none", 0}, {"with another origin", body, &elsewhere, "rigid", 7.01},
		{"by whole voxels", cone(14), cone(18), "rigid", 4.01}, {"nearly", cone(14), cone(18), "affine", 4.1},
	} {
		m := register(t, open(t, Config{}), Pair{Fixed: c.fixed, Moving: c.moving}, with(func(o *Options) { o.Initial = c.initial })).Metrics
		if v := m.Verdict; v.Grade != "good" || v.ErrorMM > 1 || m.Referee.Common < 0.7 || m.DisplacementMax > c.most {
			t.Errorf("%s: %+v, %+v, moved %g mm", c.name, v, m.Referee, m.DisplacementMax)
		}
	}
}

// What is its own mirror image is not called mirrored because its mirror image was aligned better.
func TestABallIsNotMirrored(t *testing.T) {
	ball := func(radius float64) *volume.Volume {
		v := volume.Zeros(volume.Geometry{Size: [3]int{48, 48, 48}, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity})
		for i := range v.Data {
			if dx, dy, dz := float64(i%48)-24, float64(i/48%48)-24, float64(i/(48*48))-24; math.Hypot(math.Hypot(dx, dy), dz) < radius {
				v.Data[i] = 1
			}
		}
		return v
	}
	opt := DefaultOptions()
	opt.Model = "none"
	m := register(t, open(t, Config{}), Pair{Fixed: ball(10), Moving: ball(13)}, opt).Metrics
	if m.Verdict.Grade == "failed" || m.Referee.Mirrored > asMirrored {
		t.Errorf("%+v, %+v", m.Verdict, m.Referee)
	}
}

// Masks of other software are NaN where they select nothing.
func TestNonFiniteMask(t *testing.T) {
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
}

// Units do not matter, however odd: to a power of two, not one bit of the result.
func TestIntensitiesOfAnyScale(t *testing.T) {
	fixed, moving, _ := testpair.Phantom(24, 2, false)
	e := open(t, Config{})
	run := func(by float32) *Result {
		scaled := func(v *volume.Volume) *volume.Volume {
			out := volume.Zeros(v.Geometry)
			for i, x := range v.Data {
				out.Data[i] = x * by
			}
			return out
		}
		return register(t, e, Pair{Fixed: scaled(fixed), Moving: scaled(moving)}, with(func(o *Options) { o.Initial, o.Search, o.Refine = "affine", "on", 2 }))
	}
	want := run(1)
	for _, exponent := range []int{90, 60, -60, -80} {
		if got := run(float32(math.Ldexp(1, exponent))); !slices.Equal(got.Field.Data, want.Field.Data) || got.Initial != want.Initial {
			t.Errorf("times 2^%d: another result", exponent)
		}
	}
}

// A few voxels far beyond the others, as parameter maps have them, and a CT scanner's padding say nothing of what was imaged.
func TestOutlyingVoxels(t *testing.T) {
	long(t)
	fixed, moving, _ := testpair.Phantom(64, 1, false)
	// Air of -1000 HU and tissue around 0, with noise.
	for k, v := range []*volume.Volume{fixed, moving} {
		rng := rand.New(rand.NewPCG(9, uint64(k)))
		for i, x := range v.Data {
			v.Data[i] = float32(math.Round(-1000 + 6*float64(x) + 10*rng.NormFloat64()))
		}
	}
	angle, _ := volume.Affine{M: volume.Identity}.Inverse()
	sin, cos := math.Sincos(0.2)
	angle.M = [9]float64{cos, -sin, 0, sin, cos, 0, 0, 0, 1}
	angle.T = [3]float64{15, -10, 8}
	moving.Origin, moving.Direction = angle.Apply(moving.Origin), angle.M
	e := open(t, Config{})
	opt := with(func(o *Options) { o.Initial = "affine" })
	run := func(change func(v *volume.Volume)) *Result {
		v := &volume.Volume{Geometry: moving.Geometry, Data: slices.Clone(moving.Data)}
		change(v)
		return register(t, e, Pair{Fixed: fixed, Moving: v}, opt)
	}
	off := func(r *Result) (sum float64) {
		for _, p := range [][3]float64{{12, 12, 12}, {50, 12, 12}, {12, 50, 12}, {12, 12, 50}, {50, 50, 50}} {
			a, b := r.Initial.Apply(p), angle.Apply(p)
			sum += math.Sqrt((a[0]-b[0])*(a[0]-b[0])+(a[1]-b[1])*(a[1]-b[1])+(a[2]-b[2])*(a[2]-b[2])) / 5
		}
		return sum
	}
	plain := run(func(*volume.Volume) {})
	for name, change := range map[string]func(v *volume.Volume){
		"ten, very far": func(v *volume.Volume) {
			for i := range 10 {
				v.Data[i*23456] = 1e7
			}
		},
		"a thousandth": func(v *volume.Volume) {
			for i := 0; i < len(v.Data); i += 1009 {
				v.Data[i] = 3e5
			}
		},
		"ten, below": func(v *volume.Volume) {
			for i := range 10 {
				v.Data[i*23456] = -1e7
			}
		},
		"outside a circle": func(v *volume.Volume) {
			for i := range v.Data {
				if x, y := float64(i%64)-31.5, float64(i/64%64)-31.5; x*x+y*y > 31*31 {
					v.Data[i] = -3024
				}
			}
		},
	} {
		r := run(change)
		if !plain.Metrics.Align.SameModality || !r.Metrics.Align.SameModality {
			t.Errorf("%s: one modality is %v, without %v", name, r.Metrics.Align.SameModality, plain.Metrics.Align.SameModality)
		}
		if o, p := off(r), off(plain); o > p+0.6 {
			t.Errorf("%s: %.2f mm off, without %.2f", name, o, p)
		}
		if a, b := r.Metrics.SimilarityAfter, plain.Metrics.SimilarityAfter; math.Abs(a-b) > 0.1 {
			t.Errorf("%s: similarity %.3f, without %.3f", name, a, b)
		}
		if _, hi := r.Warped.MinMax(); name == "ten, very far" && hi < 1e5 {
			t.Errorf("the warped image is not of the caller's intensities: up to %g", hi)
		}
	}
}

// An alignment alone is one map, measured in two ways: rounding is no loss of similarity.
func TestAlignmentAloneDoesNotWarn(t *testing.T) {
	e := open(t, Config{})
	fixed, moving, _ := testpair.Phantom(32, 1, false)
	less := 0
	for x := range 12 {
		sin, cos := math.Sincos(0.02 * float64(x+1))
		initial := volume.Affine{M: [9]float64{cos, -sin, 0, sin, cos, 0, 0, 0, 1}, T: [3]float64{7.13, -5.07, 6.31}}
		moved := &volume.Volume{Geometry: moving.Geometry, Data: moving.Data} // where initial leads
		moved.Origin = initial.Apply(moved.Origin)
		moved.Direction = initial.M
		initial.T[x%3] += 0.1 * float64(x+1) // nearly
		r := register(t, e, Pair{Fixed: fixed, Moving: moved, Initial: &initial}, with(nil))
		if r.Metrics.SimilarityAfter < r.Metrics.SimilarityAlign {
			less++
		}
		if len(r.Metrics.Warnings) != 0 {
			t.Errorf("%g before, %g and %g after the alignment: warnings %q", r.Metrics.SimilarityBefore, r.Metrics.SimilarityAlign, r.Metrics.SimilarityAfter, r.Metrics.Warnings)
		}
	}
	if less == 0 {
		t.Error("no similarity was rounded down, so this test says nothing")
	}
}

func TestOptionsWithoutEffectAreSaid(t *testing.T) {
	v := blob([3]int{20, 18, 16}, 0)
	start := volume.IdentityAffine()
	e, alone, placed := open(t, Config{}), Pair{Fixed: v, Moving: v}, Pair{Fixed: v, Moving: v, Initial: &start}
	for _, c := range []struct {
		pair   Pair
		change func(*Options)
		says   string // empty: nothing
	}{
		{alone, func(o *Options) { o.Device, o.Steps, o.Trajectories, o.Tau = "cuda", 2, 4, 0.5 }, "steps, trajectories, tau, device had"},
		{alone, func(o *Options) { o.Device = "cpu" }, ""},
		{alone, func(o *Options) { o.Preset, o.Similarity = "best", "mind" }, "preset, similarity had"},
		{alone, func(o *Options) { o.Smoothness = "2.5" }, "smoothness had"},
		{alone, func(o *Options) { o.Smoothness, o.Refine = "low", 1 }, ""},
		{alone, func(o *Options) { o.Preset, o.Similarity, o.Refine = "best", "mse", 1 }, ""},
		{alone, func(o *Options) { o.Similarity, o.Search = "mind", "on" }, ""},
		{alone, func(o *Options) { o.Initial = "com" }, ""},
		{placed, nil, ""},
		{placed, func(o *Options) { o.Initial = "com" }, "initial had"},
		{alone, func(o *Options) { withTiny(o); o.Tau = 5 }, "so tau had"},
		{alone, func(o *Options) { withTiny(o); o.Tau, o.Uncertainty = 5, "on" }, ""},
		{alone, func(o *Options) { withTiny(o); o.Tau, o.Trajectories = 5, 2 }, ""},
		{alone, func(o *Options) { withTiny(o); o.Tau, o.Trajectories = 0, 2 }, "so trajectories had"},
		{alone, func(o *Options) { withTiny(o); o.Preset, o.Refine = "best", -1 }, "so preset had"},
	} {
		opt := with(c.change)
		if opt.Model == tiny {
			testort.Library(t)
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
	}
}

func TestErrors(t *testing.T) {
	size := [3]int{16, 16, 16}
	nan := float32(math.NaN())
	filled := func(x float32) *volume.Volume {
		v := blob(size, 0)
		for i := range v.Data {
			v.Data[i] = x
		}
		return v
	}
	changed := func(change func(*volume.Volume)) *volume.Volume {
		v := blob(size, 0)
		change(v)
		return v
	}
	garbage := filepath.Join(t.TempDir(), "garbage.onnx")
	if err := os.WriteFile(garbage, []byte("not a model"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := open(t, Config{})
	for _, c := range []struct {
		name   string
		pair   func(*Pair)
		opt    func(*Options)
		want   fault.Code
		naming string // what the message must name
	}{
		{"no fixed", func(p *Pair) { p.Fixed = nil }, nil, fault.EmptyVolume, "fixed"},
		{"empty", func(p *Pair) { p.Moving = changed(func(v *volume.Volume) { v.Size[1] = 0 }) }, nil, fault.EmptyVolume, "moving"},
		{"short", func(p *Pair) { p.Moving = changed(func(v *volume.Volume) { v.Data = v.Data[1:] }) }, nil, fault.EmptyVolume, "moving"},
		{"all NaN", func(p *Pair) { p.Fixed = filled(nan) }, nil, fault.NonFiniteVolume, "fixed"},
		{"constant", func(p *Pair) { p.Fixed = filled(3) }, nil, fault.ConstantVolume, "fixed"},
		{"as good as constant", func(p *Pair) {
			p.Fixed = changed(func(v *volume.Volume) {
				for i := range v.Data {
					v.Data[i] *= 1e-38
				}
			})
		}, nil, fault.ConstantVolume, "fixed"},
		{"one slice", func(p *Pair) { p.Moving = blob([3]int{16, 16, 1}, 0) }, nil, fault.ThinVolume, "moving"},
		{"spacing 0", func(p *Pair) { p.Fixed = changed(func(v *volume.Volume) { v.Spacing[2] = 0 }) }, nil, fault.InvalidSpacing, "fixed"},
		{"spacing -1", func(p *Pair) { p.Fixed = changed(func(v *volume.Volume) { v.Spacing[0] = -1 }) }, nil, fault.InvalidSpacing, "fixed"},
		{"metres and millimetres", func(p *Pair) {
			p.Moving = changed(func(v *volume.Volume) { v.Spacing = [3]float64{0.001, 0.001, 0.001} })
		}, nil, fault.InvalidSpacing, "units of the headers"},
		{"spacing of metres", func(p *Pair) {
			p.Fixed = changed(func(v *volume.Volume) { v.Spacing = [3]float64{1e6, 1e6, 1e6} })
			p.Moving = p.Fixed
		}, func(o *Options) { o.Model = "hippocampus" }, fault.InvalidArgument, "network grid"},
		{"spacing of micrometres", func(p *Pair) { p.Fixed = changed(func(v *volume.Volume) { v.Spacing[2] = 1e-6 }) }, nil, fault.InvalidSpacing, "fixed"},
		{"direction", func(p *Pair) { p.Moving = changed(func(v *volume.Volume) { v.Direction = [9]float64{1, 0, 0, 1} }) }, nil, fault.InvalidDirection, "moving"},
		{"empty mask", func(p *Pair) { p.FixedMask = filled(0) }, nil, fault.EmptyMask, "fixed mask"},
		{"NaN mask", func(p *Pair) { p.FixedMask = filled(nan) }, nil, fault.EmptyMask, "fixed mask"},
		{"mask elsewhere", func(p *Pair) { p.FixedMask = changed(func(v *volume.Volume) { v.Origin[1] += 3 }) }, nil, fault.GridMismatch, "3 voxels away"},
		{"mask's grid", func(p *Pair) { p.MovingMask = blob([3]int{16, 16, 15}, 0) }, nil, fault.GridMismatch, "moving mask"},
		{"apart", func(p *Pair) { p.Moving = changed(func(v *volume.Volume) { v.Origin[0] += 500 }) }, nil, fault.NoOverlap, "overlap"},
		{"singular", func(p *Pair) { p.Initial = &volume.Affine{} }, nil, fault.SingularTransform, "initial"},
		{"NaN transform", func(p *Pair) { p.Initial = &volume.Affine{M: volume.Identity, T: [3]float64{math.NaN()}} }, nil, fault.SingularTransform, "initial"},
		{"option", nil, func(o *Options) { o.Steps = 99 }, fault.InvalidArgument, "steps"},
		{"choice", nil, func(o *Options) { o.Initial = "spline" }, fault.InvalidArgument, "initial"},
		{"model", nil, func(o *Options) { o.Model = "no such model" }, fault.ModelNotFound, "no such model"},
		{"model file", nil, func(o *Options) { o.Model = garbage }, fault.ModelCorrupt, garbage},
		{"no temperature", nil, func(o *Options) { o.Model, o.Uncertainty, o.Tau = tiny, "on", 0 }, fault.InvalidArgument, "tau"},
		{"external model", nil, func(o *Options) { o.Model = "internal/network/testdata/external.onnx" }, fault.ModelExternal, "external.onnx"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, o := Pair{Fixed: blob(size, 0), Moving: blob(size, 2)}, with(c.opt)
			if c.pair != nil {
				c.pair(&p)
			}
			_, err := e.Register(context.Background(), p, o, nil)
			if fault.CodeOf(err) != c.want {
				t.Fatalf("got %v (%v), want %v", fault.CodeOf(err), err, c.want)
			}
			if !strings.Contains(err.Error(), c.naming) {
				t.Errorf("the message does not name %q: %v", c.naming, err)
			}
		})
	}
}

// Odd volumes that are none of the above get a result.
func TestOddVolumes(t *testing.T) {
	inverted := func(v *volume.Volume) *volume.Volume {
		out := volume.Zeros(v.Geometry)
		for i, x := range v.Data {
			out.Data[i] = 200 - x
		}
		return out
	}
	shrunk := func(v *volume.Volume, factor float64) *volume.Volume {
		out := volume.Volume{Geometry: v.Geometry, Data: v.Data}
		for a := range 3 {
			out.Spacing[a] *= factor
			out.Origin[a] *= factor
		}
		return &out
	}
	marked := blob([3]int{24, 24, 20}, 0)
	marked.Data[0], marked.Data[1] = -math.MaxFloat32, math.MaxFloat32
	whole := blob([3]int{40, 40, 40}, 1)
	for name, p := range map[string]Pair{
		"slab of 2 slices":       {Fixed: inverted(blob([3]int{40, 40, 2}, 0)), Moving: whole},
		"slab of 4 slices":       {Fixed: inverted(blob([3]int{40, 40, 4}, 0)), Moving: whole},
		"onto a slab":            {Fixed: whole, Moving: inverted(blob([3]int{40, 40, 3}, 0))},
		"eight voxels":           {Fixed: inverted(blob([3]int{2, 2, 2}, 0)), Moving: whole},
		"voxels of a nanometre":  {Fixed: shrunk(whole, 1e-6), Moving: shrunk(blob([3]int{40, 40, 40}, 0), 1e-6)},
		"marks at the far limit": {Fixed: marked, Moving: blob([3]int{24, 24, 20}, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			r := register(t, open(t, Config{}), p, with(func(o *Options) { o.Model, o.Initial, o.Search, o.Preset = "none", "affine", "auto", "fast" }))
			for _, x := range r.Field.Data {
				if x-x != 0 {
					t.Fatal("the field is not finite")
				}
			}
		})
	}
}

func TestDeviceUnavailable(t *testing.T) {
	v := blob([3]int{16, 16, 16}, 0)
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	r, err := e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(func(o *Options) { o.Model, o.Device = tiny, "cuda" }), nil)
	if err == nil && r.Metrics.Device == "cuda" {
		return // there is one
	}
	if fault.CodeOf(err) != fault.DeviceUnavailable {
		t.Errorf("device cuda: %v", err)
	}
}

// brokenGPU is a runner whose device fails.
type brokenGPU struct{ err error }

func (b brokenGPU) Run(context.Context, *network.Step) error { return b.err }
func (brokenGPU) Device() string                             { return "cuda" }
func (brokenGPU) Close()                                     {}

func TestFailingGPU(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	m, err := network.Load(tiny, "")
	if err != nil {
		t.Fatal(err)
	}
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
		r := &registration{engine: e, ctx: context.Background(), model: m, runner: brokenGPU{fault.New(c.fails, "the device failed")}}
		r.opt.Device, r.opt.Threads, r.metrics.Device = c.device, 1, "cuda"
		s := network.NewStep(m.Manifest, [3]int{8, 8, 8}, 1)
		s.Fixed, s.Moving, s.Previous = make([]float32, 512), make([]float32, 512), make([]float32, 3*512)
		if err := r.step(s); fault.CodeOf(err) != c.want || r.metrics.Device != c.on {
			t.Errorf("%s, %v: %v on %s", c.device, c.fails, err, r.metrics.Device)
		}
		if (c.on == "cpu") != (len(r.metrics.Warnings) == 1) {
			t.Errorf("%s, %v: warnings %q", c.device, c.fails, r.metrics.Warnings)
		}
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
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	for _, file := range []string{"loop.onnx", "offset.onnx"} {
		m, err := network.Load("internal/network/testdata/"+file, "")
		if err != nil {
			t.Fatal(err)
		}
		runner, _, err := e.sessions.Get(m, "cpu", 1)
		if err != nil {
			t.Fatal(err)
		}
		oneRunOnGPU(t, e, m, runner)
	}
}

func oneRunOnGPU(t *testing.T, e *Engine, m *network.Model, runner network.Runner) {
	for _, trajectories := range []int{1, 3} {
		var made [2]*registration
		gpu := &onCPU{Runner: runner}
		for i, on := range []network.Runner{runner, gpu} {
			r := &registration{engine: e, ctx: context.Background(), report: newReporter(), model: m, runner: on, initial: volume.IdentityAffine()}
			r.fixed, r.moving = blob([3]int{20, 16, 12}, 0), blob([3]int{20, 16, 12}, 2)
			r.pair = Pair{Fixed: r.fixed, Moving: r.moving}
			r.opt = with(func(o *Options) { o.Trajectories, o.Steps, o.Seed, o.Threads = trajectories, 4, 7, 1 })
			if err := r.network(); err != nil {
				t.Fatal(err)
			}
			for k := range r.metrics.Steps {
				s := &r.metrics.Steps[k]
				s.Seconds, s.NJDPercent = 0, math.Round(1e4*s.NJDPercent) // a float32 in the graph
			}
			made[i] = r
		}
		if gpu.runs != 1 || !slices.Equal(made[0].deform.Data, made[1].deform.Data) {
			t.Errorf("J = %d: %d runs; the fields are equal: %v", trajectories, gpu.runs, slices.Equal(made[0].deform.Data, made[1].deform.Data))
		}
		if a, b := made[0].metrics.Steps, made[1].metrics.Steps; len(a) != 4 || !reflect.DeepEqual(a, b) {
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
		v := blob(c.size, 0)
		g := m.Grid(v.Geometry)
		if g.Size != [3]int{32, 24, 16} || g.Spacing != c.spacing {
			t.Errorf("%v: grid %v of %v mm", c.size, g.Size, g.Spacing)
		}
		for a, x := range g.Center() {
			if math.Abs(x-v.Center()[a]) > 1e-9 {
				t.Errorf("%v: centre %v, the image's %v", c.size, g.Center(), v.Center())
			}
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	v := blob([3]int{128, 128, 128}, 0)
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	debug.SetMemoryLimit(goBytes() + 1<<20)
	_, err := open(t, Config{}).Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), nil)
	if fault.CodeOf(err) != fault.OutOfMemory {
		t.Errorf("got %v", err)
	}

	// A rod that lies askew has few voxels, and the box around it many.
	rod := blob([3]int{600, 12, 12}, 0)
	rod.Direction = [9]float64{0.8, -0.6, 0, 0.48, 0.64, -0.6, 0.36, 0.48, 0.8}
	debug.SetMemoryLimit(goBytes() + 1<<30)
	_, err = open(t, Config{}).Register(context.Background(), Pair{Fixed: rod, Moving: rod}, with(nil), nil)
	if fault.CodeOf(err) != fault.OutOfMemory {
		t.Errorf("a rod: got %v", err)
	}
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

func TestTrajectories(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
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

// Eight at once, on one engine, agree to the bit with one alone.
func TestConcurrent(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	size := [3]int{24, 20, 16}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 3)}
	opt := with(func(o *Options) { o.Model, o.Initial, o.Trajectories = tiny, "com", 2 })
	want := register(t, e, p, opt)
	percent := debug.SetGCPercent(90)
	defer debug.SetGCPercent(percent)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := e.Register(context.Background(), p, opt, func(Progress) bool { return true })
			if err != nil {
				t.Error(err)
			} else if !slices.Equal(r.Field.Data, want.Field.Data) || !slices.Equal(r.Warped.Data, want.Warped.Data) {
				t.Error("a concurrent registration differs")
			}
		})
	}
	wg.Wait()
	if got := debug.SetGCPercent(90); got != 90 {
		t.Errorf("the collector was left at %d %%", got)
	}
}

// goroutine names the calling goroutine: "goroutine 12".
func goroutine() string {
	buffer := make([]byte, 32)
	head, _, _ := bytes.Cut(buffer[:runtime.Stack(buffer, false)], []byte(" ["))
	return string(head)
}

func TestProgress(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	p := Pair{Fixed: blob([3]int{40, 36, 32}, 0), Moving: blob([3]int{40, 36, 32}, 3)}
	me := goroutine()
	var stages []string
	last := 0.0
	_, err := e.Register(context.Background(), p, with(func(o *Options) { o.Model, o.Initial = tiny, "affine" }), func(p Progress) bool {
		if g := goroutine(); g != me {
			t.Errorf("called on %s, not on %s", g, me)
		}
		if !(p.Fraction >= last && p.Fraction <= 1) {
			t.Errorf("fraction %g after %g", p.Fraction, last)
		}
		last = p.Fraction
		if len(stages) == 0 || stages[len(stages)-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"align", "network", "finish"}; !slices.Equal(stages, want) || last != 1 {
		t.Errorf("stages %v up to %g, want %v", stages, last, want)
	}
}

// A caller hears of a registration, and can cancel it, before the volumes have been looked at.
func TestProgressBegins(t *testing.T) {
	e := open(t, Config{})
	v := blob([3]int{16, 16, 16}, 0)
	v.Spacing[0] = -1
	heard := 0
	if _, err := e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), func(Progress) bool { heard++; return true }); fault.CodeOf(err) != fault.InvalidSpacing || heard == 0 {
		t.Errorf("%v after %d reports", err, heard)
	}
}

// A manifest asks for more latent values than any memory has: an error, where Go's allocator would end the process.
func TestLatentMemory(t *testing.T) {
	size := [3]int{96, 96, 96}
	m := network.Model{Manifest: network.Manifest{Latent: network.Latent{Channels: 1 << 16, Stride: 1}, SizeMultiple: 1, Steps: 3}, Loops: true}
	r := registration{ctx: context.Background(), pair: Pair{Fixed: blob(size, 0), Moving: blob(size, 1)}, opt: with(nil), report: newReporter(), model: &m}
	if err := r.prepare(); fault.CodeOf(err) != fault.OutOfMemory {
		t.Errorf("got %v", err)
	}
}

// Cancelled in each stage, by the progress function or the context, a registration ends with Cancelled and leaves no goroutine.
func TestCancel(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	size := [3]int{32, 32, 32}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 3)}
	cache := t.TempDir()
	opt := with(func(o *Options) {
		o.Model, o.Initial, o.Search, o.Refine, o.Cache, o.Steps = tiny, "com", "on", 50, cache, 16
	})
	goroutines := runtime.NumGoroutine()
	for _, stage := range []string{"align", "search", "network", "refine", "finish"} {
		for _, byContext := range []bool{false, true} {
			ctx, cancel := context.WithCancel(context.Background())
			r, err := e.Register(ctx, p, opt, func(p Progress) bool {
				if p.Stage != stage {
					return true
				}
				if byContext {
					cancel()
				}
				return byContext
			})
			if fault.CodeOf(err) != fault.Cancelled || r != nil {
				t.Errorf("cancelled in %s (by context: %v): %v", stage, byContext, err)
			}
			cancel()
		}
	}
	noneLeft(t, goroutines)
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("left in the cache: %v", left)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Register(ctx, p, opt, nil); fault.CodeOf(err) != fault.Cancelled {
		t.Errorf("cancelled before: %v", err)
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

func TestPanicStaysInside(t *testing.T) {
	v := blob([3]int{16, 16, 16}, 0)
	e := open(t, Config{})
	goroutines := runtime.NumGoroutine()
	_, err := e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), func(Progress) bool { panic("in the callback") })
	if fault.CodeOf(err) != fault.Internal || !strings.Contains(err.Error(), "in the callback") {
		t.Errorf("got %v", err)
	}
	noneLeft(t, goroutines)
	if _, err := (&Result{}).JacobianDeterminant(); fault.CodeOf(err) != fault.Internal {
		t.Errorf("a result without a field: %v", err)
	}
}

func TestCache(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	size := [3]int{20, 16, 16}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 2)}
	dir := t.TempDir()
	opt := with(func(o *Options) { o.Model, o.Cache = tiny, dir })
	files := func() []string {
		found, _ := filepath.Glob(filepath.Join(dir, "*"))
		return found
	}
	fresh := register(t, e, p, opt)
	if fresh.Metrics.Cached || len(files()) != 1 {
		t.Fatalf("cached %v, files %v", fresh.Metrics.Cached, files())
	}
	files0 := files()[0]
	cached := register(t, e, p, opt)
	if !cached.Metrics.Cached {
		t.Fatal("computed twice")
	}
	cached.Metrics.Cached = false
	if !reflect.DeepEqual(cached, fresh) {
		t.Errorf("cached and fresh differ:\n%+v\n%+v", cached.Metrics, fresh.Metrics)
	}

	t.Run("damaged", func(t *testing.T) {
		if err := os.Truncate(files()[0], 1000); err != nil {
			t.Fatal(err)
		}
		if r := register(t, e, p, opt); r.Metrics.Cached || !slices.Equal(r.Field.Data, fresh.Field.Data) {
			t.Error("a damaged file was used")
		}
		if !register(t, e, p, opt).Metrics.Cached {
			t.Error("a damaged file was not replaced")
		}
	})
	t.Run("of another pair on the same grids", func(t *testing.T) {
		elsewhere := with(func(o *Options) { *o = opt; o.Cache = t.TempDir() })
		register(t, e, Pair{Fixed: blob(size, 0), Moving: blob(size, 1)}, elsewhere)
		others, _ := filepath.Glob(filepath.Join(elsewhere.Cache, "*"))
		if err := os.Rename(others[0], files()[0]); err != nil {
			t.Fatal(err)
		}
		if r := register(t, e, p, opt); r.Metrics.Cached || !slices.Equal(r.Field.Data, fresh.Field.Data) {
			t.Error("another pair's result was taken for this one's")
		}
	})
	t.Run("linked", func(t *testing.T) {
		moved := filepath.Join(t.TempDir(), "moved")
		if err := os.Rename(files()[0], moved); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(moved, files0); err != nil {
			t.Skip(err)
		}
		if register(t, e, p, opt).Metrics.Cached {
			t.Error("a link was followed")
		}
		if info, err := os.Lstat(files0); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the link was not replaced: %v, %v", info, err)
		}
	})
	t.Run("for its owner alone", func(t *testing.T) {
		if info, err := os.Stat(files()[0]); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%v, %v", info, err)
		}
	})
	t.Run("of another pair", func(t *testing.T) {
		elsewhere := with(func(o *Options) { *o = opt; o.Cache = t.TempDir() })
		register(t, e, Pair{Fixed: blob([3]int{24, 20, 16}, 0), Moving: p.Moving}, elsewhere)
		others, _ := filepath.Glob(filepath.Join(elsewhere.Cache, "*"))
		if err := os.Rename(others[0], files()[0]); err != nil {
			t.Fatal(err)
		}
		if r := register(t, e, p, opt); r.Metrics.Cached || !slices.Equal(r.Field.Data, fresh.Field.Data) {
			t.Error("another pair's result was taken for this one's")
		}
	})
	for name, change := range map[string]func(*Pair, *Options){
		"voxel":       func(p *Pair, _ *Options) { p.Moving = blob(size, 2); p.Moving.Data[7]++ },
		"geometry":    func(p *Pair, _ *Options) { p.Moving = blob(size, 2); p.Moving.Origin[2] += 1e-3 },
		"mask":        func(p *Pair, _ *Options) { p.FixedMask = p.Fixed },
		"other mask":  func(p *Pair, _ *Options) { p.MovingMask = p.Moving },
		"initial":     func(p *Pair, _ *Options) { a := volume.IdentityAffine(); p.Initial = &a },
		"seed":        func(_ *Pair, o *Options) { o.Seed = 1 },
		"model":       func(_ *Pair, o *Options) { o.Model = "none" },
		"threads":     func(_ *Pair, o *Options) { o.Threads = 1 },
		"steps":       func(_ *Pair, o *Options) { o.Steps = 1 },
		"smoothness":  func(_ *Pair, o *Options) { o.Smoothness = "low" },
		"nothing":     func(*Pair, *Options) {},
		"cache place": func(_ *Pair, o *Options) { o.Cache += string(filepath.Separator) },
	} {
		q, o := p, opt
		change(&q, &o)
		same := name == "nothing" || name == "cache place"
		if r := register(t, e, q, o); r.Metrics.Cached != same {
			t.Errorf("with another %s: cached is %v", name, r.Metrics.Cached)
		}
	}
	t.Run("threads", func(t *testing.T) {
		o := with(func(o *Options) { o.Cache, o.Threads = dir, 1 })
		register(t, e, p, o)
		o.Threads = 2
		if r := register(t, e, p, o); !r.Metrics.Cached || r.Metrics.Threads != 2 {
			t.Errorf("without a network, on other threads: cached %v, %d threads", r.Metrics.Cached, r.Metrics.Threads)
		}
	})
	t.Run("number in another text", func(t *testing.T) {
		path := func(smoothness string) string {
			return cachePath(p, with(func(o *Options) { o.Smoothness = smoothness }), nil)
		}
		if path("2.5") != path("2.50") || path("2.5") == path("2.6") {
			t.Error("2.5 mm and 2.50 mm are one smoothness, 2.6 mm is another")
		}
	})
	t.Run("manifest", func(t *testing.T) {
		// The same network, told to look at the image in another way.
		bundle, err := os.ReadFile(tiny)
		if err != nil {
			t.Fatal(err)
		}
		other := bytes.Replace(bundle, []byte(`"high": 99,`), []byte(`"high": 55,`), 1)
		o := opt
		o.Model = filepath.Join(t.TempDir(), "tiny.onnx")
		if err := os.WriteFile(o.Model, other, 0o600); err != nil || bytes.Equal(other, bundle) {
			t.Fatal("no other manifest", err)
		}
		if r := register(t, e, p, o); r.Metrics.Cached {
			t.Error("one model's result was given out for another's")
		}
	})
	t.Run("folder to be made", func(t *testing.T) {
		o := opt
		o.Cache = filepath.Join(dir, "new", "folder")
		register(t, e, p, o)
		if info, err := os.Stat(o.Cache); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("cache folder: %v, %v", info, err)
		}
		if !register(t, e, p, o).Metrics.Cached {
			t.Error("nothing was kept")
		}
	})
	t.Run("folder of everybody", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("there are no such modes")
		}
		o := opt
		o.Cache = t.TempDir()
		register(t, e, p, o)
		if err := os.Chmod(o.Cache, 0o777); err != nil {
			t.Fatal(err)
		}
		r := register(t, e, p, o)
		if r.Metrics.Cached || len(r.Metrics.Warnings) == 0 || !strings.Contains(r.Metrics.Warnings[0], "anybody can write") {
			t.Errorf("cached %v, warnings %q", r.Metrics.Cached, r.Metrics.Warnings)
		}
		if err := os.Chmod(o.Cache, 0o770); err != nil {
			t.Fatal(err)
		}
		if !register(t, e, p, o).Metrics.Cached {
			t.Error("a group's cache was not used")
		}
	})
	opt.Cache = files()[0] // a file
	if r := register(t, e, p, opt); len(r.Metrics.Warnings) == 0 || !strings.Contains(r.Metrics.Warnings[len(r.Metrics.Warnings)-1], "not kept") {
		t.Errorf("warnings %q", r.Metrics.Warnings)
	}
}

// What was used longest ago goes when a cache folder is full; what is not of the cache stays.
func TestCacheIsBounded(t *testing.T) {
	e := open(t, Config{})
	size := [3]int{20, 16, 16}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 1)}
	r := register(t, e, p, with(nil))
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("notes.txt"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"0": 25 * time.Hour, "1": time.Hour} { // of a process that was killed, and of one at work
		name = file(snapshot.Temporary + name)
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Now().Add(-age), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	const ample = 1 << 40
	for i, name := range []string{"a", "b", "c"} {
		if err := keep(r, file(name+cacheEnding), ample); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(file(name+cacheEnding), then, then); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(file("a" + cacheEnding))
	if err != nil {
		t.Fatal(err)
	}
	if fromCache(file("a"+cacheEnding), p, with(nil)) == nil { // now b is the one used longest ago
		t.Fatal("nothing read")
	}
	if err := keep(r, file("d"+cacheEnding), 3*info.Size()); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if want := []string{snapshot.Temporary + "1", "a" + cacheEnding, "c" + cacheEnding, "d" + cacheEnding, "notes.txt"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	if err := keep(r, file("e"+cacheEnding), 1); err != nil {
		t.Fatal(err)
	}
	if found, _ := filepath.Glob(file("*" + cacheEnding)); len(found) != 1 || found[0] != file("e"+cacheEnding) {
		t.Errorf("a result larger than the limit leaves %v, want it alone", found)
	}
}

func TestResult(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testort.Library(t)})
	p := Pair{Fixed: blob([3]int{24, 20, 16}, 0), Moving: blob([3]int{22, 24, 14}, 2)}
	p.Initial = &volume.Affine{M: [9]float64{1.02, 0.05, 0, -0.05, 0.99, 0, 0, 0, 1}, T: [3]float64{1, 0.5, -1}}
	r := register(t, e, p, with(withTiny))

	path := filepath.Join(t.TempDir(), "result")
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	back, err := LoadResult(path)
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("restored differs: %v", err)
	}

	warped, err := r.Warp(p.Moving, volume.Linear, slices.Min(p.Moving.Data))
	if err != nil || !slices.Equal(warped.Data, r.Warped.Data) {
		t.Errorf("warping the moving image again differs from the result's: %v", err)
	}
	if _, err := r.Warp(nil, volume.Linear, 0); fault.CodeOf(err) != fault.EmptyVolume {
		t.Errorf("warping nothing: %v", err)
	}
	if err := r.TransformPoints(make([]float64, 4)); fault.CodeOf(err) != fault.InvalidArgument {
		t.Errorf("a point and a third: %v", err)
	}
	det, err := r.JacobianDeterminant()
	if err != nil || math.Abs(float64(slices.Min(det.Data))-r.Metrics.JacobianMin) > 1e-6 {
		t.Errorf("least determinant %g, metrics say %g (%v)", slices.Min(det.Data), r.Metrics.JacobianMin, err)
	}

	inverse, residual, err := r.Inverse()
	if err != nil || !inverse.Field.SameGrid(p.Moving.Geometry) {
		t.Fatalf("inverse: %v", err)
	}
	if inverse.Threads != r.Threads || r.Threads == 0 {
		t.Errorf("the inverse has %d threads, what it was made from %d", inverse.Threads, r.Threads)
	}
	points := []float64{-8, 15, 11}
	if err := inverse.TransformPoints(points); err != nil {
		t.Fatal(err)
	}
	if err := r.TransformPoints(points); err != nil {
		t.Fatal(err)
	}
	for a, want := range []float64{-8, 15, 11} { // between voxels the two are interpolated
		if math.Abs(points[a]-want) > 0.3+residual {
			t.Errorf("there and back: %v, residual %g", points, residual)
		}
	}
}

func TestModels(t *testing.T) {
	e := open(t, Config{ModelDir: "internal/network/testdata"})
	faulty, sound := 0, 0
	models, err := e.ListModels()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models {
		if (m.Error == "") != (m.Code == fault.OK) {
			t.Errorf("%+v", m)
		}
		if m.Path == "" && m.Code != fault.OK {
			t.Errorf("built-in %s: %s", m.Manifest.Name, m.Error)
		}
		if m.Code != fault.OK {
			faulty++
		} else if m.Manifest.Name == "tiny" {
			sound++
		}
	}
	if faulty != 1 || sound != 3 { // tiny.onnx; loop.onnx and offset.onnx, which take several steps in a run
		t.Errorf("%d faulty and %d tiny models listed", faulty, sound)
	}
	if m, err := e.VerifyModel("tiny"); err != nil || m.Manifest.Name != "tiny" || m.Path == "" {
		t.Errorf("VerifyModel: %+v, %v", m, err)
	}
	if _, err := e.VerifyModel("external"); fault.CodeOf(err) != fault.ModelExternal {
		t.Errorf("VerifyModel: %v", err)
	}
}

// A zigzag whose folds lie between the points of its own grid: central differences there do not see them.
// TestThinMaskIsMeasured: in a large image a mask of one slice lies between the voxels at which similarity is measured.
func TestThinMaskIsMeasured(t *testing.T) {
	size := [3]int{130, 130, 130}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 2)}
	for _, z := range []int{60, 61} {
		p.FixedMask = volume.Zeros(p.Fixed.Geometry)
		for i := range size[0] * size[1] {
			p.FixedMask.Data[z*size[0]*size[1]+i] = 1
		}
		m := register(t, open(t, Config{}), p, with(nil)).Metrics
		f, g := slice(p.Fixed, z), slice(p.Moving, z)
		want := metric.LocalNCC(f, g, nil, 4, 1)
		if !m.Align.SameModality {
			_, want = metric.MutualInformation(f, g, nil, 32, 1)
		}
		if math.Abs(m.SimilarityBefore-want) > 1e-6 {
			t.Errorf("slice %d: similarity %g, its own %g", z, m.SimilarityBefore, want)
		}
	}
}

// slice is slice z of v, a volume by itself.
func slice(v *volume.Volume, z int) *volume.Volume {
	n := v.Size[0] * v.Size[1]
	s := &volume.Volume{Geometry: v.Geometry, Data: v.Data[z*n : (z+1)*n]}
	s.Size[2] = 1
	return s
}

// TestCompressionIsNoFold: what a network compresses to a two-hundredth stays as it is.
func TestCompressionIsNoFold(t *testing.T) {
	fixed := volume.Zeros(volume.Geometry{Size: [3]int{17, 16, 16}, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity})
	deform := field.New(fixed.Geometry)
	for i := range deform.X {
		deform.X[i] = 0.995 * float32(cmp.Compare(8, i%17))
	}
	r := &registration{fixed: fixed, initial: volume.IdentityAffine(), opt: with(nil)}
	want := slices.Clone(deform.X)
	total := r.total(deform)
	if j := total.Stats(1).JacobianMin; math.Abs(j-0.005) > 1e-5 {
		t.Errorf("least determinant %g", j)
	}
	for i, x := range total.X {
		if math.Abs(float64(x-want[i])) > 1e-5 {
			t.Fatalf("voxel %d: displacement %g became %g", i, want[i], x)
		}
	}
}

func TestFoldsBetweenGridPointsAreOpened(t *testing.T) {
	coarse := field.New(volume.Geometry{Size: [3]int{16, 16, 16}, Spacing: [3]float64{2, 2, 2}, Direction: volume.Identity})
	for i := range coarse.X {
		coarse.X[i] = 1.2 * float32(i%2)
	}
	if j := coarse.Stats(1).JacobianMin; j < 0.5 {
		t.Fatalf("the field folds at its own points already: %g", j)
	}
	fixed := volume.Zeros(volume.Geometry{Size: [3]int{64, 64, 32}, Spacing: [3]float64{0.5, 0.5, 1}, Direction: volume.Identity})
	initial := volume.Affine{M: [9]float64{1.2, 0.1, 0, -0.1, 0.9, 0, 0, 0, 1}, T: [3]float64{3, 0, -1}}
	if j := field.Total(initial, coarse, fixed.Geometry, 1).Stats(1).NJDPercent; j < 1 {
		t.Fatalf("nothing folds on the fixed grid: %g %%", j)
	}
	r := &registration{fixed: fixed, initial: initial, opt: with(nil)}
	total := r.total(coarse).Stats(1)
	if total.NJDPercent > 0 || total.JacobianMin < 0.9*minJacobian*initial.Det() {
		t.Errorf("%g %% folds, least determinant %g", total.NJDPercent, total.JacobianMin)
	}
}
