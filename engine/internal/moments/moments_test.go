package moments

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The sums are those over the window's valid voxels, added up one by one.
func TestWindows(t *testing.T) {
	size, radius := [3]int{7, 6, 5}, 2
	n := size[0] * size[1] * size[2]
	rng := rand.New(rand.NewPCG(1, 2))
	f, m, valid := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range f {
		f[i], m[i], valid[i] = rng.Float32(), rng.Float32(), float32(rng.IntN(2))
	}
	at := func(i int) [3]int { return [3]int{i % size[0], i / size[0] % size[1], i / (size[0] * size[1])} }
	for name, m := range map[string][]float32{"two images": m, "one image": nil} {
		t.Run(name, func(t *testing.T) {
			taken := make([]bool, n)
			Windows(size, radius, f, m, valid, 3, func(i int, got Sums) {
				taken[i] = true
				var want Sums
				for j := range f {
					inside := valid[j] != 0
					for a, x := range at(j) {
						inside = inside && max(x-at(i)[a], at(i)[a]-x) <= radius
					}
					if !inside {
						continue
					}
					want.N++
					want.F += f[j]
					want.FF += f[j] * f[j]
					if m != nil {
						want.M += m[j]
						want.MM += m[j] * m[j]
						want.FM += f[j] * m[j]
					}
				}
				for k, d := range []float32{
					got.N - want.N, got.F - want.F, got.M - want.M, got.FF - want.FF, got.MM - want.MM, got.FM - want.FM,
				} {
					if math.Abs(float64(d)) > 1e-4 {
						t.Errorf("voxel %d: sum %d is off by %g", i, k, d)
					}
				}
			})
			for i, v := range valid {
				if taken[i] != (v != 0) {
					t.Fatalf("voxel %d: taken %v, valid %g", i, taken[i], v)
				}
			}
		})
	}
}
