package volume_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func cube(n int, spacing float64) volume.Geometry {
	return volume.Geometry{Size: [3]int{n, n, n}, Spacing: [3]float64{spacing, spacing, spacing}, Direction: volume.Identity}
}

func TestCheckNamesTheFault(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(v *volume.Volume)
		want  fault.Code
	}{
		{"good", func(v *volume.Volume) {}, fault.OK},
		{"some voxels not finite", func(v *volume.Volume) { v.Data[1], v.Data[2] = nan, inf }, fault.OK},
		{"no voxels", func(v *volume.Volume) { v.Size[1] = 0 }, fault.EmptyVolume},
		{"short buffer", func(v *volume.Volume) { v.Data = v.Data[:7] }, fault.EmptyVolume},
		{"size overflows", func(v *volume.Volume) { v.Size = [3]int{1 << 30, 1 << 30, 1 << 30} }, fault.InvalidArgument},
		{"one slice", func(v *volume.Volume) { v.Size, v.Data = [3]int{4, 2, 1}, v.Data[:8] }, fault.OK},
		{"one row", func(v *volume.Volume) { v.Size, v.Data = [3]int{4, 1, 1}, v.Data[:4] }, fault.ThinVolume},
		{"zero spacing", func(v *volume.Volume) { v.Spacing[2] = 0 }, fault.InvalidSpacing},
		{"spacing in two units", func(v *volume.Volume) { v.Spacing = [3]float64{0.5, 0.5, 501} }, fault.InvalidSpacing},
		{"thick slices", func(v *volume.Volume) { v.Spacing = [3]float64{0.5, 0.5, 499} }, fault.OK},
		{"NaN spacing", func(v *volume.Volume) { v.Spacing[0] = math.NaN() }, fault.InvalidSpacing},
		{"infinite origin", func(v *volume.Volume) { v.Origin[0] = math.Inf(-1) }, fault.InvalidSpacing},
		{"no spacing to speak of", func(v *volume.Volume) { v.Spacing = [3]float64{1e-45, 1e-45, 1e-45} }, fault.InvalidSpacing},
		{"spacing beyond all", func(v *volume.Volume) { v.Spacing = [3]float64{1e300, 1e300, 1e300} }, fault.InvalidSpacing},
		{"origin beyond all", func(v *volume.Volume) { v.Origin[2] = -1e120 }, fault.InvalidSpacing},
		{"far origin", func(v *volume.Volume) { v.Origin[2] = -1e6 }, fault.OK},
		{"singular direction", func(v *volume.Volume) { v.Direction[4] = 0 }, fault.InvalidDirection},
		{"no direction", func(v *volume.Volume) { v.Direction = [9]float64{} }, fault.InvalidDirection},
		{"direction with a scale", func(v *volume.Volume) { v.Direction = [9]float64{2, 0, 0, 0, 2, 0, 0, 0, 2} }, fault.InvalidDirection},
		{"long, nearly parallel directions", func(v *volume.Volume) { v.Direction = [9]float64{1e3, 1e3, 0, 1e3, 1000.0000000001, 0, 0, 0, 10} }, fault.InvalidDirection},
		{"nearly parallel directions", func(v *volume.Volume) { v.Direction = [9]float64{1, 0.99999, 0, 0, 0.004472, 0, 0, 0, 1} }, fault.InvalidDirection},
		{"direction no number", func(v *volume.Volume) { v.Direction[0] = math.NaN() }, fault.InvalidDirection},
		{"direction of three digits", func(v *volume.Volume) {
			v.Direction = [9]float64{0.577, 0.707, 0.408, 0.577, -0.707, 0.408, 0.577, 0, -0.816}
		}, fault.OK},
		{"tilted gantry", func(v *volume.Volume) { v.Direction = [9]float64{1, 0, 0, 0, 1, 0.5, 0, 0, 0.866025} }, fault.OK},
		{"constant", func(v *volume.Volume) { v.Data[0] = 0 }, fault.ConstantVolume},
		{"nothing finite", func(v *volume.Volume) {
			for i := range v.Data {
				v.Data[i] = [2]float32{nan, -inf}[i%2]
			}
		}, fault.NonFiniteVolume},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := volume.Zeros(cube(2, 1))
			v.Data[0] = 1
			c.spoil(v)
			testkit.Fails(t, v.Check("fixed"), c.want, "fixed")
		})
	}
	var missing *volume.Volume
	testkit.Fails(t, missing.Check("moving"), fault.EmptyVolume)
}

