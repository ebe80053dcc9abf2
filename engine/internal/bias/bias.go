// Package bias takes the bias field of an image off: a coil sees what is near to it brighter. The field is a smooth factor. Its
// logarithm is found as N3 and N4 find it (Sled et al. 1998, Tustison et al. 2010): intensities of a tissue that it spreads are
// brought together. Here it is a polynomial, which a few thousand voxels determine in some hundredths of a second.
package bias

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

const (
	degree     = 4
	side       = 32  // voxels of the grid that the field is fitted on, along each axis, at most
	soft       = 0.1 // of the threshold of tissue, to either side of which voxels count in part
	bright     = 3   // ranges above the darkest: what is brighter counts as that
	iterations = 80
	relaxed    = 1.5  // times its own length goes a step: they would be short, and many
	stiffness  = 1e-3 // of a voxel's evidence, times the square of the order, holds a term back
	fewest     = 1000 // voxels that a field is fitted to

	none, whole = 0.06, 0.10 // deviation of the logarithm, up to which a field is the image's own contrast, and from which on it is taken off
)

// Corrected returns v without its bias field: v itself where there is none to speak of. A slice stays as it is.
func Corrected(v *volume.Volume, threads int) *volume.Volume {
	if v.Flat() {
		return v
	}
	lo, hi := v.Range()
	s := sampled(v, lo, hi)
	if len(s.logs) < fewest {
		return v
	}
	terms, values := s.fit()
	share := min((stat.StdDev(values, s.weights)-none)/(whole-none), 1)
	if !(share > 0) {
		return v
	}
	f := field{terms: terms, least: rounded(share * slices.Min(values)), most: rounded(share * slices.Max(values))}
	for i, m := range s.means {
		f.terms[i] = rounded(share * terms[i])
		f.constant -= float64(f.terms[i] * m)
	}
	f.constant = rounded(f.constant)
	return f.off(v, lo, threads)
}

