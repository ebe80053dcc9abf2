package field

import "github.com/morphseek/morphseek/engine/internal/filter"

// Smoothed writes f convolved with a Gaussian of sigma voxels to dst and returns it. A nil dst is allocated; dst must not share
// memory with f.
func (f *Field) Smoothed(dst *Field, sigma float64, threads int) *Field {
	if dst == nil {
		dst = New(f.Geometry)
	}
	filter.Gaussian(f.Size, [3]float64{sigma, sigma, sigma}, 3, threads, filter.From(f.Size, f.X, f.Y, f.Z), filter.To(f.Size, dst.X, dst.Y, dst.Z))
	return dst
}

// Unfold smooths f in place, each time by one voxel and only around voxels whose Jacobian determinant is below least, until
// none is. It reports how many voxels were below at first.
func (f *Field) Unfold(least float32, threads int) (folded int) {
	const spread = 2         // voxels that the smoothing reaches around a fold
	for round := range 100 { // far more than any finite field took
		around := f.JacobianDeterminant(threads).Data
		below := 0
		for i, j := range around {
			around[i] = 0
			if !(j >= least) {
				around[i] = 1
				below++
			}
		}
		if round == 0 {
			folded = below
		}
		if below == 0 {
			return folded
		}
		sigma := float64(spread + round/8) // a knot that does not open by itself needs more room
		share := make([]float32, len(around))
		filter.Gaussian(f.Size, [3]float64{sigma, sigma, sigma}, 1, threads, filter.From(f.Size, around), filter.To(f.Size, share))
		smooth := f.Smoothed(nil, 1, threads)
		for k, p := range [][]float32{f.X, f.Y, f.Z} {
			s := [][]float32{smooth.X, smooth.Y, smooth.Z}[k]
			for i, a := range share {
				p[i] += min(50*a, 1) * (s[i] - p[i])
			}
		}
	}
	return folded
}
