package align

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// What is compared at each voxel: MIND-SSC, centred in the body and reduced to its principal components, and the body
// itself.
const (
	components      = mind.Channels
	bodyWeight      = 0.04 // of the body channel, where a voxel's MIND components have RMS norm 1
	intensityWeight = 0.3  // of the standardised intensity, for one modality
	depthSigma      = 0.2  // of the blur that tells depth, in cube roots of the body's volume
)

// kernel is that of MIND-SSC.
var kernel = mind.Kernel{Dilation: 2, Least: mind.Steady}

// features are planes over the resampled grid: the components of MIND-SSC, zero outside the body.
type features struct {
	*resampled
	planes [][]float32
	depth  []float32 // depthWeights of the body
}

// describe returns the centred and scaled MIND-SSC of the body: zero mean a channel, unit mean squared norm a voxel.
func describe(w *resampled, threads int) features {
	n := len(w.intensity)
	all := mind.Describe(w.intensity, nil, w.grid.Size, kernel, threads)
	f := features{w, make([][]float32, mind.Channels), depthWeights(w, threads)}
	energy := make([]float64, mind.Channels)
	parallel.Each(mind.Channels, 1, threads, func(c int) {
		plane := all[c*n : (c+1)*n]
		f.planes[c] = plane
		mean := float32(blas32.DDot(vector(w.body), vector(plane)) / max(w.bodyCount, 1))
		for i, d := range f.depth {
			plane[i] = d * (plane[i] - mean)
		}
		energy[c] = blas32.DDot(vector(plane), vector(plane))
	})
	total := 0.0
	for _, e := range energy {
		total += e
	}
	scale := float32(0)
	if total > 0 {
		scale = float32(1 / math.Sqrt(total/w.bodyCount))
	}
	parallel.Each(mind.Channels, 1, threads, func(c int) {
		for i := range f.planes[c] {
			f.planes[c][i] *= scale
		}
	})
	return f
}

// depthWeights rises from 0 on the body's surface to 1 inside: outlines depend on habitus and skull stripping more than on
// anatomy. The blur is over the field of view alone, so that a cut through the body is no surface.
func depthWeights(w *resampled, threads int) []float32 {
	sigma := depthSigma * w.image.Root(w.bodyCount) / 2
	s := [3]float64{sigma, sigma, sigma}
	body, valid := w.halved(w.body), w.halved(w.valid)
	depth, known := volume.Zeros(body.Geometry), volume.Zeros(body.Geometry)
	filter.Gaussian(depth.Size, s, 2, threads, filter.From(depth.Size, body.Data, valid.Data), filter.To(depth.Size, depth.Data, known.Data))
	for i, k := range known.Data {
		depth.Data[i] = 2*depth.Data[i]/max(k, 1e-6) - 1
	}
	weights := depth.Resample(w.grid, volume.IdentityAffine(), volume.Linear, 0, threads).Data
	for i, b := range w.body {
		weights[i] = b * min(max(weights[i], 0), 1)
	}
	return weights
}

