package volume_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func TestShown(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texture := func(size [3]int) *volume.Volume {
		return testkit.Filled(volume.Geometry{Size: size, Spacing: [3]float64{1, 2, 3}, Direction: volume.Identity}, func(i int) float32 { return 100 + 900*random.Float32() })
	}
	constant := func(value float32) func(float32) float32 { return func(float32) float32 { return value } }
	box := func(lo, hi [3]int) volume.Box { return volume.Box{Lo: lo, Hi: hi} }
	body, long, slice := texture([3]int{20, 17, 12}), [3]int{80, 17, 12}, [3]int{30, 20, 1}
	ended := func(size [3]int) *volume.Volume { // a body that ends within its image
		v := texture(size)
		for i := range v.Data {
			square := 0.0
			for a, x := range v.Point(i) {
				square += math.Pow((2*x-float64(size[a]-1))/float64(size[a]), 2)
			}
			if square > 1 {
				v.Data[i] = 0
			}
		}
		return v
	}
	close := ball(32, func() float32 { return 0 }).Cropped(box([3]int{3, 3, 3}, [3]int{29, 29, 29}))
	extruded := texture([3]int{9, 9, 1})
	extruded.Size[2] = 4
	for range 3 {
		extruded.Data = append(extruded.Data, extruded.Data[:81]...)
	}
	for _, c := range []struct {
		name string
		v    *volume.Volume
		want volume.Box
	}{
		{"no padding", body, box([3]int{}, body.Size)},
		{"planes that repeat", testkit.Padded(body, 1, 2, func(x float32) float32 { return x }), box([3]int{1, 1, 1}, [3]int{21, 18, 13})},
		{"zeros, of which some stay", testkit.Padded(ended(long), 6, 9, constant(0)), box([3]int{2, 5, 5}, [3]int{90, 24, 19})},
		{"fewer zeros than stay: as many lie beyond", testkit.Padded(ended(long), 1, 2, constant(0)), box([3]int{-3, 0, 0}, [3]int{85, 19, 14})},
		{"cut close around what zeros surround", close, box([3]int{-1, -1, -1}, [3]int{27, 27, 27})},
		{"cut through it", close.Cropped(box([3]int{0, 9, 0}, [3]int{26, 26, 26})), box([3]int{}, [3]int{26, 17, 26})},
		{"noise of a thousandth of the range", testkit.Padded(ended(body.Size), 3, 4, func(float32) float32 { return 0.9 * float32(random.NormFloat64()) }), box([3]int{2, 2, 2}, [3]int{24, 21, 16})},
		{"a frame of one voxel", testkit.Padded(body, 1, 1, constant(0)), box([3]int{1, 1, 1}, [3]int{21, 18, 13})},
		{"a bright frame, wider behind", testkit.Padded(body, 1, 6, constant(1200)), box([3]int{1, 1, 1}, [3]int{21, 18, 13})},
		{"a frame of noise of a thousandth", testkit.Padded(body, 3, 4, func(float32) float32 { return 0.9 * float32(random.NormFloat64()) }), box([3]int{3, 3, 3}, [3]int{23, 20, 15})},
		{"a slice's frame", testkit.Padded(texture(slice), 2, 5, constant(0)), box([3]int{2, 2, 0}, [3]int{32, 22, 1})},
		{"NaN", testkit.Padded(body, 2, 1, constant(nan)), box([3]int{2, 2, 2}, [3]int{22, 19, 14})},
		{"a slice", testkit.Padded(ended(slice), 2, 5, constant(0)), box([3]int{0, 1, 0}, [3]int{34, 23, 1})},
		{"alike along an axis", extruded, box([3]int{}, extruded.Size)},
		{"constant", volume.Zeros(testkit.Grid([3]int{7, 6, 5})), box([3]int{}, [3]int{7, 6, 5})},
	} {
		if got := c.v.Shown(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestCropped(t *testing.T) {
	v := testkit.Filled(volume.Geometry{Size: [3]int{4, 3, 5}, Spacing: [3]float64{1, 2, 3}, Origin: [3]float64{7, 8, 9}, Direction: [9]float64{0, 1, 0, 1, 0, 0, 0, 0, -1}}, func(i int) float32 { return float32(i) })
	part := v.Cropped(volume.Box{Lo: [3]int{1, 0, 2}, Hi: [3]int{4, 2, 4}})
	for i, x := range part.Data {
		at := func(p [3]int) [3]float64 { return [3]float64{float64(p[0]), float64(p[1]), float64(p[2])} }
		where := part.IndexToPhysical().Apply(at(part.Index(i)))
		if want := v.IndexToPhysical().Apply(at(v.Index(int(x)))); where != want {
			t.Errorf("voxel %d lies at %v, want %v", i, where, want)
		}
	}
	// Beyond stand the medians of the outermost planes: of 0, 4 .. 56 and of 48 .. 59.
	if below := v.Cropped(volume.Box{Lo: [3]int{-1, 0, 0}, Hi: v.Size}); below.Data[0] != 28 || below.Data[1] != 0 {
		t.Errorf("below: %g", below.Data[:5])
	}
	if above := v.Cropped(volume.Box{Hi: [3]int{4, 3, 6}}); above.Data[59] != 59 || above.Data[60] != 53.5 {
		t.Errorf("above: %g", above.Data[59:])
	}
	if whole := v.Cropped(volume.Box{Hi: v.Size}); whole != v {
		t.Error("the whole box copies")
	}
}

// Lost slices become what lies between their neighbours; wider gaps, and blank planes at an edge, stay.
func TestLostSlices(t *testing.T) {
	ramp := func() *volume.Volume {
		v := volume.Zeros(volume.Geometry{Size: [3]int{9, 8, 12}, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity})
		for i := range v.Data {
			at := v.Index(i)
			v.Data[i] = float32(5 + at[0] + 2*at[1] + 3*at[2])
		}
		return v
	}
	for name, c := range map[string]struct {
		axis   int
		lost   []int
		value  float32
		mended bool
	}{
		"none": {mended: true}, "one": {2, []int{5}, 0, true}, "two, and one": {2, []int{3, 4, 8}, 0, true}, "rows": {0, []int{4}, 99, true},
		"not a number": {1, []int{2}, nan, true}, "a gap": {2, []int{4, 5, 6}, 0, false}, "the first": {2, []int{0}, 0, false}, "the last two": {2, []int{10, 11}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, want := ramp(), ramp()
			for i := range v.Data {
				if slices.Contains(c.lost, v.Index(i)[c.axis]) {
					v.Data[i] = c.value
				}
			}
			got := v.Plausible()
			if !c.mended {
				want = v
			}
			for i, x := range got.Data {
				if math.Abs(float64(x-want.Data[i])) > 1e-4 {
					t.Fatalf("voxel %v is %g, want %g", v.Index(i), x, want.Data[i])
				}
			}
			if (got == v) != (len(c.lost) == 0 || !c.mended) {
				t.Error("copied for nothing, or not at all")
			}
		})
	}
}

// Voxels that are not finite, one or two in a row along any axis, become what lies between their neighbours; larger holes stay.
func TestFailedVoxels(t *testing.T) {
	ramp := volume.Zeros(testkit.Grid([3]int{9, 8, 12}))
	for i := range ramp.Data {
		at := ramp.Index(i)
		ramp.Data[i] = float32(5 + at[0] + 2*at[1] + 3*at[2])
	}
	for name, c := range map[string]struct {
		lost   [][3]int
		mended bool
	}{
		"one": {[][3]int{{4, 4, 4}}, true}, "two in a row, and one at an edge": {[][3]int{{4, 4, 4}, {5, 4, 4}, {0, 2, 7}}, true},
		"a thin rod": {[][3]int{{4, 4, 2}, {4, 4, 3}, {4, 4, 4}, {4, 4, 5}}, true}, "a corner": {[][3]int{{0, 0, 0}}, false},
	} {
		v := &volume.Volume{Geometry: ramp.Geometry, Data: slices.Clone(ramp.Data)}
		for _, p := range c.lost {
			v.Data[(p[2]*8+p[1])*9+p[0]] = nan
		}
		got := v.Plausible()
		if !c.mended {
			if got != v {
				t.Errorf("%s: not left as it is", name)
			}
			continue
		}
		for i, x := range got.Data {
			if !(math.Abs(float64(x-ramp.Data[i])) < 1e-4) {
				t.Errorf("%s: voxel %v is %g, want %g", name, v.Index(i), x, ramp.Data[i])
			}
		}
	}
	v := &volume.Volume{Geometry: ramp.Geometry, Data: slices.Clone(ramp.Data)}
	for i := range v.Data {
		if at := v.Index(i); min(at[0], at[1], at[2]) >= 3 && max(at[0], at[1], at[2]) <= 5 {
			v.Data[i] = nan
		}
	}
	if got := v.Plausible(); got != v {
		t.Error("a hole of three voxels a side was filled")
	}
	failed, vessel := volume.Zeros(ramp.Geometry), volume.Zeros(ramp.Geometry)
	for i, x := range ramp.Data {
		failed.Data[i], vessel.Data[i] = x, x
		if i%37 == 19 { // more than percentiles leave out
			failed.Data[i] = float32(1e4 * (1 + i%9))
		}
		if at := v.Index(i); at[1] == 4 && at[2] == 4 {
			vessel.Data[i] = 1e5
		}
	}
	testkit.Close(t, "fits that failed", failed.Plausible().Data, ramp.Data, 1e-4)
	for i, x := range vessel.Plausible().Data { // which is cut off, but stays brighter than all others
		if vessel.Data[i] == 1e5 && x < 50 {
			t.Error("a vessel is no failed fit")
		}
	}
}
