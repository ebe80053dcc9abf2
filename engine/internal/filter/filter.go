// Package filter holds the separable filters of the voxel loops: float32, one goroutine a slab, the same bits for any number
// of threads.
package filter

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Box writes to dst the sum of src over the window of 2*radius+1 voxels a side around each voxel; what lies outside the grid
// counts as zero, so the filter is its own adjoint. size is (x, y, z), x fastest; dst may be src.
func Box(dst, src []float32, size [3]int, radius, threads int) {
	weights := make([]float32, radius+1)
	for i := range weights {
		weights[i] = 1
	}
	separable(dst, src, size, [3][]float32{weights, weights, weights}, false, threads)
}

// Mean writes to dst the mean of src over the window of 2*radius+1 voxels a side around each voxel; outside the grid the border
// repeats. dst may be src.
func Mean(dst, src []float32, size [3]int, radius, threads int) {
	weights := make([]float32, radius+1)
	for i := range weights {
		weights[i] = 1 / float32(2*radius+1)
	}
	separable(dst, src, size, [3][]float32{weights, weights, weights}, true, threads)
}

// Gaussian writes to dst the convolution of src with a normalised Gaussian of the given standard deviation in voxels of each
// axis (x, y, z), cut at three of them; 0 leaves an axis alone. Outside the grid the border repeats. dst may be src.
func Gaussian(dst, src []float32, size [3]int, sigma [3]float64, threads int) {
	separable(dst, src, size, [3][]float32{half(sigma[0]), half(sigma[1]), half(sigma[2])}, true, threads)
}

// half returns the weights at distances 0, 1, ... of a normalised symmetric Gaussian kernel.
func half(sigma float64) []float32 {
	if sigma <= 0 {
		return []float32{1}
	}
	w := make([]float64, int(math.Ceil(3*sigma))+1)
	sum := 0.0
	for i := range w {
		w[i] = math.Exp(-0.5 * float64(i*i) / (sigma * sigma))
		if sum += w[i]; i > 0 {
			sum += w[i]
		}
	}
	out := make([]float32, len(w))
	for i := range w {
		out[i] = float32(w[i] / sum)
	}
	return out
}

// separable applies a symmetric kernel, given by its weights at distances 0, 1, ..., along x, y and z.
func separable(dst, src []float32, size [3]int, w [3][]float32, repeat bool, threads int) {
	nx, ny, nz := size[0], size[1], size[2]
	slice := nx * ny
	parallel.For(nz, 4, threads, func(lo, hi int) {
		line := make([]float32, nx+2*len(w[0]))
		plane := make([]float32, slice)
		along, across := newKernel(w[0], 0, repeat), newKernel(w[1], nx, repeat)
		for z := lo; z < hi; z++ {
			in, out := src[z*slice:(z+1)*slice], dst[z*slice:(z+1)*slice]
			for y := range ny {
				along.row(plane[y*nx:(y+1)*nx], in[y*nx:(y+1)*nx], line)
			}
			for y := range ny {
				across.rows(out[y*nx:(y+1)*nx], plane, y, ny)
			}
		}
	})
	if len(w[2]) == 1 && w[2][0] == 1 {
		return
	}
	// Along z a block of columns is copied out first, so that dst may be written in place.
	const width = 256
	blocks := (slice + width - 1) / width
	parallel.For(blocks, 4, threads, func(lo, hi int) {
		column := make([]float32, nz*width)
		for b := lo; b < hi; b++ {
			n := min(width, slice-b*width)
			for z := range nz {
				copy(column[z*n:(z+1)*n], dst[z*slice+b*width:])
			}
			across := newKernel(w[2], n, repeat)
			for z := range nz {
				across.rows(dst[z*slice+b*width:][:n], column, z, nz)
			}
		}
	})
}

// kernel applies one axis' weights, with the scratch that it needs.
type kernel struct {
	w      []float32
	repeat bool
	zero   []float32 // a row beyond the border
	pairs  []pair
}

// pair is the two rows at one distance to either side. The assembly knows its layout.
type pair struct{ before, after []float32 }

// newKernel returns the kernel for rows of width voxels, which only rows needs.
func newKernel(w []float32, width int, repeat bool) *kernel {
	return &kernel{w, repeat, make([]float32, width), make([]pair, len(w)-1)}
}

// row filters one row along itself. line is scratch for the row with its borders.
func (k *kernel) row(dst, src, line []float32) {
	r, n := len(k.pairs), len(src)
	var first, last float32
	if k.repeat {
		first, last = src[0], src[n-1]
	}
	for i := range r {
		line[i], line[r+n+i] = first, last
	}
	copy(line[r:], src)
	for i := range k.pairs {
		d := i + 1
		k.pairs[i] = pair{line[r-d : r-d+n], line[r+d : r+d+n]}
	}
	symmetric(dst, line[r:r+n], k.pairs, k.w)
}

// rows writes to dst the filtered row i of the n rows of rows.
func (k *kernel) rows(dst, rows []float32, i, n int) {
	width := len(dst)
	at := func(i int) []float32 {
		if k.repeat {
			i = min(max(i, 0), n-1)
		}
		if i < 0 || i >= n {
			return k.zero
		}
		return rows[i*width : (i+1)*width]
	}
	for j := range k.pairs {
		k.pairs[j] = pair{at(i - j - 1), at(i + j + 1)}
	}
	symmetric(dst, at(i), k.pairs, k.w)
}

// symmetric writes w[0] center + sum over i of w[i+1] (before + after of pair i) to dst, which overlaps none of them.
func symmetric(dst, center []float32, pairs []pair, w []float32) {
	if symmetricVector(dst, center, pairs, w) {
		return
	}
	for j, v := range center {
		dst[j] = w[0] * v
	}
	for i, p := range pairs {
		w, before, after := w[i+1], p.before[:len(dst)], p.after[:len(dst)]
		for j := range dst {
			dst[j] += w * (before[j] + after[j])
		}
	}
}
