package field_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func cube(n int) volume.Geometry {
	return testkit.Grid([3]int{n, n, n})
}

// rotated returns an affine that turns by angle about the z axis through the centre of g and scales by scale.
func rotated(g volume.Geometry, angle, scale float64) volume.Affine {
	c, s := math.Cos(angle)*scale, math.Sin(angle)*scale
	a := volume.Affine{M: [9]float64{c, -s, 0, s, c, 0, 0, 0, scale}}
	p, q := g.Center(), a.Apply(g.Center())
	a.T = [3]float64{p[0] - q[0], p[1] - q[1], p[2] - q[2]}
	return a
}

func TestPlanesAreArrayAxes(t *testing.T) {
	g := volume.Geometry{Size: [3]int{3, 4, 5}, Spacing: [3]float64{1, 2, 3}, Direction: volume.Identity}
	f := field.New(g)
	f.Data[0], f.Data[60], f.Data[120] = 1, 10, 100 // numpy u[i, 0, 0, 0]: z, y, x
	testkit.Close(t, "mm of voxel 0", f.MM(nil, 1)[:3], []float32{100, 20, 3}, 0)
}

func TestAffineJacobianIsItsDeterminant(t *testing.T) {
	g := volume.Geometry{Size: [3]int{5, 6, 7}, Spacing: [3]float64{1, 2, 3}, Origin: [3]float64{9, 8, 7}, Direction: [9]float64{0, 1, 0, 0, 0, -1, -1, 0, 0}}
	for _, a := range []volume.Affine{rotated(g, 0.7, 1.2), {M: [9]float64{-1, 0, 0, 0, 1, 0.3, 0, 0, 2}}} {
		s := field.FromAffine(g, a).Stats(0)
		testkit.Close(t, "det", []float64{s.JacobianMin, s.JacobianMax}, []float64{a.Det(), a.Det()}, 1e-5)
		if want := map[bool]float64{true: 100, false: 0}[a.Det() < 0]; s.NJDPercent != want {
			t.Errorf("NJD %g %%, want %g", s.NJDPercent, want)
		}
	}
}

func TestInverseOfAffines(t *testing.T) {
	g := cube(24)
	for _, a := range []volume.Affine{
		volume.IdentityAffine(),
		rotated(g, math.Pi/2, 1),
		rotated(g, 2.8, 1.6),
		{M: [9]float64{0.7, 0.3, 0, -0.2, 1.1, 0.1, 0, 0.2, 0.9}, T: [3]float64{300, -200, 100}}, // far from its grid
	} {
		t.Run(fmt.Sprint(a.M), func(t *testing.T) {
			inv := testkit.Must(a.Inverse())(t)
			to := g.CenteredAt(a.Apply(g.Center()))
			got, residual := field.FromAffine(g, a).Inverse(to, 0)
			testkit.Close(t, "affine", got.Data, field.FromAffine(to, inv).Data, 3e-3)
			if !(residual <= 1e-3) {
				t.Errorf("residual %g mm", residual)
			}
		})
	}
}

// waves returns a smooth field of the given amplitude in voxels.
func waves(g volume.Geometry, amplitude float64) *field.Field {
	f := field.New(g)
	nx, ny := g.Size[0], g.Size[1]
	for i := range f.X {
		x, y, z := float64(i%nx), float64(i/nx%ny), float64(i/(nx*ny))
		f.X[i] = float32(amplitude * math.Sin(y/11+z/17))
		f.Y[i] = float32(amplitude * math.Sin(z/13+x/19))
		f.Z[i] = float32(amplitude * math.Sin(x/12+y/18))
	}
	return f
}