func TestFiniteAndMinMax(t *testing.T) {
	clean := &volume.Volume{Data: []float32{3, -2, 5}}
	if clean.Finite(0) != clean {
		t.Error("a finite volume was copied")
	}
	dirty := &volume.Volume{Data: []float32{nan, 3, inf, -2, -inf}}
	if lo, hi := dirty.MinMax(); lo != -2 || hi != 3 {
		t.Errorf("MinMax %v %v, want -2 3", lo, hi)
	}
	for _, beyond := range [][]float32{{2e37, -2e37}, {2e37}, {-2e37}, {nan}, {}} {
		if lo, hi := (&volume.Volume{Data: beyond}).MinMax(); lo != inf || hi != -inf {
			t.Errorf("MinMax of %v is %v %v, want Inf -Inf", beyond, lo, hi)
		}
		if lo, hi := (&volume.Volume{Data: append(beyond, 4, 3)}).MinMax(); lo != 3 || hi != 4 {
			t.Errorf("MinMax of %v, 4 and 3 is %v %v", beyond, lo, hi)
		}
	}
	testkit.Close(t, "Finite", dirty.Finite(9).Data, []float32{9, 3, 9, -2, 9}, 0)
	if dirty.Data[4] != -inf {
		t.Error("Finite wrote to its input")
	}
	for _, p := range (&volume.Volume{Data: []float32{nan, inf}}).Percentiles(0, 50) {
		if !math.IsNaN(p) {
			t.Errorf("percentile of nothing is %v, want NaN", p)
		}
	}
}

func TestParseInterpolation(t *testing.T) {
	for name, want := range map[string]volume.Interpolation{"linear": volume.Linear, "nearest": volume.Nearest} {
		if got, err := volume.ParseInterpolation(name); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	testkit.Refused(volume.ParseInterpolation("cubic"))(t, fault.InvalidArgument)
}

func TestNetworkGrid(t *testing.T) {
	for _, c := range []struct {
		name     string
		size     [3]int
		own      [3]float64
		spacing  [3]float64
		minSize  [3]int
		multiple int
		want     [3]int
	}{
		{"as it is", [3]int{32, 64, 96}, [3]float64{1, 1, 1}, [3]float64{}, [3]int{}, 32, [3]int{32, 64, 96}},
		{"rounds up", [3]int{33, 64, 90}, [3]float64{1, 1, 1}, [3]float64{}, [3]int{}, 16, [3]int{48, 64, 96}},
		{"resampled", [3]int{100, 100, 30}, [3]float64{0.8, 0.8, 5}, [3]float64{2, 2, 2}, [3]int{}, 1, [3]int{40, 40, 75}},
		{"a rounding error is not a voxel", [3]int{3, 3, 3}, [3]float64{0.1, 0.1, 0.1}, [3]float64{0.1, 0.3, 0.1}, [3]int{}, 1, [3]int{3, 1, 3}},
		{"least size", [3]int{10, 10, 10}, [3]float64{1, 1, 1}, [3]float64{}, [3]int{16, 8, 17}, 8, [3]int{16, 16, 24}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := volume.Geometry{Size: c.size, Spacing: c.own, Origin: [3]float64{5, -7, 9}, Direction: volume.Identity}
			n := g.NetworkGrid(c.spacing, c.minSize, c.multiple)
			if n.Size != c.want {
				t.Errorf("size %v, want %v", n.Size, c.want)
			}
			got, want := n.Center(), g.Center()
			testkit.Close(t, c.name+" centre", got[:], want[:], 1e-9)
			for a := range 3 {
				if s := c.spacing[a]; s > 0 && n.Spacing[a] != s || s == 0 && n.Spacing[a] != c.own[a] {
					t.Errorf("spacing %v", n.Spacing)
				}
			}
		})
	}

	huge := cube(500, 1e6).NetworkGrid([3]float64{1e-3, 1e-3, 1e-3}, [3]int{}, 16)
	testkit.Fails(t, huge.Check("network"), fault.InvalidArgument)

	// An axial stack stored superior to inferior with x and y swapped: the network still sees L, P, S.
	swapped := volume.Geometry{Size: [3]int{8, 16, 24}, Spacing: [3]float64{1, 2, 3}, Direction: [9]float64{0, 1, 0, 1, 0, 0, 0, 0, -1}}
	n := swapped.NetworkGrid([3]float64{}, [3]int{}, 8)
	if n.Direction != volume.Identity || n.Size != [3]int{16, 8, 24} || n.Spacing != [3]float64{2, 1, 3} {
		t.Errorf("swapped axes: %+v", n)
	}
}

