package filter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/guard"
)

// direct filters by the definition, in float64, one axis after the other.
func direct(src []float32, size [3]int, w [3][]float64, repeat bool) []float64 {
	in := make([]float64, len(src))
	for i, v := range src {
		in[i] = float64(v)
	}
	stride := 1
	for a := range 3 {
		out := make([]float64, len(in))
		n := size[a]
		for i := range in {
			c := i / stride % n
			for d, weight := range w[a] {
				for _, side := range []int{-d, d} {
					j := c + side
					if repeat {
						j = min(max(j, 0), n-1)
					}
					if j >= 0 && j < n {
						out[i] += weight * in[i+(j-c)*stride]
					}
					if d == 0 {
						break
					}
				}
			}
		}
		in, stride = out, stride*n
	}
	return in
}

// box sums src to dst beside another image, minus src, and checks that the two agree.
func box(dst, src []float32, size [3]int, radius, threads int) {
	Box(size, radius, 2, threads, nil, func(y, z int, rows [][]float32) {
		From(size, src)(y, z, rows)
		for i, v := range rows[0] {
			rows[1][i] = -v
		}
	}, func(y, z int, rows [][]float32) {
		for i, v := range rows[0] {
			if v != -rows[1][i] {
				panic("images mix")
			}
		}
		To(size, dst)(y, z, rows)
	})
}

func TestFilters(t *testing.T) {
	t.Parallel()
	gauss := func(sigma float64) []float64 {
		w, sum := []float64{1}, 1.0
		for d := 1; sigma > 0 && float64(d) < 3*sigma+1; d++ {
			w = append(w, math.Exp(-0.5*float64(d*d)/(sigma*sigma)))
			sum += 2 * w[d]
		}
		for d := range w {
			w[d] /= sum
		}
		return w
	}
	for _, size := range [][3]int{{37, 6, 5}, {16, 3, 9}, {15, 20, 2}, {48, 1, 1}, {1, 40, 3}, {33, 300, 2}, {70, 260, 40}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(size[0])))
			src := make([]float32, size[0]*size[1]*size[2])
			for i := range src {
				src[i] = r.Float32()
			}
			for _, c := range []struct {
				name   string
				run    func(dst, src []float32, threads int)
				w      [3][]float64
				repeat bool
			}{
				{"box", func(dst, src []float32, threads int) { box(dst, src, size, 2, threads) }, [3][]float64{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, false},
				{"mean", func(dst, src []float32, threads int) { Mean(size, 1, 1, threads, From(size, src), To(size, dst)) },
					[3][]float64{{1. / 3, 1. / 3}, {1. / 3, 1. / 3}, {1. / 3, 1. / 3}}, true},
				{"Gaussian", func(dst, src []float32, threads int) {
					Gaussian(size, [3]float64{1.75, 0, 0.4}, 1, threads, From(size, src), To(size, dst))
				},
					[3][]float64{gauss(1.75), gauss(0), gauss(0.4)}, true},
			} {
				t.Run(c.name, func(t *testing.T) {
					got, threaded := make([]float32, len(src)), make([]float32, len(src))
					c.run(got, src, 1)
					c.run(threaded, src, 30)
					for i, want := range direct(src, size, c.w, c.repeat) {
						if math.Abs(float64(got[i])-want) > 1e-5*max(1, want) {
							t.Fatalf("%s of size %v: voxel %d is %g, want %g", c.name, size, i, got[i], want)
						}
					}
					if !slices.Equal(got, threaded) {
						t.Errorf("%s of size %v depends on the number of threads", c.name, size)
					}
				})
			}
		})
	}
}

// Without the processor's vectors the Go loop runs: the same bits.
func TestVectorsGiveTheSameBits(t *testing.T) {
	if !cpu.AVX() {
		t.Skip("no vectors on this processor")
	}
	r := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{1, 31, 32, 33, 45, 64, 95} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rows := make([][]float32, 5)
			for i := range rows {
				rows[i] = make([]float32, n)
				for j := range rows[i] {
					rows[i][j] = float32(r.NormFloat64())
				}
			}
			got, want := cpu.Both(func() []float32 {
				out := guard.Slice(t, make([]float32, n))
				symmetric(out, rows[0], []pair{{rows[1], rows[2]}, {rows[3], rows[4]}}, []float32{0.5, 0.3, -0.2})
				return out
			})
			if !slices.Equal(got, want) {
				t.Errorf("%d voxels: %v, by the loop %v", n, got, want)
			}
		})
	}
}

