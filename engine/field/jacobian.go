package field

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Stats describes how regular a field is and how far it moves, by the names that engine.Metrics has.
type Stats struct {
	NJDPercent         float64 `json:"njd_percent"` // voxels with det(I + grad u) < 0, percent
	SDLogJ             float64 `json:"sdlogj"`      // standard deviation of ln det(I + grad u), the determinant floored at 1e-9
	JacobianMin        float64 `json:"jacobian_min"`
	JacobianMax        float64 `json:"jacobian_max"`
	DisplacementMeanMM float64 `json:"displacement_mean_mm"`
	DisplacementMaxMM  float64 `json:"displacement_max_mm"`
}

// JacobianDeterminant returns det(I + grad u), u and x in voxels: central differences inside, one-sided at the border.
// In voxels the determinant is that of the map in space, whatever the grid's direction. SimpleITK's
// DisplacementFieldJacobianDeterminant agrees only where the direction is the identity, which it takes it for (most
// NIfTI are flipped), and inside: it halves the derivative at the border.
func (f *Field) JacobianDeterminant(threads int) *volume.Volume {
	out := volume.Zeros(f.Geometry)
	nx := f.Size[0]
	parallel.Each(f.Size[1]*f.Size[2], parallel.Rows(nx), threads, func(r int) {
		f.jacobianRow(out.Data[r*nx:(r+1)*nx], r)
	})
	return out
}

// Stats measures the field in one pass. The figures do not depend on the number of threads.
func (f *Field) Stats(threads int) Stats {
	type sums struct {
		folded            int
		logJ, logJ2       float64
		minJ, maxJ        float32
		distance, maxDist float64
	}
	nx := f.Size[0]
	toMM := volume.Affine{M: f.IndexToPhysical().M}
	part := func(lo, hi int) sums {
		s := sums{minJ: float32(math.Inf(1)), maxJ: float32(math.Inf(-1))}
		row := make([]float32, nx)
		for r := lo; r < hi; r++ {
			f.jacobianRow(row, r)
			for i, j := range row {
				if j < 0 {
					s.folded++
				}
				s.minJ, s.maxJ = min(s.minJ, j), max(s.maxJ, j)
				l := math.Log(max(float64(j), 1e-9))
				s.logJ += l
				s.logJ2 += float64(l * l)

				d := volume.Norm(toMM.Apply(f.Vector(r*nx + i)))
				s.distance += d
				s.maxDist = max(s.maxDist, d)
			}
		}
		return s
	}
	t := parallel.Reduce(f.Size[1]*f.Size[2], parallel.Rows(nx), threads, part, func(a, b sums) sums {
		return sums{
			a.folded + b.folded,
			a.logJ + b.logJ, a.logJ2 + b.logJ2,
			min(a.minJ, b.minJ), max(a.maxJ, b.maxJ),
			a.distance + b.distance, max(a.maxDist, b.maxDist),
		}
	})
	n := float64(f.Voxels())
	mean := t.logJ / n
	return Stats{
		NJDPercent:         100 * float64(t.folded) / n,
		SDLogJ:             math.Sqrt(max(t.logJ2/n-float64(mean*mean), 0)),
		JacobianMin:        float64(t.minJ),
		JacobianMax:        float64(t.maxJ),
		DisplacementMeanMM: t.distance / n,
		DisplacementMaxMM:  t.maxDist,
	}
}

// jacobianRow writes the determinants of row r (y + ny*z) to dst.
func (f *Field) jacobianRow(dst []float32, r int) {
	nx, ny := f.Size[0], f.Size[1]
	row := r * nx
	// Rows before and after along y and z, and 1 over their distance in voxels.
	ya, yb, sy := neighbours(r%ny, ny, nx)
	za, zb, sz := neighbours(r/ny, f.Size[2], nx*ny)
	for i := range dst {
		xa, xb, sx := neighbours(i, nx, 1)
		o := row + i
		xx := 1 + float32(sx*(f.X[o+xb]-f.X[o+xa]))
		yx := sx * (f.Y[o+xb] - f.Y[o+xa])
		zx := sx * (f.Z[o+xb] - f.Z[o+xa])
		xy := sy * (f.X[o+yb] - f.X[o+ya])
		yy := 1 + float32(sy*(f.Y[o+yb]-f.Y[o+ya]))
		zy := sy * (f.Z[o+yb] - f.Z[o+ya])
		xz := sz * (f.X[o+zb] - f.X[o+za])
		yz := sz * (f.Y[o+zb] - f.Y[o+za])
		zz := 1 + float32(sz*(f.Z[o+zb]-f.Z[o+za]))
		dst[i] = float32(xx*(float32(yy*zz)-float32(yz*zy))) -
			float32(xy*(float32(yx*zz)-float32(yz*zx))) +
			float32(xz*(float32(yx*zy)-float32(yy*zx)))
	}
}

// neighbours returns the offsets from voxel i of an axis of n voxels, stride apart, to the voxels whose difference is
// its derivative, and 1 over their distance.
func neighbours(i, n, stride int) (before, after int, scale float32) {
	if i > 0 {
		before = -stride
	}
	if i < n-1 {
		after = stride
	}
	if before != 0 && after != 0 {
		return before, after, 0.5
	}
	return before, after, 1
}
