package align

import (
	"math"
	"math/cmplx"
	"sync"

	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// This file is a three-dimensional discrete Fourier transform of real data in float32. gonum's works in float64 on
// single lines; a search over translations needs hundreds of transforms of a million voxels, most of them zero padding.

// fft3 transforms real arrays of size n (x, y, z; x fastest) to half spectra and back. Sizes must be 5-smooth
// (fastSize) and n[0] even. It is safe for concurrent use.
type fft3 struct {
	n       [3]int
	lines   [3]fftLine
	threads int
	scratch sync.Pool // of *[2][]complex64, each batch lines long
}

func newFFT3(n [3]int, threads int) *fft3 {
	f := &fft3{n: n, lines: [3]fftLine{newFFTLine(n[0]), newFFTLine(n[1]), newFFTLine(n[2])}, threads: threads}
	longest := batch * max(n[0], n[1], n[2])
	f.scratch.New = func() any { return &[2][]complex64{make([]complex64, longest), make([]complex64, longest)} }
	return f
}

// work calls body over [0, n) in chunks of grain, with scratch for two batches of lines.
func (f *fft3) work(n, grain int, body func(lo, hi int, in, out []complex64)) {
	parallel.For(n, grain, f.threads, func(lo, hi int) {
		s := f.scratch.Get().(*[2][]complex64)
		body(lo, hi, s[0], s[1])
		f.scratch.Put(s)
	})
}

// spectrumLen is the length of a half spectrum: bins (x, y, z) for z up to n[2]/2, x fastest.
func (f *fft3) spectrumLen() int { return f.n[0] * f.n[1] * (f.n[2]/2 + 1) }

// batch is how many lines a transform works on at once, side by side, so that its inner loops are long.
const batch = 32

// forward writes the half spectrum of src, an array of size m <= n that is padded with zeros.
func (f *fft3) forward(dst []complex64, src []float32, m [3]int) {
	nx, ny, nz := f.n[0], f.n[1], f.n[2]
	half := nz/2 + 1
	clear(dst)
	// Along z two columns of real data, neighbours in x, are one complex column: A + iB. Its spectrum is then taken apart
	// by A[k] = (Z[k] + conj Z[n-k]) / 2 and B[k] = (Z[k] - conj Z[n-k]) / 2i.
	f.work(m[1], 1, func(lo, hi int, in, out []complex64) {
		for y := lo; y < hi; y++ {
			for x0 := 0; x0 < m[0]; x0 += 2 * batch {
				w := min(batch, (m[0]-x0+1)/2)
				clear(in[m[2]*w : nz*w])
				for z := range m[2] {
					row := src[(z*m[1]+y)*m[0]+x0 : (z*m[1]+y+1)*m[0]]
					for j := range w {
						var b float32
						if 2*j+1 < len(row) {
							b = row[2*j+1]
						}
						in[z*w+j] = complex(row[2*j], b)
					}
				}
				spectrum := f.lines[2].transform(in[:nz*w], out[:nz*w], w, false)
				for k := range half {
					a, b := spectrum[k*w:(k+1)*w], spectrum[(nz-k)%nz*w:][:w]
					row := dst[(k*ny+y)*nx+x0:]
					for j := range w {
						p, q := a[j], complex(real(b[j]), -imag(b[j]))
						row[2*j] = complex(0.5*(real(p)+real(q)), 0.5*(imag(p)+imag(q)))
						row[2*j+1] = complex(0.5*(imag(p)-imag(q)), 0.5*(real(q)-real(p)))
					}
				}
			}
		}
	})
	f.alongY(dst, (m[0]+1)/2*2, false)
	f.alongX(dst, false)
}

// inverse writes the real array of size n whose half spectrum is src, which it overwrites.
func (f *fft3) inverse(dst []float32, src []complex64) {
	nx, ny, nz := f.n[0], f.n[1], f.n[2]
	half := nz/2 + 1
	f.alongX(src, true)
	f.alongY(src, nx, true)
	scale := 1 / float32(nx*ny*nz)
	f.work(ny, 1, func(lo, hi int, in, out []complex64) {
		for y := lo; y < hi; y++ {
			for x0 := 0; x0 < nx; x0 += 2 * batch {
				w := min(batch, (nx-x0)/2)
				for k := range nz {
					mirror := k >= half
					row := src[(min(k, nz-k)*ny+y)*nx+x0:]
					for j := range w {
						a, b := row[2*j], row[2*j+1]
						if mirror {
							a, b = complex(real(a), -imag(a)), complex(real(b), -imag(b))
						}
						in[k*w+j] = complex(real(a)-imag(b), imag(a)+real(b)) // a + ib
					}
				}
				values := f.lines[2].transform(in[:nz*w], out[:nz*w], w, true)
				for z := range nz {
					row := dst[(z*ny+y)*nx+x0:]
					for j := range w {
						v := values[z*w+j]
						row[2*j], row[2*j+1] = real(v)*scale, imag(v)*scale
					}
				}
			}
		}
	})
}

// alongY transforms the columns x < width of every plane.
func (f *fft3) alongY(data []complex64, width int, inverse bool) {
	nx, ny := f.n[0], f.n[1]
	f.work(f.n[2]/2+1, 1, func(lo, hi int, in, out []complex64) {
		for z := lo; z < hi; z++ {
			plane := data[z*nx*ny : (z+1)*nx*ny]
			for x0 := 0; x0 < width; x0 += batch {
				w := min(batch, width-x0)
				for y := range ny {
					copy(in[y*w:(y+1)*w], plane[y*nx+x0:])
				}
				result := f.lines[1].transform(in[:ny*w], out[:ny*w], w, inverse)
				for y := range ny {
					copy(plane[y*nx+x0:], result[y*w:(y+1)*w])
				}
			}
		}
	})
}

// alongX transforms every row.
func (f *fft3) alongX(data []complex64, inverse bool) {
	nx := f.n[0]
	rows := f.n[1] * (f.n[2]/2 + 1)
	f.work(rows, batch, func(lo, hi int, in, out []complex64) {
		w := hi - lo
		for r := range w {
			for x, v := range data[(lo+r)*nx : (lo+r+1)*nx] {
				in[x*w+r] = v
			}
		}
		result := f.lines[0].transform(in[:nx*w], out[:nx*w], w, inverse)
		for r := range w {
			row := data[(lo+r)*nx : (lo+r+1)*nx]
			for x := range row {
				row[x] = result[x*w+r]
			}
		}
	})
}

// fftLine is the mixed-radix transform of one line length, after Stockham: every pass sorts as it goes, so that there
// is no bit reversal.
type fftLine struct {
	n       int
	radices []int
	twiddle []complex64 // exp(-2 pi i k / n)
}

func newFFTLine(n int) fftLine {
	l := fftLine{n: n, twiddle: make([]complex64, n)}
	for k := range l.twiddle {
		l.twiddle[k] = complex64(cmplx.Exp(complex(0, -2*math.Pi*float64(k)/float64(n))))
	}
	for _, r := range []int{4, 2, 3, 5} {
		for ; n%r == 0; n /= r {
			l.radices = append(l.radices, r)
		}
	}
	if n != 1 {
		panic("align: FFT length is not 5-smooth")
	}
	return l
}

// transform returns the unscaled transform of width interleaved lines (element k of line j at k*width+j), in a or in b,
// which are both overwritten.
func (l *fftLine) transform(a, b []complex64, width int, inverse bool) []complex64 {
	m, stride := l.n, width
	for _, r := range l.radices {
		m /= r
		step := l.n / (r * m)
		for p := range m {
			k := newFactors(r, inverse)
			for i := 1; i < r; i++ {
				w := l.twiddle[i*p*step]
				if inverse {
					w = complex(real(w), -imag(w))
				}
				k.turn(i, w)
			}
			k.butterfly(r, b[stride*r*p:], a[stride*p:], stride, m*stride)
		}
		a, b = b, a
		stride *= r
	}
	return a
}

// factors are the factors of a butterfly in the order in which the assembly reads them: for every output its twiddle's
// real part, its imaginary part negated, and that as it is; then the constants of the radix.
type factors [18]float32

func newFactors(r int, inverse bool) (f factors) {
	sign := float32(1)
	if inverse {
		sign = -1
	}
	constants := f[3*(r-1):]
	switch r {
	case 3:
		s := sign * float32(math.Sqrt(3)/2)
		copy(constants, []float32{0.5, s, -s})
	case 4:
		copy(constants, []float32{sign, -sign})
	case 5:
		s1, s2 := sign*float32(math.Sin(2*math.Pi/5)), sign*float32(math.Sin(4*math.Pi/5))
		copy(constants, []float32{float32(math.Cos(2 * math.Pi / 5)), float32(math.Cos(4 * math.Pi / 5)), s1, -s1, s2, -s2})
	}
	return f
}

// turn sets the twiddle of output i >= 1.
func (f *factors) turn(i int, w complex64) {
	f[3*i-3], f[3*i-2], f[3*i-1] = real(w), -imag(w), imag(w)
}

// twiddle is that of output i >= 1.
func (f *factors) twiddle(i int) complex64 { return complex(f[3*i-3], f[3*i-1]) }

// butterfly combines n columns of r rows of x, apart by step, to rows of y, side by side.
func (f *factors) butterfly(r int, y, x []complex64, n, step int) {
	if !butterflyVector(f, r, y, x, n, step) {
		f.loop(r, y, x, n, step)
	}
}

// loop is butterfly without vectors.
func (f *factors) loop(r int, y, x []complex64, n, step int) {
	in := func(k int) []complex64 { return x[k*step:][:n] }
	out := func(k int) []complex64 { return y[k*n:][:n] }
	switch r {
	case 2:
		f.radix2(out(0), out(1), in(0), in(1))
	case 3:
		f.radix3(out(0), out(1), out(2), in(0), in(1), in(2))
	case 4:
		f.radix4(out(0), out(1), out(2), out(3), in(0), in(1), in(2), in(3))
	case 5:
		f.radix5([5][]complex64{out(0), out(1), out(2), out(3), out(4)}, [5][]complex64{in(0), in(1), in(2), in(3), in(4)})
	}
}

// times is a*b in float32: Go's own product of complex64 goes by way of float64.
func times(a, b complex64) complex64 {
	return complex(float32(real(a)*real(b))-float32(imag(a)*imag(b)), float32(real(a)*imag(b))+float32(imag(a)*real(b)))
}

// addProduct adds weight*a*b to dst.
func addProduct(dst, a, b []complex64, weight float32) {
	done := addProductVector(dst, a, b, weight)
	for i := done; i < len(dst); i++ {
		v := times(a[i], b[i])
		dst[i] += complex(float32(weight*real(v)), float32(weight*imag(v)))
	}
}

func (f *factors) radix2(y0, y1, x0, x1 []complex64) {
	w := f.twiddle(1)
	for q, a := range x0 {
		b := x1[q]
		y0[q] = a + b
		y1[q] = times(a-b, w)
	}
}

func (f *factors) radix3(y0, y1, y2, x0, x1, x2 []complex64) {
	w1, w2, half, s := f.twiddle(1), f.twiddle(2), f[6], f[7]
	for q, a := range x0 {
		sum, dif := x1[q]+x2[q], x1[q]-x2[q]
		c := complex(real(a)-float32(half*real(sum)), imag(a)-float32(half*imag(sum)))
		d := complex(float32(s*imag(dif)), float32(-s*real(dif))) // -i s dif
		y0[q] = a + sum
		y1[q] = times(c+d, w1)
		y2[q] = times(c-d, w2)
	}
}

func (f *factors) radix4(y0, y1, y2, y3, x0, x1, x2, x3 []complex64) {
	w1, w2, w3, sign := f.twiddle(1), f.twiddle(2), f.twiddle(3), f[9]
	for q, a := range x0 {
		b, c, d := x1[q], x2[q], x3[q]
		ac, bd := a+c, b+d
		dif, turn := a-c, b-d
		turn = complex(float32(sign*imag(turn)), float32(-sign*real(turn))) // -i (b-d)
		y0[q] = ac + bd
		y1[q] = times(dif+turn, w1)
		y2[q] = times(ac-bd, w2)
		y3[q] = times(dif-turn, w3)
	}
}

func (f *factors) radix5(y, x [5][]complex64) {
	w1, w2, w3, w4 := f.twiddle(1), f.twiddle(2), f.twiddle(3), f.twiddle(4)
	c1, c2, s1, s2 := f[12], f[13], f[14], f[16]
	for q, a := range x[0] {
		p1, m1 := x[1][q]+x[4][q], x[1][q]-x[4][q]
		p2, m2 := x[2][q]+x[3][q], x[2][q]-x[3][q]
		e1 := a + complex(float32(c1*real(p1))+float32(c2*real(p2)), float32(c1*imag(p1))+float32(c2*imag(p2)))
		e2 := a + complex(float32(c2*real(p1))+float32(c1*real(p2)), float32(c2*imag(p1))+float32(c1*imag(p2)))
		// -i (s1 m1 + s2 m2)
		o1 := complex(float32(s1*imag(m1))+float32(s2*imag(m2)), float32(-s1*real(m1))-float32(s2*real(m2)))
		o2 := complex(float32(s2*imag(m1))-float32(s1*imag(m2)), float32(-s2*real(m1))+float32(s1*real(m2)))
		y[0][q] = a + p1 + p2
		y[1][q] = times(e1+o1, w1)
		y[2][q] = times(e2+o2, w2)
		y[3][q] = times(e2-o2, w3)
		y[4][q] = times(e1-o1, w4)
	}
}

// fastSize returns the least 5-smooth multiple of step >= n.
func fastSize(n, step int) int {
	for n = (max(n, 1) + step - 1) / step * step; ; n += step {
		m := n
		for _, p := range []int{2, 3, 5} {
			for m%p == 0 {
				m /= p
			}
		}
		if m == 1 {
			return n
		}
	}
}
