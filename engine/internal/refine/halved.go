package refine

import (
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// wide is the standard deviation of a Gaussian, in voxels, from which on it acts on half of a large grid, in an eighth of
// the time, at the finest resolution, after which nothing is decided. Narrower ones lose overlap.
const wide = 2.25

// isLarge is whether a grid has many voxels, and long axes: there wide Gaussians act on half of it, windows stand on every
// second slice, and displacements compose to the first order (RATIONALE.md, Where a large pair's time goes).
func isLarge(size [3]int) bool {
	const many, long = 1 << 17, 72
	voxels, shortest := 1, size[0]
	for _, n := range size {
		voxels *= n
		if n > 1 { // else a slice, which keeps its thickness
			shortest = min(shortest, n)
		}
	}
	return voxels >= many && shortest >= long
}

// halfWidth is the standard deviation there, in voxels of that grid, of a Gaussian of sigma: blocks and the interpolation
// back smooth as well.
func halfWidth(sigma float64) float64 { return math.Sqrt(float64(sigma*sigma)-0.5) / 2 }

// halved returns the grid of the blocks of two voxels a side; a slice keeps its thickness.
func halved(g volume.Geometry) volume.Geometry {
	block := [3]int{1, 1, 1}
	for a := range g.Axes() {
		block[a] = 2
	}
	return g.Blocks(block)
}

// halve writes the means over the blocks of the slices from, ..., to-1 to coarse, on halved of the grid. fine holds these
// slices, or is a ring of an even number of them. A block of two slices is not divided.
func halve(coarse, fine *field.Field, from, to, threads int) {
	ny, deep := coarse.Size[1], 2
	if fine.Flat() {
		deep = 1
	}
	parallel.For(ny*((to-from+deep-1)/deep), parallel.Rows(4*fine.Size[0]), threads, func(lo, hi int) {
		sum := make([]float32, fine.Size[0])
		for r := lo; r < hi; r++ {
			y, z := 2*(r%ny), from+deep*(r/ny)
			high, thick := min(2, fine.Size[1]-y), min(deep, to-z)
			share := 0.5 / float32(high*thick)
			for k, out := range coarse.Row(y/2, z/deep) {
				copy(sum, fine.Row(y, z%fine.Size[2])[k])
				for row := 1; row < high*thick; row++ {
					filter.Add(sum, fine.Row(y+row%high, (z+row/high)%fine.Size[2])[k])
				}
				for i := range len(sum) / 2 {
					out[i] = share * (sum[2*i] + sum[2*i+1])
				}
				if n := len(sum); n%2 == 1 {
					out[n/2] = 2 * share * sum[n-1]
				}
			}
		}
	})
}

// doubled reads rows of a field on halved of a grid there, linearly between the middles of the blocks.
type doubled struct {
	*field.Field
	size [3]int    // of the finer grid
	line []float32 // a row of the field, with one voxel more at both ends
}

// row writes the row y, z of the finer grid to rows.
func (d *doubled) row(rows [][]float32, y, z int) {
	y, besideY := beside(y, d.Size[1])
	besideZ := z
	if d.size[2] > 1 {
		z, besideZ = beside(z, d.Size[2])
	}
	near, alongY, alongZ, far := d.Row(y, z), d.Row(besideY, z), d.Row(y, besideZ), d.Row(besideY, besideZ)
	line := d.line[1 : len(d.line)-1]
	for k, out := range rows {
		quarter(line, near[k], alongY[k], alongZ[k], far[k])
		d.line[0], d.line[len(line)+1] = line[0], line[len(line)-1]
		spread(out, d.line)
	}
}

// quarter writes to dst the values a quarter of the way from a to b and to c, across which d lies.
func quarter(dst, a, b, c, d []float32) {
	for i := quarterVector(dst, a, b, c, d); i < len(dst); i++ {
		dst[i] = float32(0.5625*a[i]) + float32(0.1875*(b[i]+c[i])) + float32(0.0625*d[i])
	}
}

// beside returns the block that voxel i lies in, and the nearest other one of n.
func beside(i, n int) (block, other int) {
	block = i / 2
	return block, min(max(block+2*(i&1)-1, 0), n-1)
}

// spread writes to out the values a quarter of the way from the middles of line to both sides.
func spread(out, line []float32) {
	for i := spreadVector(out, line); i < len(out)/2; i++ {
		before, x, after := line[i], line[i+1], line[i+2]
		out[2*i], out[2*i+1] = float32(0.75*x)+float32(0.25*before), float32(0.75*x)+float32(0.25*after)
	}
	if n := len(out); n%2 == 1 {
		out[n-1] = float32(0.75*line[n/2+1]) + float32(0.25*line[n/2])
	}
}
