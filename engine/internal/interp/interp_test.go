package interp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/guard"
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
		t.Run(fmt.Sprint(size), func(t *testing.T) {
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
			u, dst := [3][]float32{}, make([][]float32, 3)
			for a := range u {
				u[a], dst[a] = make([]float32, n), guard.Slice(t, make([]float32, n))
				for i := range u[a] {
					u[a][i] = 3 * float32(r.NormFloat64())
					if r.IntN(3) == 0 {
						u[a][i] = odd[r.IntN(len(odd))]
					}
				}
			}
			x, y, z := -1, size[1]/2, size[2]-1
			for _, c := range []struct {
				name  string
				scale float64
				add   bool
				run   func(dst [][]float32, x int, u [3][]float32)
			}{
				{"row", 1, false, func(dst [][]float32, x int, u [3][]float32) { p.Row(dst, x, y, z, u) }},
				{"compose", 0.75, true, func(dst [][]float32, x int, u [3][]float32) { p.Compose(dst, x, y, z, 0.75, u) }},
			} {
				t.Run(c.name, func(t *testing.T) {
					c.run(dst, x, u)
					for i := range n {
						d := [3]float64{c.scale * float64(u[0][i]), c.scale * float64(u[1][i]), c.scale * float64(u[2][i])}
						at := [3]float64{float64(x+i) + d[0], float64(y) + d[1], float64(z) + d[2]}
						for k, plane := range p.Data {
							want, got, tolerance := reference(plane, size, at), float64(dst[k][i]), 2e-5
							if c.add {
								want += d[k]
								tolerance *= max(1, math.Abs(d[k]))
							}
							if math.IsNaN(want) && math.IsNaN(got) || want == got {
								continue
							}
							if !(math.Abs(got-want) <= tolerance) {
								t.Errorf("%s, size %v, point %d %v: plane %d gives %g, want %g", c.name, size, i, at, k, got, want)
							}
						}
					}

					// The plain loop gives the same bits. So does a result in place.
					same := func(how string, i int, got [][]float32) {
						for k := range got {
							if math.Float32bits(got[k][i]) != math.Float32bits(dst[k][i]) && !(got[k][i] != got[k][i] && dst[k][i] != dst[k][i]) {
								t.Errorf("%s, size %v, point %d: plane %d gives %v, %s %v", c.name, size, i, k, dst[k][i], how, got[k][i])
							}
						}
					}
					inPlace := [3][]float32{slices.Clone(u[0]), slices.Clone(u[1]), slices.Clone(u[2])}
					c.run(inPlace[:], x, inPlace)
					loop := [][]float32{make([]float32, n), make([]float32, n), make([]float32, n)}
					restore := cpu.Disable()
					c.run(loop, x, u)
					restore()
					for i := range n {
						same("by the loop", i, loop)
						same("in place", i, inPlace[:])
					}
				})
			}
		})
	}
}

// Of planes that rise linearly the slope is known everywhere but at the border, where a neighbour is missing and it counts half.
func TestAdvect(t *testing.T) {
	rise := [3][3]float64{{0.25, -0.5, 1}, {2, 0.125, -1}, {0, 1, 0.75}} // by plane and axis
	for _, size := range [][3]int{{29, 7, 5}, {16, 2, 2}, {9, 1, 6}, {3, 5, 4}, {1, 1, 1}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			const scale = 0.75
			r := rand.New(rand.NewPCG(2, uint64(size[0])))
			n := size[0]
			p := Planes{Size: size}
			for k := range 3 {
				plane := make([]float32, n*size[1]*size[2])
				for i := range plane {
					plane[i] = float32(rise[k][0]*float64(i%n) + rise[k][1]*float64(i/n%size[1]) + rise[k][2]*float64(i/(n*size[1])))
				}
				p.Data = append(p.Data, plane)
			}
			for row := range size[1] * size[2] {
				y, z := row%size[1], row/size[1]
				u, dst := [3][]float32{}, make([][]float32, 3)
				for a := range u {
					u[a], dst[a] = make([]float32, n), guard.Slice(t, make([]float32, n))
					for i := range u[a] {
						u[a][i] = float32(r.Float64() - 0.5)
					}
				}
				p.Advect(dst, y, z, scale, u)
				for i := range n {
					for k := range dst {
						want := float64(p.Data[k][row*n+i]) + scale*float64(u[k][i])
						for a, x := range [3]int{i, y, z} {
							share := 1.0
							switch {
							case size[a] == 1:
								share = 0
							case x == 0 || x == size[a]-1:
								share = 0.5
							}
							want += scale * share * rise[k][a] * float64(u[a][i])
						}
						if math.Abs(float64(dst[k][i])-want) > 1e-5 {
							t.Errorf("voxel %d, %d, %d: plane %d gives %g, want %g", i, y, z, k, dst[k][i], want)
						}
					}
				}
				loop := [][]float32{make([]float32, n), make([]float32, n), make([]float32, n)}
				restore := cpu.Disable()
				p.Advect(loop, y, z, scale, u)
				restore()
				p.Advect(u[:], y, z, scale, u)
				for k := range dst {
					if !slices.Equal(loop[k], dst[k]) || !slices.Equal(u[k], dst[k]) {
						t.Errorf("row %d, %d, plane %d: %v, by the loop %v, in place %v", y, z, k, dst[k], loop[k], u[k])
					}
				}
			}
		})
	}
}

// A mask is read to the same bits as an image of its zeros and ones.
func TestMaskRow(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for _, size := range [][3]int{{29, 7, 5}, {16, 2, 2}, {9, 1, 6}, {1, 1, 1}} {
		m := Mask{size, make([]uint8, size[0]*size[1]*size[2])}
		plane := make([]float32, len(m.Data))
		for i := range m.Data {
			if r.IntN(4) > 0 {
				m.Data[i], plane[i] = 1, 1
			}
		}
		var u [3][]float32
		for a := range u {
			u[a] = make([]float32, 40)
			for i := range u[a] {
				u[a][i] = 3 * float32(r.NormFloat64())
			}
		}
		u[0][3], u[1][5] = float32(math.NaN()), float32(math.Inf(1))
		got, want := make([]float32, 40), make([]float32, 40)
		m.Row(got, -2, size[1]/2, size[2]-1, u)
		Planes{size, [][]float32{plane}}.Row([][]float32{want}, -2, size[1]/2, size[2]-1, u)
		if !slices.Equal(got, want) {
			t.Errorf("size %v: %v, of the image %v", size, got, want)
		}
	}
}

func BenchmarkRow(b *testing.B) {
	size := [3]int{160, 192, 32}
	p := Planes{Size: size}
	var u [3][]float32
	var dst [][]float32
	r := rand.New(rand.NewPCG(1, 1))
	for a := range u {
		p.Data = append(p.Data, make([]float32, size[0]*size[1]*size[2]))
		row := make([]float32, size[0])
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
		u[a], dst = row, append(dst, make([]float32, size[0]))
	}
	for i := 0; b.Loop(); i++ {
		y, z := i%size[1], i/size[1]%size[2]
		p.Compose(dst, 0, y, z, 1, u)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size[0]), "ns/voxel")
}
