package align

import (
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/dsp/fourier"

	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/guard"
)

// spectrum3 is the transform of a real array padded to n, by gonum in float64, x fastest.
func spectrum3(data []float32, m, n [3]int) []complex128 {
	s := make([]complex128, n[0]*n[1]*n[2])
	for z := range m[2] {
		for y := range m[1] {
			for x := range m[0] {
				s[(z*n[1]+y)*n[0]+x] = complex(float64(data[(z*m[1]+y)*m[0]+x]), 0)
			}
		}
	}
	for axis, stride := range []int{1, n[0], n[0] * n[1]} {
		plan := fourier.NewCmplxFFT(n[axis])
		line := make([]complex128, n[axis])
		for i := range s {
			if i/stride%n[axis] != 0 {
				continue
			}
			for k := range line {
				line[k] = s[i+k*stride]
			}
			plan.Coefficients(line, line)
			for k := range line {
				s[i+k*stride] = line[k]
			}
		}
	}
	return s
}

func TestFFTMatchesGonum(t *testing.T) {
	for _, c := range []struct{ m, n [3]int }{
		{[3]int{2, 2, 2}, [3]int{2, 2, 2}},
		{[3]int{5, 3, 4}, [3]int{6, 5, 9}},
		{[3]int{12, 20, 30}, [3]int{12, 20, 30}},
		{[3]int{71, 9, 7}, [3]int{100, 16, 8}},
	} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			src := make([]float32, c.m[0]*c.m[1]*c.m[2])
			for i := range src {
				src[i] = float32(rng.NormFloat64())
			}
			want := spectrum3(src, c.m, c.n)
			f := newFFT3(c.n, 2)
			got := make([]complex64, f.spectrumLen())
			f.forward(got, src, c.m)
			tolerance := 1e-5 * math.Sqrt(float64(len(src)))
			for i := range got {
				if cmplx.Abs(complex128(got[i])-want[i]) > tolerance {
					t.Fatalf("bin %d: %v, gonum has %v", i, got[i], want[i])
				}
			}

			other := make([]complex64, f.spectrumLen())
			newFFT3(c.n, 3).forward(other, src, c.m)
			if !slices.Equal(got, other) {
				t.Error("another number of threads gives other bits")
			}

			back := make([]float32, c.n[0]*c.n[1]*c.n[2])
			f.inverse(back, got)
			for z := range c.n[2] {
				for y := range c.n[1] {
					for x := range c.n[0] {
						var v float32
						if x < c.m[0] && y < c.m[1] && z < c.m[2] {
							v = src[(z*c.m[1]+y)*c.m[0]+x]
						}
						if d := back[(z*c.n[1]+y)*c.n[0]+x] - v; d > 1e-5 || d < -1e-5 {
							t.Fatalf("(%d,%d,%d): inverse differs by %g", x, y, z, d)
						}
					}
				}
			}
		})
	}
}

// Without the processor's vectors the Go loops run: the same bits, for any number of columns.
func TestVectorsMatchLoops(t *testing.T) {
	if !cpu.AVX() {
		t.Skip("no vectors on this processor")
	}
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int) []complex64 {
		x := make([]complex64, n)
		for i := range x {
			x[i] = complex(float32(rng.NormFloat64()), float32(rng.NormFloat64()))
		}
		return x
	}
	for _, n := range []int{1, 4, 5, 7, 8, 11, 32, 50} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for _, r := range []int{2, 3, 4, 5} {
				for _, inverse := range []bool{false, true} {
					step := n + 3
					x := random(r * step)
					f := newFactors(r, inverse)
					for i, w := range random(r) {
						if i > 0 {
							f.turn(i, w)
						}
					}
					got, want := cpu.Both(func() []complex64 {
						y := guard.Slice(t, make([]complex64, r*n))
						f.butterfly(r, y, x, n, step)
						return y
					})
					if !slices.Equal(got, want) {
						t.Errorf("radix %d, %d columns, inverse %v: %v, want %v", r, n, inverse, got, want)
					}
				}
			}
			a, b, dst := random(n), random(n), random(n)
			got, want := cpu.Both(func() []complex64 {
				out := guard.Slice(t, dst)
				addProduct(out, a, b, 0.3)
				return out
			})
			if !slices.Equal(got, want) {
				t.Errorf("%d products: %v, want %v", n, got, want)
			}
		})
	}
}

func TestFastSize(t *testing.T) {
	for _, c := range []struct{ n, step, want int }{{0, 2, 2}, {2, 2, 2}, {7, 2, 8}, {11, 2, 12}, {13, 1, 15}, {13, 2, 16}, {81, 1, 81}, {81, 2, 90}, {101, 2, 108}} {
		t.Run(fmt.Sprintf("%d by %d", c.n, c.step), func(t *testing.T) {
			if got := fastSize(c.n, c.step); got != c.want {
				t.Errorf("fastSize(%d, %d) = %d, want %d", c.n, c.step, got, c.want)
			}
		})
	}
}

func BenchmarkFFT(b *testing.B) {
	n := [3]int{80, 80, 80}
	m := [3]int{50, 50, 50}
	src := make([]float32, m[0]*m[1]*m[2])
	src[17] = 1
	f := newFFT3(n, 1)
	dst := make([]complex64, f.spectrumLen())
	for b.Loop() {
		f.forward(dst, src, m)
	}
}