// The canonical order of a volume's axes is one, whatever order they are stored in.
func TestCanonicalIsOneWhateverTheOrder(t *testing.T) {
	c, s := math.Cos(0.3), math.Sin(0.3)
	for _, direction := range [][9]float64{volume.Identity, {c, -s, 0, s, c, 0, 0, 0, 1}} {
		t.Run(fmt.Sprint(direction), func(t *testing.T) {
			v := testkit.Filled(volume.Geometry{Size: [3]int{5, 4, 3}, Spacing: [3]float64{0.7, 1.1, 2.3}, Origin: [3]float64{-81.3, 40.1, 1e3 / 3}, Direction: direction}, func(i int) float32 { return float32(i) })
			want := v.Canonical()
			if !slices.Equal(want.Data, v.Data) || !want.SameGrid(v.Geometry) {
				t.Fatalf("a canonical volume became %v", want)
			}
			for _, perm := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
				for bits := range 8 {
					flip := [3]bool{bits&1 != 0, bits&2 != 0, bits&4 != 0}
					if got := testkit.Reordered(v, perm, flip).Canonical(); got.Geometry != want.Geometry || !slices.Equal(got.Data, want.Data) {
						t.Errorf("axes %v, reversed %v: %v %v, want %v %v", perm, flip, got.Geometry, got.Data, want.Geometry, want.Data)
					}
				}
			}
		})
	}
}

