package align

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/metric"
	"gonum.org/v1/gonum/mat"
)

// What is compared at each voxel: MIND-SSC, centred in the body and reduced to its principal components, and the body itself.
const (
	mindRadius   = 1
	mindDilation = 2
	components   = 6   // of MIND's twelve channels, which are strongly correlated
	bodyWeight   = 0.3 // of the body channel, where a voxel's MIND components have RMS norm 1
)

// features are planes over a working grid: the components of MIND-SSC, zero outside the body.
type features struct {
	*working
	planes [][]float32
}

// describe returns the centred and scaled MIND-SSC of the body: zero mean a channel, unit mean squared norm a voxel.
func describe(w *working, threads int) features {
	n := len(w.intensity)
	all := metric.MINDSSC(w.intensity, w.grid.Size, mindRadius, mindDilation, threads)
	f := features{w, make([][]float32, metric.MINDChannels)}
	energy := make([]float64, metric.MINDChannels)
	parallel.For(metric.MINDChannels, 1, threads, func(lo, hi int) {
		for c := lo; c < hi; c++ {
			plane := all[c*n : (c+1)*n]
			f.planes[c] = plane
			mean := 0.0
			for i, b := range w.body {
				mean += float64(b * plane[i])
			}
			mean /= w.bodyCount
			for i, b := range w.body {
				plane[i] = b * (plane[i] - float32(mean))
				energy[c] += float64(plane[i]) * float64(plane[i])
			}
		}
	})
	total := 0.0
	for _, e := range energy {
		total += e
	}
	scale := float32(0)
	if total > 0 {
		scale = float32(1 / math.Sqrt(total/w.bodyCount))
	}
	parallel.For(metric.MINDChannels, 1, threads, func(lo, hi int) {
		for c := lo; c < hi; c++ {
			for i := range f.planes[c] {
				f.planes[c][i] *= scale
			}
		}
	})
	return f
}

// principal returns the leading principal directions of the described features of two images, pooled; the rows are unit
// vectors over MIND's channels.
func principal(a, b features, threads int) *mat.Dense {
	const n = metric.MINDChannels
	covariance := mat.NewSymDense(n, nil)
	type cell struct{ r, c int }
	var cells []cell
	for r := range n {
		for c := r; c < n; c++ {
			cells = append(cells, cell{r, c})
		}
	}
	values := make([]float64, len(cells))
	parallel.For(len(cells), 1, threads, func(lo, hi int) {
		for k := lo; k < hi; k++ {
			for _, f := range []features{a, b} {
				sum := 0.0
				p, q := f.planes[cells[k].r], f.planes[cells[k].c]
				for i := range p {
					sum += float64(p[i] * q[i])
				}
				values[k] += sum / f.bodyCount
			}
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

// project returns the components of f along the rows of basis.
func (f features) project(basis *mat.Dense, threads int) features {
	rows, _ := basis.Dims()
	out := features{f.working, make([][]float32, rows)}
	parallel.For(rows, 1, threads, func(lo, hi int) {
		for k := lo; k < hi; k++ {
			plane := make([]float32, len(f.intensity))
			for c, in := range f.planes {
				w := float32(basis.At(k, c))
				for i, v := range in {
					plane[i] += w * v
				}
			}
			out.planes[k] = plane
		}
	})
	return out
}

// halved averages blocks of two voxels a side; blocks over the edge count what is beyond as zero.
func (f features) halved(threads int) features {
	w := &working{grid: f.grid}
	var shift [3]float64
	for a := range 3 {
		w.grid.Size[a] = (f.grid.Size[a] + 1) / 2
		w.grid.Spacing[a] *= 2
		shift[a] = 0.5
	}
	w.grid.Origin = f.grid.IndexToPhysical().Apply(shift)
	half := func(in []float32) []float32 { return halve(in, f.grid.Size, w.grid.Size) }
	w.valid, w.body = half(f.valid), half(f.body)
	w.bodyCount = f.bodyCount / 8
	out := features{w, make([][]float32, len(f.planes))}
	parallel.For(len(f.planes), 1, threads, func(lo, hi int) {
		for c := lo; c < hi; c++ {
			out.planes[c] = half(f.planes[c])
		}
	})
	return out
}

func halve(in []float32, from, to [3]int) []float32 {
	out := make([]float32, to[0]*to[1]*to[2])
	i := 0
	for z := range from[2] {
		for y := range from[1] {
			row := out[(z/2*to[1]+y/2)*to[0]:]
			for x := range from[0] {
				row[x/2] += 0.125 * in[i]
				i++
			}
		}
	}
	return out
}

// interleaved returns the features smoothed by a Gaussian of sigma voxels, as the refinement samples them: a voxel's
// components, its body and its validity side by side.
func (f features) interleaved(sigma float64, threads int) []float32 {
	stride := len(f.planes) + 2
	out := make([]float32, stride*len(f.valid))
	s := [3]float64{sigma, sigma, sigma}
	scratch := make([]float32, len(f.valid))
	for c, plane := range append(append([][]float32{}, f.planes...), f.body, f.valid) {
		filter.Gaussian(scratch, plane, f.grid.Size, s, threads)
		for i, v := range scratch {
			out[i*stride+c] = v
		}
	}
	return out
}