func TestInverseThenFieldIsTheIdentity(t *testing.T) {
	g := cube(40)
	f := waves(g, 6)
	inverse, residual := f.Inverse(g, 3)
	if !(residual <= 1e-3) {
		t.Errorf("residual %g mm", residual)
	}
	var points, want []float64
	for z := 10.0; z < 30; z += 3 {
		for y := 10.0; y < 30; y += 3 {
			for x := 10.0; x < 30; x += 3 {
				points = append(points, x, y, z)
			}
		}
	}
	want = append(want, points...)
	inverse.TransformPoints(points)
	f.TransformPoints(points)
	testkit.Close(t, "there and back", points, want, 2e-3)
}

// One field has one inverse, in voxels, whatever its voxels measure.
func TestInverseOfFineVoxels(t *testing.T) {
	for _, mm := range []float64{1e-5, 1e-3, 0.3, 1, 100} {
		t.Run(fmt.Sprintf("%g mm", mm), func(t *testing.T) {
			g := cube(24)
			g.Spacing = [3]float64{mm, mm, mm}
			f := waves(g, 3)
			inverse, residual := f.Inverse(g, 0)
			if !(residual <= mm/1000) {
				t.Errorf("voxels of %g mm: residual %g mm", mm, residual)
			}
			back := field.Compose(nil, inverse, f, 1) // inverse(x + f(x)) or f(x + inverse(x)): the identity
			for z := 6; z < 18; z++ {
				for y := 6; y < 18; y++ {
					for x := 6; x < 18; x++ {
						i := (z*24+y)*24 + x
						if d := volume.Norm(back.Vector(i)); d > 0.1 {
							t.Fatalf("voxels of %g mm: the inverse is %g voxels off", mm, d)
						}
					}
				}
			}
		})
	}
}

func TestInverseOfAFoldReportsItsResidual(t *testing.T) {
	g := cube(16)
	f := field.New(g)
	for i := range f.X {
		if i%16 > 8 {
			f.X[i] = -4 // columns 5..8 are covered twice, 12..15 by nothing
		}
	}
	inverse, residual := f.Inverse(g, 0)
	if math.IsNaN(residual) {
		t.Error("residual is NaN")
	}
	for _, u := range inverse.Data {
		if u-u != 0 {
			t.Fatal("inverse of a folded field is not finite")
		}
	}
	if s := f.Stats(0); s.NJDPercent == 0 {
		t.Error("the fold was not counted")
	}
}

func TestOutsideTheGrid(t *testing.T) {
	g := cube(8)
	f := field.New(g)
	for i := range f.X {
		f.X[i] = 1.5
	}
	points := []float64{-50, 3, 3, 4, 100, -100}
	f.TransformPoints(points)
	testkit.Close(t, "border displacement holds", points, []float64{-48.5, 3, 3, 5.5, 100, -100}, 1e-6)

	far := field.New(g)
	for i := range far.X {
		far.X[i], far.Y[i] = 1e30, float32(math.NaN())
	}
	for _, x := range far.Warp(volume.Zeros(g), volume.Linear, -7, 2).Data {
		if x != -7 {
			t.Fatal("a point outside, or NaN, did not get the background")
		}
	}
	field.Compose(nil, f, far, 2) // must not panic
}

func TestThreadsAgree(t *testing.T) {
	t.Parallel()
	g := volume.Geometry{Size: [3]int{50, 41, 39}, Spacing: [3]float64{1, 1.5, 2}, Direction: volume.Identity}
	f := waves(g, 4)
	moving := &volume.Volume{Geometry: g, Data: f.X}
	for _, threads := range []int{2, 5} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			testkit.Close(t, "warp", f.Warp(moving, volume.Linear, 0, threads).Data, f.Warp(moving, volume.Linear, 0, 1).Data, 0)
			testkit.Close(t, "compose", field.Compose(nil, f, f, threads).Data, field.Compose(nil, f, f, 1).Data, 0)
			many, _ := f.Inverse(g, threads)
			one, _ := f.Inverse(g, 1)
			testkit.Close(t, "inverse", many.Data, one.Data, 0)
		})
	}
}

// The benchmarks run on a whole brain's grid, 160x192x224, on 2 threads.
var brain = testkit.Grid([3]int{160, 192, 224})