// rounded returns x without its last digits, which another processor may have otherwise.
func rounded(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// samples are voxels of what an image shows: their logarithms above the darkest, and the terms of a polynomial there.
type samples struct {
	logs, weights []float64
	least, most   float64    // that the logarithms can be
	terms         *mat.Dense // a row for each voxel, without the means
	means         []float64
}

// sampled returns the voxels of a coarse grid that are brighter than the background.
func sampled(v *volume.Volume, lo, hi float32) samples {
	var axes [3][][]float64 // Legendre polynomials at the grid's places
	var at [3][]int
	for a, n := range v.Size {
		for i := 0; i < n; i += (n + side - 1) / side {
			at[a], axes[a] = append(at[a], i), append(axes[a], legendre(i, n))
		}
	}
	grid, stride := volume.Geometry{Size: [3]int{len(at[0]), len(at[1]), len(at[2])}}, v.Strides()
	values := make([]float32, grid.Voxels())
	for k := range values {
		i := 0
		for a, place := range grid.Index(k) {
			i += stride[a] * at[a][place]
		}
		if values[k] = v.Data[i]; !volume.IsFinite(values[k]) {
			values[k] = lo
		}
	}
	var s samples
	threshold, top := float64(between(values, lo, hi)-lo), lo+float32(bright*(hi-lo))
	s.least, s.most = math.Log((1-soft)*threshold), math.Log(float64(top-lo))
	var rows []float64
	for k, value := range values {
		above := float64(min(value, top) - lo)
		weight := min((above/threshold-1+soft)/(2*soft), 1)
		if !(weight > 0) {
			continue
		}
		s.logs, s.weights = append(s.logs, math.Log(above)), append(s.weights, weight)
		p := grid.Index(k)
		x, y, z := axes[0][p[0]], axes[1][p[1]], axes[2][p[2]]
		each(func(i, j, l int) { rows = append(rows, float64(x[i]*y[j])*z[l]) })
	}
	if len(s.logs) == 0 {
		return s
	}
	s.terms = mat.NewDense(len(s.logs), len(rows)/len(s.logs), rows)
	_, count := s.terms.Dims()
	s.means = make([]float64, count)
	for j := range s.means {
		s.means[j] = stat.Mean(mat.Col(nil, j, s.terms), s.weights)
	}
	s.terms.Apply(func(_, j int, x float64) float64 { return x - s.means[j] }, s.terms)
	return s
}

// each calls f with the degrees along x, y and z of each term of a polynomial, but for the constant one.
func each(f func(i, j, l int)) {
	for i := range degree + 1 {
		for j := range degree + 1 - i {
			for l := range degree + 1 - i - j {
				if i+j+l > 0 {
					f(i, j, l)
				}
			}
		}
	}
}

// legendre returns the Legendre polynomials at voxel i of n, which lie from -1 to 1.
func legendre(i, n int) []float64 {
	x := float64(2*i-(n-1)) / float64(max(n-1, 1))
	p := []float64{1, x}
	for k := 1; k < degree; k++ {
		p = append(p, (float64(float64(2*k+1)*x*p[k])-float64(float64(k)*p[k-1]))/float64(k+1))
	}
	return p
}

// fit returns the terms of the bias field, and its values at the samples.
func (s samples) fit() (terms, values []float64) {
	n, count := s.terms.Dims()
	weighted := mat.DenseCopyOf(s.terms)
	weighted.Apply(func(i, _ int, x float64) float64 { return x * s.weights[i] }, weighted)
	normal := mat.NewSymDense(count, nil)
	for i := range count {
		for j := range i + 1 {
			normal.SetSym(i, j, mat.Dot(weighted.ColView(i), s.terms.ColView(j)))
		}
	}
	k := 0
	each(func(i, j, l int) {
		order := float64(i + j + l)
		normal.SetSym(k, k, normal.At(k, k)+float64(stiffness*float64(n)*order*order))
		k++
	})
	bias, residual := mat.NewVecDense(n, nil), mat.NewVecDense(n, nil)
	coefficients := mat.NewVecDense(count, nil)
	var factor mat.Cholesky
	if !factor.Factorize(normal) {
		return coefficients.RawVector().Data, bias.RawVector().Data // no field
	}
	var right, step mat.VecDense
	h := newHistogram(s.least, s.most, s.weights)
	for range iterations {
		for i, x := range s.logs {
			residual.SetVec(i, x-bias.AtVec(i))
		}
		h.sharpen(residual.RawVector().Data)
		for i, x := range s.logs {
			residual.SetVec(i, x-residual.AtVec(i))
		}
		right.MulVec(weighted.T(), residual)
		if factor.SolveVecTo(&step, &right) != nil { // the terms are alike
			break
		}
		step.SubVec(&step, coefficients)
		coefficients.AddScaledVec(coefficients, relaxed, &step)
		bias.MulVec(s.terms, coefficients)
	}
	return coefficients.RawVector().Data, bias.RawVector().Data
}

// histogram is one of logarithms, with what sharpens it: the spread of a bias field is normal, .15 wide at half its height.
type histogram struct {
	least, width float64
	weights      []float64 // of the values
	fft          *fourier.FFT
	blur, wiener []float64
}

const (
	bins  = 200
	outer = 156 // bins on either side
)

func newHistogram(least, most float64, weights []float64) *histogram {
	const fwhm, noise = 0.15, 0.01
	const size = bins + 2*outer
	h := &histogram{weights: weights, fft: fourier.NewFFT(size)}
	h.width = (most - least) / (bins - 1)
	h.least = least - float64(outer*h.width)
	deviation := fwhm / h.width / math.Sqrt(8*math.Ln2)
	kernel, sum := make([]float64, size), 0.0
	for i := range kernel {
		d := float64(min(i, size-i)) / deviation
		kernel[i] = math.Exp(-d * d / 2)
		sum += kernel[i]
	}
	for _, c := range h.fft.Coefficients(nil, kernel) {
		g := real(c) / sum
		h.blur, h.wiener = append(h.blur, g), append(h.wiener, g/(float64(g*g)+noise))
	}
	return h
}

// sharpen puts in place of each logarithm what is expected of it where no field spreads the histogram.
func (h *histogram) sharpen(values []float64) {
	size := h.fft.Len()
	counts := make([]float64, size)
	place := func(x float64) (int, float64) {
		p := min(max((x-h.least)/h.width, 0), float64(size-2))
		return int(p), p - math.Floor(p)
	}
	for k, x := range values {
		i, f := place(x)
		counts[i] += float64(h.weights[k] * (1 - f))
		counts[i+1] += float64(h.weights[k] * f)
	}
	filtered := func(values, by []float64) []float64 {
		c := h.fft.Coefficients(nil, values)
		for i := range c {
			g := by[i] / float64(size)
			c[i] = complex(real(c[i])*g, imag(c[i])*g)
		}
		return h.fft.Sequence(nil, c)
	}
	sharp := filtered(counts, h.wiener)
	moment := make([]float64, size)
	for i := range sharp {
		sharp[i] = max(sharp[i], 0)
		moment[i] = sharp[i] * (h.least + float64(float64(i)*h.width))
	}
	total, expected := filtered(sharp, h.blur), filtered(moment, h.blur)
	floor := 1e-9 * slices.Max(total)
	for i, t := range total {
		if t > floor {
			expected[i] /= t
		} else {
			expected[i] = h.least + float64(float64(i)*h.width)
		}
	}
	for k, x := range values {
		i, f := place(x)
		values[k] = float64(expected[i]*(1-f)) + float64(expected[i+1]*f)
	}
}

// field is the logarithm of a bias field: a polynomial over the grid, held between the least and the most that it is where voxels
// determine it.
type field struct {
	terms                 []float64
	constant, least, most float64
}

// off returns v without the field, which is a factor of what v shows above its darkest voxels.
func (f field) off(v *volume.Volume, darkest float32, threads int) *volume.Volume {
	nx, ny := v.Size[0], v.Size[1]
	var x, y, z [][]float64
	for a, p := range []*[][]float64{&x, &y, &z} {
		for i := range v.Size[a] {
			*p = append(*p, legendre(i, v.Size[a]))
		}
	}
	out := &volume.Volume{Geometry: v.Geometry, Data: slices.Clone(v.Data)}
	parallel.Each(ny*v.Size[2], parallel.Rows(nx), threads, func(r int) {
		along := [degree + 1]float64{f.constant}
		k := 0
		each(func(i, j, l int) {
			along[i] += float64(f.terms[k] * y[r%ny][j] * z[r/ny][l])
			k++
		})
		row := out.Data[r*nx : (r+1)*nx]
		for i, value := range row {
			if !(value > darkest) || !volume.IsFinite(value) {
				continue
			}
			log := 0.0
			for d, p := range x[i] {
				log += float64(along[d] * p)
			}
			row[i] = darkest + float32(float64(value-darkest)*math.Exp(-min(max(log, f.least), f.most)))
		}
	})
	return out
}

// between returns the threshold halfway between the means of what is darker and of what is brighter (Ridler and Calvard 1978): a
// stationary point of Otsu's, which noise moves as little as these means.
func between(values []float32, lo, hi float32) float32 {
	const rounds = 30
	t := (lo + hi) / 2
	for range rounds {
		var sums, counts [2]float64
		for _, x := range values {
			k := 0
			if x > t {
				k = 1
			}
			sums[k] += float64(x)
			counts[k]++
		}
		if counts[0] == 0 || counts[1] == 0 {
			break
		}
		t = float32((sums[0]/counts[0] + sums[1]/counts[1]) / 2)
	}
	return t
}
