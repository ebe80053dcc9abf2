package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// register.bin holds a registration by torch, numpy and scipy: intensities normalised by percentiles, three chained
// steps of the bundle from the identity, one warp; and the field of the bundle that displaces the images from step to
// step.
func TestRegisterGolden(t *testing.T) {
	data := testkit.Must(os.ReadFile("internal/network/testdata/register.bin"))(t)
	size := [3]int{16, 8, 12}
	n := size[0] * size[1] * size[2]
	values := make([]float32, 9*n)
	testkit.OK(t, binary.Read(bytes.NewReader(data), binary.LittleEndian, values))
	g := volume.Geometry{Size: size, Spacing: [3]float64{1.5, 1, 2}, Origin: [3]float64{3, -4, 50}, Direction: volume.Identity}
	p := Pair{Fixed: &volume.Volume{Geometry: g, Data: values[:n]}, Moving: &volume.Volume{Geometry: g, Data: values[n : 2*n]}}
	u, warped, offset := values[2*n:5*n], values[5*n:6*n], values[6*n:]

	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	other := register(t, e, p, with(func(o *Options) { o.Model = "internal/network/testdata/offset.onnx" }))
	testkit.Close(t, "torch's field of the bundle that displaces the images", other.Field.Data, offset, 1e-4)
	r := register(t, e, p, with(withTiny))
	testkit.Close(t, "torch's field", r.Field.Data, u, 1e-4)
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

func TestIdentity(t *testing.T) {
	v := blob([3]int{20, 18, 16}, 0)
	r := register(t, open(t, Config{}), Pair{Fixed: v, Moving: v}, with(nil))
	testkit.Close(t, "the field and none", r.Field.Data, make([]float32, len(r.Field.Data)), 1e-5)
	testkit.Close(t, "the warped image and the image", r.Warped.Data, v.Data, 1e-2)
	if r.Metrics.Model != "none" || !slices.Equal(r.Metrics.Warnings, []string{sameImage}) {
		t.Errorf("metrics %+v", r.Metrics)
	}
}

// One pair of images has one alignment, in whatever order a file keeps their axes.
func TestOrderOfAxes(t *testing.T) {
	long(t)
	t.Parallel()
	turned := func(v *volume.Volume) *volume.Volume { return testkit.Reordered(v, [3]int{2, 0, 1}, [3]bool{true}) }
	asIs := func(v *volume.Volume) *volume.Volume { return v }
	fixed, moving := blob([3]int{34, 30, 26}, 0), blob([3]int{36, 30, 28}, 3)
	mask := volume.Zeros(fixed.Geometry)
	for i := range mask.Data {
		if fixed.Data[i] > 5 || i%34 < 12 {
			mask.Data[i] = 1
		}
	}
	e := open(t, Config{})
	opt := with(func(o *Options) { o.Initial, o.Search, o.Refine, o.Uncertainty = "affine", "on", 10, "on" })
	for _, masked := range []bool{false, true} {
		t.Run(fmt.Sprintf("masked %v", masked), func(t *testing.T) {
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
					at := fixed.IndexToPhysical().Apply(fixed.Point(i))
					points = append(points, at[:]...)
				}
				r.Field.TransformPoints(points)
				sum := r.Metrics.Uncertainty.MeanMM
				if want == nil {
					want, uncertain = points, sum
					continue
				}
				testkit.Close(t, "points", points, want, 1e-4)
				if math.Abs(sum-uncertain) > 1e-4 {
					t.Errorf("mask: %v: uncertainty of %g mm, %g in another order", masked, sum, uncertain)
				}
			}
		})
	}
}

// Units do not matter, however odd: to a power of two, not one bit of the result.
func TestIntensitiesOfAnyScale(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(24, 2, false)
	e := open(t, Config{})
	run := func(by float32) *Result {
		scaled := func(v *volume.Volume) *volume.Volume {
			return testkit.Filled(v.Geometry, func(i int) float32 { return by * v.Data[i] })
		}
		return register(t, e, Pair{Fixed: scaled(fixed), Moving: scaled(moving)}, with(func(o *Options) { o.Initial, o.Search, o.Refine = "affine", "on", 2 }))
	}
	want := run(1)
	for _, exponent := range []int{90, 60, -60, -80} {
		t.Run(fmt.Sprintf("times 2^%d", exponent), func(t *testing.T) {
			if got := run(float32(math.Ldexp(1, exponent))); !slices.Equal(got.Field.Data, want.Field.Data) || got.Initial != want.Initial {
				t.Errorf("another result")
			}
		})
	}
}

// Odd volumes that are none of the above get a result.
func TestOddVolumes(t *testing.T) {
	t.Parallel()
	inverted := func(v *volume.Volume) *volume.Volume {
		return testkit.Filled(v.Geometry, func(i int) float32 { return 200 - v.Data[i] })
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
	whole := blob([3]int{20, 20, 20}, 1)
	for name, p := range map[string]Pair{
		"slab of 2 slices":       {Fixed: inverted(blob([3]int{20, 20, 2}, 0)), Moving: whole},
		"slab of 4 slices":       {Fixed: inverted(blob([3]int{20, 20, 4}, 0)), Moving: whole},
		"onto a slab":            {Fixed: whole, Moving: inverted(blob([3]int{20, 20, 3}, 0))},
		"eight voxels":           {Fixed: inverted(blob([3]int{2, 2, 2}, 0)), Moving: whole},
		"voxels of a nanometre":  {Fixed: shrunk(whole, 1e-6), Moving: shrunk(blob([3]int{20, 20, 20}, 0), 1e-6)},
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