func BenchmarkWarp(b *testing.B) {
	f := waves(brain, 5)
	moving := &volume.Volume{Geometry: brain, Data: f.Z}
	for b.Loop() {
		f.Warp(moving, volume.Linear, 0, 2)
	}
}

func BenchmarkWarpNearest(b *testing.B) {
	f := waves(brain, 5)
	moving := &volume.Volume{Geometry: brain, Data: f.Z}
	for b.Loop() {
		f.Warp(moving, volume.Nearest, 0, 2)
	}
}

func BenchmarkCompose(b *testing.B) {
	f, dst := waves(brain, 5), field.New(brain)
	for b.Loop() {
		field.Compose(dst, f, f, 2)
	}
}

func BenchmarkTotal(b *testing.B) {
	g := brain
	g.Size, g.Spacing = [3]int{80, 96, 112}, [3]float64{2, 2, 2}
	f := waves(g, 5)
	for b.Loop() {
		field.Total(volume.IdentityAffine(), f, brain, 2)
	}
}

func BenchmarkStats(b *testing.B) {
	f := waves(brain, 5)
	for b.Loop() {
		f.Stats(2)
	}
}

func BenchmarkInverse(b *testing.B) {
	f := waves(brain, 5)
	for b.Loop() {
		f.Inverse(brain, 2)
	}
}

func TestBehindMM(t *testing.T) {
	g := volume.Geometry{Size: [3]int{5, 4, 3}, Spacing: [3]float64{1, 2, 0.5}, Origin: [3]float64{7, -8, 9}, Direction: [9]float64{0, -1, 0, 1, 0, 0, 0, 0, 1}}
	last := volume.Affine{M: [9]float64{1.1, 0.1, 0, -0.2, 0.9, 0.05, 0, 0.1, 1}, T: [3]float64{3, -4, 5}}
	f := field.New(g)
	for i := range f.Data {
		f.Data[i] = float32(math.Sin(float64(i)))
	}
	d := testkit.Must(f.BehindMM(last, 2))(t)
	toMM := g.IndexToPhysical()
	for i := range g.Voxels() {
		p, want := toMM.Apply(f.Point(i)), toMM.Apply(f.Target(i))
		got := last.Apply([3]float64{p[0] + float64(d[3*i]), p[1] + float64(d[3*i+1]), p[2] + float64(d[3*i+2])})
		for a := range got {
			if math.Abs(got[a]-want[a]) > 1e-5 {
				t.Fatalf("voxel %d: %v, want %v", i, got, want)
			}
		}
	}
	if _, err := f.BehindMM(volume.Affine{}, 1); err == nil {
		t.Error("a map that cannot be undone was taken")
	}
}

// A mask is carried as an image of its zeros and ones is; a field is smoothed in place as into another.
func TestMasksAndInPlace(t *testing.T) {
	g := volume.Geometry{Size: [3]int{9, 8, 7}, Spacing: [3]float64{1, 1.5, 2}, Direction: volume.Identity}
	r := rand.New(rand.NewPCG(3, 4))
	f, v := field.New(g), volume.Zeros(volume.Geometry{Size: [3]int{6, 9, 7}, Spacing: [3]float64{1, 1, 2}, Direction: volume.Identity})
	for i := range f.Data {
		f.Data[i] = float32(r.NormFloat64())
	}
	for i := range v.Data {
		v.Data[i] = float32(r.IntN(2))
	}
	if got, want := f.WarpMask(v.Mask(), 2), f.Warp(v, volume.Nearest, 0, 1); !slices.Equal(got.Data, want.Data) {
		t.Errorf("the mask is carried to %v, want %v", got.Data, want.Data)
	}
	want := f.Smoothed(nil, 1.2, 1)
	if f.Smoothed(f, 1.2, 2); !slices.Equal(f.Data, want.Data) {
		t.Error("smoothed in place, the field differs")
	}
}