func TestHounsfield(t *testing.T) {
	// Shares of a slice: air, fat, lung, soft tissue, bone.
	torso := []float32{-1000, -990, -100, -80, -850, -820, 20, 40, 60, 45, 50, 700}
	for name, c := range map[string]struct {
		of   func(hu float32) float32
		want bool
	}{
		"CT": {func(x float32) float32 { return x }, true},
		"padded CT": {func(x float32) float32 {
			if x == -1000 {
				return -3024
			}
			return x
		}, true},
		"unsigned CT":        {func(x float32) float32 { return x + 1024 }, false},
		"windowed CT":        {func(x float32) float32 { return min(max(x, -125), 275) }, false},
		"magnetic resonance": {func(x float32) float32 { return max(0, x+200) }, false},
		"standard scores":    {func(x float32) float32 { return x / 500 }, false},
		"wide values":        {func(x float32) float32 { return x + max(0, x-600)*100 }, false},
		"nothing":            {func(float32) float32 { return float32(math.NaN()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := testkit.Filled(testkit.Grid([3]int{len(torso), 20, 20}), func(i int) float32 { return c.of(torso[i%len(torso)]) })
			if got := v.Hounsfield(); got != c.want {
				t.Error(got)
			}
		})
	}
}

// What is far beyond the other voxels, and a CT scanner's padding, tell nothing; bright vessels and a black background
// do.
func TestPlausible(t *testing.T) {
	const n = 20000
	every := func(step, count int, x float32) func([]float32) {
		return func(d []float32) {
			for i := range count {
				d[i*step] = x
			}
		}
	}
	atLeast := func(d []float32, least float32) {
		for i := range d {
			d[i] = max(d[i], least)
		}
	}
	for name, c := range map[string]struct {
		change func(data []float32)
		lo, hi float64
	}{
		"as it is":       {func([]float32) {}, -1000, 1000},
		"bright vessels": {every(300, 50, 6000), -1000, 6000},
		"dead pixels":    {every(300, 5, 1e6), -1000, 1000},
		"failed fits":    {every(300, 5, -1e6), -1000, 1000},
		"padding":        {every(5, n/5, -3024), -1000, 1000},
		"padding of a CT without air": {func(d []float32) {
			atLeast(d, -800)
			every(5, n/5, -3024)(d)
		}, -1024, 1000},
		"one very low":     {func(d []float32) { d[7] = -3024 }, -3024, 1000},
		"black background": {func(d []float32) { atLeast(d, 0) }, 0, 1000},
		"almost all black": {func(d []float32) {
			for i := range d {
				if i%997 != 0 {
					d[i] = 0
				}
			}
		}, -1000, 939},
		"a fill below a map": {func(d []float32) {
			for i := range d {
				if d[i] = float32(2 + math.Sin(float64(i)/9)); i%2000 < 500 {
					d[i] = -9999 + 1e-3*float32(i%7)
				}
			}
		}, 1, 3},
		"a fill above": {func(d []float32) {
			for i := range d {
				if d[i] = float32(200 + 100*math.Sin(float64(i)/9)); i%2000 < 500 {
					d[i] = 65535
				}
			}
		}, 100, 300},
		"a mask under noise": {func(d []float32) {
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range d {
				if d[i] = float32(0.01 * rng.NormFloat64()); i%2000 < 500 {
					d[i] += 100
				}
			}
		}, 0, 100},
		"not a number": {func(d []float32) { d[0] = float32(math.NaN()) }, -1000, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			v := volume.Zeros(testkit.Grid([3]int{n + 1, 1, 1}))
			for i := range v.Data {
				v.Data[i] = float32(-1000 + 2000*(i*7919%(n+1))/n)
			}
			c.change(v.Data)
			got := v.Plausible()
			lo, hi := got.MinMax()
			if math.Abs(float64(lo)-c.lo) > 15 || math.Abs(float64(hi)-c.hi) > 15 {
				t.Errorf("%g to %g, want %g to %g", lo, hi, c.lo, c.hi)
			}
			if least, most := v.MinMax(); (got == v) != (lo == least && hi == most) {
				t.Error("copied for nothing, or not at all")
			}
			if name == "not a number" && got.Data[0] == got.Data[0] {
				t.Error("NaN was replaced")
			}
		})
	}
}

func TestSameGrid(t *testing.T) {
	g := cube(10, 2)
	near, far, size := g, g, g
	near.Origin[0] = 1e-2 // spacing 2
	far.Origin[0] = 4e-2
	size.Size[2]++
	for _, c := range []struct {
		name string
		o    volume.Geometry
		want bool
	}{{"itself", g, true}, {"rounding", near, true}, {"shifted", far, false}, {"size", size, false}} {
		if g.SameGrid(c.o) != c.want {
			t.Errorf("%s: SameGrid is %v", c.name, !c.want)
		}
	}
}

