package field

import "github.com/morphseek/morphseek/engine/internal/filter"

// Smooth convolves u in place with a Gaussian of sigma voxels.
func (f *Field) Smooth(sigma float64, threads int) {
	if sigma <= 0 {
		return
	}
	for _, p := range [][]float32{f.X, f.Y, f.Z} {
		filter.Gaussian(p, p, f.Size, [3]float64{sigma, sigma, sigma}, threads)
	}
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
		filter.Gaussian(around, around, f.Size, [3]float64{sigma, sigma, sigma}, threads)
		for i, a := range around {
			around[i] = min(50*a, 1)
		}
		smooth := Over(f.Geometry, append([]float32(nil), f.Data...))
		smooth.Smooth(1, threads)
		for k, p := range [][]float32{f.X, f.Y, f.Z} {
			s := [][]float32{smooth.X, smooth.Y, smooth.Z}[k]
			for i, a := range around {
				p[i] += a * (s[i] - p[i])
			}
		}
	}
	return folded
}