// Rows outside a band are not written, and those inside are as without it.
func TestBand(t *testing.T) {
	t.Parallel()
	for _, size := range [][3]int{{9, 40, 12}, {20, 5, 30}, {8, 90, 1}, {33, 1, 7}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, uint64(size[1])))
			shown := make([]bool, size[1]*size[2])
			src := make([]float32, size[0]*len(shown))
			for row := range shown {
				y, z := row%size[1], row/size[1]
				if shown[row] = y > size[1]/3 && z > size[2]/4 && r.IntN(3) == 0; !shown[row] {
					continue
				}
				for x := range size[0] {
					src[row*size[0]+x] = r.Float32()
				}
			}
			shown[len(shown)-1] = true
			band := BandOf(size, shown)
			for row, is := range shown {
				if is && !band.Has(row%size[1], row/size[1]) {
					t.Fatalf("row %d is not in the band", row)
				}
			}
			for _, threads := range []int{1, 30} {
				whole, part := make([]float32, len(src)), make([]float32, len(src))
				for i := range part {
					part[i] = 7
				}
				box := func(band Band, dst []float32) {
					Box(size, 2, 1, threads, band, From(size, src), To(size, dst))
				}
				box(nil, whole)
				box(band, part)
				band.Clear(size, 0, size[2], threads, whole)
				band.Clear(size, 0, size[2], threads, part)
				if !slices.Equal(whole, part) {
					t.Errorf("%d threads: the band's sums differ from those of the whole", threads)
				}
				sigma := [3]float64{1.75, 0.4, 1.2}
				Gaussian(size, sigma, 1, threads, From(size, src), To(size, whole))
				part = slices.Clone(src)
				GaussianInPlace(band, size, sigma, threads, From(size, part), nil, part)
				if !slices.Equal(whole, part) {
					t.Errorf("%d threads: the Gaussian in place differs", threads)
				}
			}
		})
	}
}

// A Gaussian in place reads what its neighbours were before it, a row and a slice away, and shows its own rows.
func TestInPlace(t *testing.T) {
	t.Parallel()
	for _, size := range [][3]int{{130, 120, 37}, {9, 40, 12}, {300, 300, 11}, {8, 90, 1}, {5, 1, 7}} {
		for _, sigma := range [][3]float64{{1, 1, 1}, {2.5, 2.5, 2.5}, {1, 1, 0.3}, {0, 0, 0}} {
			t.Run(fmt.Sprint(size, sigma), func(t *testing.T) {
				r := rand.New(rand.NewPCG(5, uint64(size[0])))
				src := make([]float32, size[0]*size[1]*size[2])
				for i := range src {
					src[i] = r.Float32()
				}
				around := func(image []float32) Rows {
					return func(y, z int, rows [][]float32) {
						clear(rows[0])
						for _, d := range [][2]int{{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}} {
							y, z := min(max(y+d[0], 0), size[1]-1), min(max(z+d[1], 0), size[2]-1)
							Add(rows[0], image[(z*size[1]+y)*size[0]:])
						}
					}
				}
				want := make([]float32, len(src))
				Gaussian(size, sigma, 1, 1, around(src), To(size, want))
				for _, threads := range []int{1, 2, 30} {
					got, seen := slices.Clone(src), make([]float32, len(src))
					GaussianInPlace(nil, size, sigma, threads, around(got), To(size, seen), got)
					if !slices.Equal(got, want) || !slices.Equal(seen, want) {
						t.Errorf("%d threads: it differs from that into another image", threads)
					}
				}
			})
		}
	}
}

// A Sweep from ring to ring of slices writes what Box writes to a whole image. Slices that are not shown count as 0, whatever
// they hold.
func TestSweepOfRings(t *testing.T) {
	t.Parallel()
	size, radius := [3]int{13, 21, 19}, 2
	area := size[0] * size[1]
	r := rand.New(rand.NewPCG(6, 7))
	src := make([]float32, area*size[2])
	for i := range src {
		src[i] = r.Float32()
	}
	for name, shown := range map[string]Band{"all": nil, "every second slice": Band(nil).Alternate(size)} {
		t.Run(name, func(t *testing.T) {
			read, want, got := slices.Clone(src), make([]float32, len(src)), make([]float32, len(src))
			for z := range size[2] {
				if shown != nil && z%2 == 1 {
					clear(read[z*area:][:area])
				}
			}
			Box(size, radius, 1, 1, nil, From(size, read), To(size, want))
			for _, threads := range []int{1, 4} {
				in, out := make([]float32, 6*area), make([]float32, 4*area)
				s := BoxSweep(size, radius, 1, threads, shown, nil, From(size, in), To(size, out))
				for from, known := 0, 0; from < size[2]; from += 4 {
					to := min(from+4, size[2])
					for ; known < min(to+s.Ahead, size[2]); known++ {
						copy(in[known%6*area:][:area], src[known*area:])
					}
					s.To(to)
					copy(got[from*area:to*area], out)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%d threads: sums over rings differ", threads)
				}
			}
		})
	}
}

// A sweep that is sent to its end twice lets go of its memory once: otherwise two later filters would get the same.
func TestSweepEndsTwice(t *testing.T) {
	size := [3]int{8, 8, 5}
	data := make([]float32, 8*8*5)
	for range 20 {
		s := BoxSweep(size, 1, 1, 1, nil, nil, From(size, data), To(size, make([]float32, len(data))))
		s.To(size[2])
		s.To(size[2])
		if a, b := buffer(8), buffer(8); a == b {
			t.Fatal("two filters share memory")
		}
	}
}
