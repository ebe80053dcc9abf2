package field

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Smoothed writes f convolved with a Gaussian of sigma voxels to dst, which may be f, and returns it. A nil dst is
// allocated.
func (f *Field) Smoothed(dst *Field, sigma float64, threads int) *Field {
	if dst == nil {
		dst = New(f.Geometry)
	}
	width, read := [3]float64{sigma, sigma, sigma}, filter.From(f.Size, f.X, f.Y, f.Z)
	if dst == f {
		filter.GaussianInPlace(nil, f.Size, width, threads, read, nil, f.X, f.Y, f.Z)
	} else {
		filter.Gaussian(f.Size, width, 3, threads, read, filter.To(f.Size, dst.X, dst.Y, dst.Z))
	}
	return dst
}

// Unfold smooths f in place, each time by one voxel and only around voxels whose Jacobian determinant is below
// minJacobian, until none is. It reports how many voxels were below at first.
func (f *Field) Unfold(minJacobian float32, threads int) (folded int) {
	return f.unfold(nil, 100, minJacobian, threads) // far more rounds than any finite field took
}

// UnfoldWhere is Unfold of the voxels where free is 1 and not 0. A fold between others may stay.
func (f *Field) UnfoldWhere(free []float32, minJacobian float32, threads int) (folded int) {
	return f.unfold(free, 24, minJacobian, threads)
}

func (f *Field) unfold(free []float32, rounds int, minJacobian float32, threads int) (folded int) {
	const spread = 2 // voxels that the smoothing reaches around a fold
	mask := make([]float32, f.Voxels())
	suspects := volume.Box{Hi: f.Size}
	for round := range rounds {
		below, folds := f.markFolds(mask, suspects, minJacobian, threads)
		if round == 0 {
			folded = below
		}
		if below == 0 {
			return folded
		}
		sigma := float64(spread + round/8) // a knot that does not open by itself needs more room
		reach := int(math.Ceil(3 * sigma))
		suspects = folds.Grown(reach+1, f.Size)

		part := folds.Grown(reach+3, f.Size) // a Gaussian of one voxel reaches three
		size := part.Size()
		around := part.Crop(mask, f.Size)
		u := [3][]float32{part.Crop(f.X, f.Size), part.Crop(f.Y, f.Size), part.Crop(f.Z, f.Size)}
		share := make([]float32, len(around))
		filter.Gaussian(size, [3]float64{sigma, sigma, sigma}, 1, threads, filter.From(size, around), filter.To(size, share))
		filter.Gaussian(size, [3]float64{1, 1, 1}, 3, threads, filter.From(size, u[:]...), func(y, z int, rows [][]float32) {
			from := (z*size[1] + y) * size[0]
			at := ((part.Lo[2]+z)*f.Size[1]+part.Lo[1]+y)*f.Size[0] + part.Lo[0]
			if free != nil {
				for i, s := range free[at : at+size[0]] {
					share[from+i] *= s
				}
			}
			for k, p := range [][]float32{f.X, f.Y, f.Z} {
				p, old := p[at:at+size[0]], u[k][from:]
				for i, s := range rows[k] {
					p[i] += float32(min(50*share[from+i], 1) * (s - old[i]))
				}
			}
		})
	}
	return folded
}

// markFolds sets mask to 1 where the Jacobian determinant is below minJacobian, else to 0, in the rows of b, which hold
// all such voxels; it returns their number and the box around them.
func (f *Field) markFolds(mask []float32, b volume.Box, minJacobian float32, threads int) (below int, folds volume.Box) {
	type part struct {
		count int
		box   volume.Box
	}
	nx, ny := f.Size[0], b.Hi[1]-b.Lo[1]
	t := parallel.Reduce(ny*(b.Hi[2]-b.Lo[2]), parallel.Rows(nx), threads, func(lo, hi int) part {
		in := part{0, volume.EmptyBox(f.Size)}
		for r := lo; r < hi; r++ {
			y, z := b.Lo[1]+r%ny, b.Lo[2]+r/ny
			at := z*f.Size[1] + y
			row := mask[at*nx : (at+1)*nx]
			f.jacobianRow(row, at)
			for x, j := range row {
				row[x] = 0
				if !(j >= minJacobian) {
					row[x] = 1
					in.count++
					in.box = in.box.With([3]int{x, y, z})
				}
			}
		}
		return in
	}, func(p, q part) part { return part{p.count + q.count, p.box.Union(q.box)} })
	return t.count, t.box
}