// principal returns the leading principal directions of the described features of two images, pooled; the rows are unit
// vectors over MIND's channels.
func principal(a, b features, threads int) *mat.Dense {
	const n = mind.Channels
	covariance := mat.NewSymDense(n, nil)
	type cell struct{ r, c int }
	var cells []cell
	for r := range n {
		for c := r; c < n; c++ {
			cells = append(cells, cell{r, c})
		}
	}
	values := make([]float64, len(cells))
	parallel.Each(len(cells), 1, threads, func(k int) {
		for _, f := range []features{a, b} {
			values[k] += blas32.DDot(vector(f.planes[cells[k].r]), vector(f.planes[cells[k].c])) / f.bodyCount
		}
	})
	for k, c := range cells {
		covariance.SetSym(c.r, c.c, values[k])
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(covariance, true) {
		panic("align: covariance of the features has no eigenvectors")
	}
	var vectors mat.Dense
	eigen.VectorsTo(&vectors) // columns, by ascending eigenvalue
	basis := mat.NewDense(components, n, nil)
	for k := range components {
		for c := range n {
			basis.Set(k, c, vectors.At(c, n-1-k))
		}
	}
	return basis
}

// intoComponents overwrites the planes of f with their components along the rows of basis, so that the two are never in
// memory together. f must not be used again.
func (f features) intoComponents(basis *mat.Dense, threads int) features {
	const held = 1 << 12 // so many voxels' channels stay in the cache
	rows, channels := basis.Dims()
	parallel.For(len(f.intensity), 16*held, threads, func(lo, hi int) {
		in := make([]float32, channels*held)
		for ; lo < hi; lo += held {
			n := min(held, hi-lo)
			for c, plane := range f.planes {
				copy(in[c*held:], plane[lo:lo+n])
			}
			for k, plane := range f.planes[:rows] {
				dst := plane[lo : lo+n]
				clear(dst)
				for c := range channels {
					blas32.Axpy(float32(basis.At(k, c)), vector(in[c*held:][:n]), vector(dst))
				}
			}
		}
	})
	return features{f.resampled, f.planes[:rows], f.depth}
}

func vector(x []float32) blas32.Vector { return blas32.Vector{N: len(x), Inc: 1, Data: x} }

// leading keeps the first count components.
func (f features) leading(count int) features {
	f.planes = f.planes[:count]
	return f
}

// halved averages the leading count components over blocks of two voxels a side.
func (f features) halved(count, threads int) features {
	f = f.leading(count)
	body := f.resampled.halved(f.body)
	w := &resampled{grid: body.Geometry, image: f.image, valid: f.resampled.halved(f.valid).Data, body: body.Data, bodyCount: f.bodyCount / 8}
	out := features{resampled: w, planes: make([][]float32, len(f.planes))}
	parallel.Each(len(f.planes), 1, threads, func(c int) {
		out.planes[c] = f.resampled.halved(f.planes[c]).Data
	})
	return out
}

// halved returns the means of a plane on w's grid over blocks of two voxels a side; blocks over the edge count what is
// beyond as zero.
func (w *resampled) halved(plane []float32) *volume.Volume {
	mean, known := (&volume.Volume{Geometry: w.grid, Data: plane}).BlockMeans([3]int{2, 2, 2}, nil, 1)
	for i, share := range known.Data {
		mean.Data[i] *= share
	}
	return mean
}

// A voxel as the refinement samples it: up to bodyLane components, its body and, last, its validity.
const (
	lanes    = 16
	bodyLane = lanes - 2
)

// interleaved returns the features smoothed by a Gaussian of sigma voxels, a voxel's lanes side by side.
func (f features) interleaved(sigma float64, threads int) []float32 {
	return f.interleavedIn(make([]float32, lanes*len(f.valid)), sigma, threads)
}

// interleavedIn is interleaved in the memory of what was interleaved before.
func (f features) interleavedIn(out []float32, sigma float64, threads int) []float32 {
	at := make([]int, len(f.planes))
	for c := range at {
		at[c] = c
	}
	f.interleave(out, append(slices.Clip(f.planes), f.body, f.valid), append(at, bodyLane, bodyLane+1), sigma, threads)
	return out
}

// add interleaves the last component beside the others, which are in out already.
func (f features) add(out []float32, sigma float64, threads int) {
	last := len(f.planes) - 1
	f.interleave(out, f.planes[last:], []int{last}, sigma, threads)
}

// interleave sets the lanes at of out to planes, smoothed.
func (f features) interleave(out []float32, planes [][]float32, at []int, sigma float64, threads int) {
	const together = 7 // planes: what the filter holds of them stays in the cache
	nx, ny, nz := f.grid.Size[0], f.grid.Size[1], f.grid.Size[2]
	var sigmas [3]float64
	for a := range f.image.Axes() {
		sigmas[a] = sigma
	}
	for len(planes) > 0 {
		n := min(together, len(planes))
		lane := at[:n]
		filter.Gaussian(f.grid.Size, sigmas, n, threads, filter.From(f.grid.Size, planes[:n]...), func(y, z int, rows [][]float32) {
			if y == 0 || y == ny-1 || z == 0 || z == nz-1 {
				return // the outermost voxels stay zero, or the score would jump where a point leaves the grid
			}
			voxels := out[(z*ny+y)*nx*lanes:]
			for x := 1; x < nx-1; x++ {
				for k, row := range rows {
					voxels[x*lanes+lane[k]] = row[x]
				}
			}
		})
		planes, at = planes[n:], at[n:]
	}
}

// withIntensity adds the intensity in the body, standardised and clipped at three standard deviations.
func (f features) withIntensity() features {
	values, weights := f.bodyIntensities(1)
	mean, deviation := stat.MeanStdDev(values, weights)
	plane := make([]float32, len(f.body))
	if !(deviation > 0) { // of one value everywhere: the intensity tells nothing
		f.planes = append(slices.Clip(f.planes), plane)
		return f
	}
	for i, b := range f.body {
		z := min(max((float64(f.intensity[i])-mean)/deviation, -3), 3)
		plane[i] = b * float32(math.Sqrt(intensityWeight)*z)
	}
	f.planes = append(slices.Clip(f.planes), plane)
	return f
}

func (v views) withIntensity(threads int) (with views) {
	parallel.Beside(threads,
		func(int) { with.fixed = v.fixed.withIntensity() },
		func(int) { with.moving = v.moving.withIntensity() })
	return with
}

// sameModality reports whether the intensities of two images correspond under t: they correlate and are distributed alike,
// or both are in Hounsfield units, whose distribution varies with the air and lung shown.
func (v views) sameModality(t volume.Affine, threads int) bool {
	return v.bothHounsfield() || correlation(v.fixed.resampled, v.moving.resampled, t, threads)-v.distance() > sameAbove
}

// bodyIntensities returns the intensities of the body's voxels, of every step-th voxel of the grid, and how far each is
// body.
func (w *resampled) bodyIntensities(step int) (values, weights []float64) {
	for i := 0; i < len(w.body); i += step {
		if b := w.body[i]; b > 0 {
			values, weights = append(values, float64(w.intensity[i])), append(weights, float64(b))
		}
	}
	return values, weights
}

// distributionDistance returns the earth mover's distance of the distributions of two bodies' standardised intensities, by
// the quantiles 2 % to 98 %. Dark voxels (lungs, bowel gas, what a skull stripper left) are no tissue and do not count.
func distributionDistance(a, b *resampled) float64 {
	const (
		from, to = 2, 98
		enough   = 100e3 // voxels to sort
	)
	quantiles := func(w *resampled) (q [to + 1 - from]float64) {
		lo, hi := robustRange(w)
		dark := float64(lo + float32(0.08*(hi-lo)))
		tissue, _ := w.bodyIntensities(int(w.bodyCount/enough) + 1)
		tissue = slices.DeleteFunc(tissue, func(x float64) bool { return x <= dark })
		slices.Sort(tissue)
		if len(tissue) == 0 {
			return q
		}
		for i := range q {
			share := float64(from+i) / 100
			// stat.Quantile goes through them all, thrice, for each.
			q[i] = tissue[max(int(math.Ceil(share*float64(len(tissue)))), 1)-1]
		}
		mean, deviation := stat.MeanStdDev(q[:], nil)
		for i := range q {
			q[i] = (q[i] - mean) / max(deviation, 1e-30)
		}
		return q
	}
	p, q := quantiles(a), quantiles(b)
	total := 0.0
	for i := range p {
		total += math.Abs(p[i] - q[i])
	}
	return total / float64(len(p))
}

// correlation returns Pearson's coefficient of the intensities where the two bodies overlap under t, at every second
// voxel of each axis; 0 where they do not.
func correlation(fixed, moving *resampled, t volume.Affine, threads int) float64 {
	n, lattice, first := fixed.grid.Size, fixed.grid, 0
	if fixed.image.Flat() { // its layers beside the middle know nothing
		lattice, first = middleOf(lattice), 1
	}
	for a := range 3 {
		lattice.Size[a] = (lattice.Size[a] + 1) / 2
		lattice.Spacing[a] *= 2
	}
	there := func(plane []float32, by volume.Interpolation) *volume.Volume {
		return (&volume.Volume{Geometry: moving.grid, Data: plane}).Resample(lattice, t, by, 0, threads)
	}
	intensity, body := there(moving.intensity, volume.Linear), there(moving.body, volume.Nearest)
	var f, m []float64
	k := 0
	for z := first; z < first+2*lattice.Size[2]; z += 2 {
		for y := 0; y < n[1]; y += 2 {
			for x := 0; x < n[0]; x += 2 {
				if i := (z*n[1]+y)*n[0] + x; fixed.body[i] > 0 && body.Data[k] > 0 {
					f, m = append(f, float64(fixed.intensity[i])), append(m, float64(intensity.Data[k]))
				}
				k++
			}
		}
	}
	if r := stat.Correlation(f, m, nil); len(f) > 1 && !math.IsNaN(r) {
		return r
	}
	return 0
}
