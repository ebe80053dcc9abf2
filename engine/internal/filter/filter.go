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
	parallel.For(nz, 1, threads, func(lo, hi int) {
		line := make([]float32, nx+2*len(w[0]))
		plane := make([]float32, slice)
		for z := lo; z < hi; z++ {
			in, out := src[z*slice:(z+1)*slice], dst[z*slice:(z+1)*slice]
			for y := range ny {
				alongX(plane[y*nx:(y+1)*nx], in[y*nx:(y+1)*nx], line, w[0], repeat)
			}
			for y := range ny {
				acrossRows(out[y*nx:(y+1)*nx], plane, nx, y, ny, w[1], repeat)
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
			for z := range nz {
				acrossRows(dst[z*slice+b*width:][:n], column, n, z, nz, w[2], repeat)
			}
		}
	})
}

// alongX filters one row. line is scratch for the row with its borders.
func alongX(dst, src, line, w []float32, repeat bool) {
	r, n := len(w)-1, len(src)
	if r == 0 {
		for i := range src {
			dst[i] = w[0] * src[i]
		}
		return
	}
	var first, last float32
	if repeat {
		first, last = src[0], src[n-1]
	}
	for i := range r {
		line[i], line[r+n+i] = first, last
	}
	copy(line[r:], src)
	center := line[r : r+n]
	for i, v := range center {
		dst[i] = w[0] * v
	}
	for k := 1; k <= r; k++ {
		axpyPair(dst, line[r-k:r-k+n], line[r+k:r+k+n], w[k])
	}
}

// acrossRows writes to dst the filtered row i of the n rows of rows, each width long.
func acrossRows(dst, rows []float32, width, i, n int, w []float32, repeat bool) {
	center := rows[i*width : (i+1)*width]
	for j, v := range center {
		dst[j] = w[0] * v
	}
	for k := 1; k < len(w); k++ {
		below, above := i-k, i+k
		if repeat {
			below, above = max(below, 0), min(above, n-1)
		}
		switch {
		case below >= 0 && above < n:
			axpyPair(dst, rows[below*width:(below+1)*width], rows[above*width:(above+1)*width], w[k])
		case below >= 0:
			axpy(dst, rows[below*width:(below+1)*width], w[k])
		case above < n:
			axpy(dst, rows[above*width:(above+1)*width], w[k])
		}
	}
}

// axpyPair adds w*(a+b) to dst.
func axpyPair(dst, a, b []float32, w float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] += w * (a[i] + b[i])
	}
}

// axpy adds w*a to dst.
func axpy(dst, a []float32, w float32) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] += w * a[i]
	}
}