// A grid of another parity meets both faces of a volume half a voxel from its outermost centres.
func TestResampleAtTheFaces(t *testing.T) {
	v := testkit.Filled(cube(5, 1), func(i int) float32 { return float32(1 + i%5) })
	g := cube(8, 1).CenteredAt(v.Center()) // x from -1.5 to 5.5
	g.Size[1], g.Size[2] = 1, 1
	g = g.CenteredAt(v.Center())
	for name, c := range map[string]struct {
		got  *volume.Volume
		want []float32
	}{
		"ITK's rule": {v.Resample(g, volume.IdentityAffine(), volume.Linear, -9, 1), []float32{-9, 1, 1.5, 2.5, 3.5, 4.5, -9, -9}},
		"closed":     {v.ResampleClosed(g, volume.IdentityAffine(), -9, 1), []float32{-9, 1, 1.5, 2.5, 3.5, 4.5, 5, -9}},
		"repeated":   {v.ResampleRepeated(g, volume.IdentityAffine(), 1), []float32{1, 1, 1.5, 2.5, 3.5, 4.5, 5, 5}},
	} {
		if !slices.Equal(c.got.Data, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got.Data, c.want)
		}
	}
}

// The spline goes through the voxels and repeats the border beyond them, on lines of one voxel, too.
func TestResampleSplineAtTheFaces(t *testing.T) {
	v := volume.Zeros(volume.Geometry{Size: [3]int{4, 1, 2}, Spacing: [3]float64{2, 3, 5}, Origin: [3]float64{7, 8, 9}, Direction: volume.Identity})
	copy(v.Data, []float32{3, -1, 4, 1, 5, 9, -2, 6})
	testkit.Close(t, "its own grid", v.ResampleSpline(v.Geometry, volume.IdentityAffine(), 1).Data, v.Data, 1e-5)
	wide := v.Geometry
	wide.Size, wide.Origin = [3]int{6, 3, 2}, [3]float64{5, 5, 9}
	row := func(x ...float32) []float32 { return slices.Concat(x, x, x) }
	want := slices.Concat(row(3, 3, -1, 4, 1, 1), row(5, 5, 9, -2, 6, 6))
	testkit.Close(t, "a voxel beyond", v.ResampleSpline(wide, volume.IdentityAffine(), 1).Data, want, 1e-5)
}

func TestAffineInverse(t *testing.T) {
	a := volume.Affine{M: [9]float64{1, 2, 0, -1, 1, 0.5, 0, 0.25, 3}, T: [3]float64{4, 5, -6}}
	inv := testkit.Must(a.Inverse())(t)
	p := [3]float64{7, -8, 9}
	got := inv.After(a).Apply(p)
	testkit.Close(t, "there and back", got[:], p[:], 1e-12)
	small := volume.Affine{M: [9]float64{1e-6, 0, 0, 0, 0, -2e-6, 0, 1e-6, 0}}
	if inv, err := small.Inverse(); err != nil || math.Abs(inv.M[7]+0.5e6) > 1e-6 {
		t.Errorf("a matrix of small numbers: %v, %v", inv, err)
	}
	testkit.Refused((volume.Affine{M: [9]float64{1, 2, 0, 2, 4, 0, 0, 0, 1e6}}).Inverse())(t, fault.SingularTransform)
	testkit.Refused((volume.Affine{}).Inverse())(t, fault.SingularTransform)
}

// The angles are those of the rotations that the matrices were made of.
func TestTurn(t *testing.T) {
	sin, cos := math.Sincos(40 * math.Pi / 180)
	for name, c := range map[string]struct {
		m    [9]float64
		want float64
	}{
		"none":              {volume.IdentityAffine().M, 0},
		"scales alone":      {[9]float64{2, 0, 0, 0, 0.5, 0, 0, 0, 1.1}, 0},
		"40 degrees":        {[9]float64{cos, -sin, 0, sin, cos, 0, 0, 0, 1}, 40},
		"and scaled by two": {[9]float64{2 * cos, -sin, 0, 2 * sin, cos, 0, 0, 0, 3}, 40},
		"a quarter":         {[9]float64{1, 0, 0, 0, 0, -1, 0, 1, 0}, 90},
		"a half":            {[9]float64{-1, 0, 0, 0, -1, 0, 0, 0, 1}, 180},
	} {
		if got := (volume.Affine{M: c.m}).Turn(); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %g degrees, want %g", name, got, c.want)
		}
	}
}

