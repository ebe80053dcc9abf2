package interp

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// reference reads plane at a point by the definition, in float64: clamp, then weigh the eight voxels around.
func reference(plane []float32, size [3]int, at [3]float64) float64 {
	var lo, hi [3]int
	var f [3]float64
	for a, c := range at {
		if !(c > 0) {
			c = 0
		}
		c = min(c, float64(size[a]-1))
		lo[a] = int(c)
		hi[a] = min(lo[a]+1, size[a]-1)
		f[a] = c - float64(lo[a])
	}
	sum := 0.0
	for corner := range 8 {
		w, o, stride := 1.0, 0, 1
		for a := range 3 {
			if corner>>a&1 == 1 {
				w *= f[a]
				o += stride * hi[a]
			} else {
				w *= 1 - f[a]
				o += stride * lo[a]
			}
			stride *= size[a]
		}
		sum += w * float64(plane[o])
	}
	return sum
}

func TestRow(t *testing.T) {
	inf := float32(math.Inf(1))
	odd := []float32{0, -0.25, 7, -30, 1e9, -1e9, inf, -inf, float32(math.NaN()), 2, 0.5, -1}
	for _, size := range [][3]int{{29, 7, 5}, {16, 2, 2}, {40, 1, 6}, {3, 5, 4}, {1, 1, 1}} {
		r := rand.New(rand.NewPCG(1, uint64(size[0])))
		voxels := size[0] * size[1] * size[2]
		p := Planes{Size: size}
		for range 3 {
			plane := make([]float32, voxels)
			for i := range plane {
				plane[i] = r.Float32()
			}
			p.Data = append(p.Data, plane)
		}
		n := size[0] + 2 // the grid of the points is another one
		var u, dst, add [][]float32
		for range 3 {
			row, more := make([]float32, n), make([]float32, n)
			for i := range row {
				row[i], more[i] = 3*float32(r.NormFloat64()), r.Float32()
				if r.IntN(3) == 0 {
					row[i] = odd[r.IntN(len(odd))]
				}
			}
			u, add, dst = append(u, row), append(add, more), append(dst, make([]float32, n))
		}
		x, y, z := -1, size[1]/2, size[2]-1
		for _, more := range [][][]float32{nil, add} {
			p.Row(dst, more, x, y, z, u[0], u[1], u[2])
			for i := range n {
				at := [3]float64{float64(x+i) + float64(u[0][i]), float64(y) + float64(u[1][i]), float64(z) + float64(u[2][i])}
				for k, plane := range p.Data {
					want := reference(plane, size, at)
					if more != nil {
						want += float64(more[k][i])
					}
					if math.Abs(float64(dst[k][i])-want) > 2e-5 {
						t.Errorf("size %v, point %d %v: plane %d gives %g, want %g", size, i, at, k, dst[k][i], want)
					}
				}
			}
		}

		// One point at a time is too short for vectors: the plain loop gives the same bits.
		for i := range n {
			one := [][]float32{{0}, {0}, {0}}
			p.Row(one, [][]float32{add[0][i:], add[1][i:], add[2][i:]}, x+i, y, z, u[0][i:i+1], u[1][i:i+1], u[2][i:i+1])
			if got := []float32{dst[0][i], dst[1][i], dst[2][i]}; !slices.Equal(got, []float32{one[0][0], one[1][0], one[2][0]}) {
				t.Errorf("size %v, point %d: %v in a row, %v alone", size, i, got, one)
			}
		}
	}
}

func BenchmarkRow(b *testing.B) {
	size := [3]int{160, 192, 32}
	p := Planes{Size: size}
	var u, dst [][]float32
	r := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		p.Data = append(p.Data, make([]float32, size[0]*size[1]*size[2]))
		row := make([]float32, size[0])
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
		u, dst = append(u, row), append(dst, make([]float32, size[0]))
	}
	for i := 0; b.Loop(); i++ {
		y, z := i%size[1], i/size[1]%size[2]
		p.Row(dst, u, 0, y, z, u[0], u[1], u[2])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size[0]), "ns/voxel")
}