func TestResampleThreadsAgree(t *testing.T) {
	v := testkit.Filled(testkit.Grid([3]int{40, 31, 27}), func(i int) float32 { return float32(i * 7919 % 1000) })
	a := volume.Affine{M: [9]float64{1, 0.1, 0, -0.1, 1, 0.2, 0, 0, 0.9}, T: [3]float64{1.3, 2.7, -0.4}}
	one := v.Resample(cube(50, 0.8), a, volume.Linear, -1, 1)
	many := v.Resample(cube(50, 0.8), a, volume.Linear, -1, 7)
	testkit.Close(t, "threads", many.Data, one.Data, 0)
}

func bench(b *testing.B) *volume.Volume {
	v := testkit.Filled(testkit.Grid([3]int{160, 192, 224}), func(i int) float32 { return float32(math.Sin(float64(i))) })
	b.SetBytes(int64(4 * len(v.Data)))
	b.ResetTimer()
	return v
}

func BenchmarkResample(b *testing.B) {
	v := bench(b)
	a := volume.Affine{M: [9]float64{1, 0.1, 0, -0.1, 1, 0.2, 0, 0, 0.9}, T: [3]float64{1.3, 2.7, -0.4}}
	for b.Loop() {
		v.Resample(v.Geometry, a, volume.Linear, 0, 2)
	}
}

func BenchmarkPercentiles(b *testing.B) {
	v := bench(b)
	for b.Loop() {
		v.Percentiles(0.5, 99.5)
	}
}

// A frozen volume answers as it would otherwise.
func TestFrozen(t *testing.T) {
	for _, data := range [][]float32{{3, 1, 2, 8}, {nan, 1, inf, -2}, {5, 5, 5, 5}, {nan, nan, nan, nan}} {
		t.Run(fmt.Sprint(data), func(t *testing.T) {
			v := &volume.Volume{Geometry: testkit.Grid([3]int{2, 2, 1}), Data: data}
			frozen := v.Frozen()
			ends := func(v *volume.Volume) [4]float32 {
				least, most := v.MinMax()
				lo, hi := v.Range()
				return [4]float32{least, most, lo, hi}
			}
			if got, want := ends(frozen), ends(v); got != want {
				t.Errorf("ends %v, want %v", got, want)
			}
			got, want := frozen.Finite(7), v.Finite(7)
			if !slices.Equal(got.Data, want.Data) || (got == frozen) != (want == v) {
				t.Errorf("without what is not finite %v, want %v", got.Data, want.Data)
			}
		})
	}
}

// Holds is what Resample reads, at the nearest voxel, of a volume of ones.
func TestHolds(t *testing.T) {
	v := volume.Zeros(volume.Geometry{Size: [3]int{5, 4, 3}, Spacing: [3]float64{1, 2, 1.5}, Direction: volume.Identity})
	copy(v.Data, slices.Repeat([]float32{1}, len(v.Data)))
	g := volume.Geometry{Size: [3]int{9, 9, 9}, Origin: [3]float64{-2, -1.5, -1}, Spacing: [3]float64{0.75, 1, 0.5}, Direction: volume.Identity}
	turn := volume.IdentityAffine()
	turn.M[1], turn.M[3], turn.T[2] = 0.25, -0.5, 0.75
	for _, a := range []volume.Affine{volume.IdentityAffine(), turn} {
		got, want := v.Holds(g, a, 2), v.Resample(g, a, volume.Nearest, 0, 1)
		if !slices.Equal(got.Data, want.Data) || !slices.Contains(got.Data, 1) || !slices.Contains(got.Data, 0) {
			t.Errorf("under %v: %v, want %v", a, got.Data, want.Data)
		}
	}
}
