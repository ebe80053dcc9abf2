package volume

import (
	"slices"

	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// ResampleSpline reads v at a.Apply(p) for the centre p of every voxel of g, in LPS mm, by the cubic B-spline that runs
// through v's voxels (Unser, IEEE Signal Process. Mag. 1999), mirrored at its ends; points outside v get the value at
// the nearest point of its border. Between voxels it keeps more of the edges than linear interpolation, and it may go
// beyond the range of v's values by a little.
func (v *Volume) ResampleSpline(g Geometry, a Affine, threads int) *Volume {
	c := v.splineCoefficients(threads)
	return v.resample(g, a, threads, func(dst []float32, xs, ys, zs []float64) {
		for i := range dst {
			x, y, z := tapsAt(xs[i], v.Size[0]), tapsAt(ys[i], v.Size[1]), tapsAt(zs[i], v.Size[2])
			sum := float32(0)
			for k, wz := range z.weight {
				for j, wy := range y.weight {
					row, w := c[(z.from[k]*v.Size[1]+y.from[j])*v.Size[0]:][:v.Size[0]], wz*wy
					along := float32(x.weight[0]*row[x.from[0]]) + float32(x.weight[1]*row[x.from[1]]) +
						float32(x.weight[2]*row[x.from[2]]) + float32(x.weight[3]*row[x.from[3]])
					sum += float32(w * along)
				}
			}
			dst[i] = sum
		}
	})
}

// taps are where along a line of coefficients, and by what weights, a point is read.
type taps struct {
	from   [4]int
	weight [4]float32
}

// tapsAt returns those of the point at c on a line of n voxels, or at its nearer end.
func tapsAt(c float64, n int) (out taps) {
	i, t := Cell(c, float64(n-1))
	s := 1 - t
	out.weight = [4]float32{s * s * s / 6, 2./3 - float32(t*t*(1-float32(t/2))), 2./3 - float32(s*s*(1-float32(s/2))), t * t * t / 6}
	for j := range out.from {
		k := i - 1 + j
		if k < 0 {
			k = -k
		}
		if k >= n {
			k = 2*(n-1) - k
		}
		out.from[j] = min(max(k, 0), n-1) // which a line of one voxel needs
	}
	return out
}

// splineCoefficients returns the coefficients of the cubic B-spline through v's voxels.
func (v *Volume) splineCoefficients(threads int) []float32 {
	c := slices.Clone(v.Data)
	stride := 1
	for _, n := range v.Size {
		parallel.For(len(c)/n, parallel.Rows(n), threads, func(lo, hi int) {
			line := make([]float64, n)
			for l := lo; l < hi; l++ {
				first := l/stride*stride*n + l%stride
				for i := range line {
					line[i] = float64(c[first+i*stride])
				}
				throughValues(line)
				for i, x := range line {
					c[first+i*stride] = float32(x)
				}
			}
		})
		stride *= n
	}
	return c
}

// throughValues replaces a line's values by the coefficients of the cubic B-spline through them, mirrored at both ends:
// a recursion forth and one back.
func throughValues(c []float64) {
	const pole, horizon = -0.26794919243112270647, 32 // sqrt(3) - 2, of which the 32nd power is nothing
	n := len(c)
	if n == 1 {
		return
	}
	// The forth recursion begins with the sum over the line and its mirror images, of which there are several on a short
	// one.
	power, first := 1.0, 0.0
	for k := range horizon {
		m := k % (2*n - 2)
		first += float64(power * c[min(m, 2*n-2-m)])
		power *= pole
	}
	c[0] = first
	for i := 1; i < n; i++ {
		c[i] += float64(pole * c[i-1])
	}
	c[n-1] = pole / (pole*pole - 1) * (c[n-1] + float64(pole*c[n-2]))
	for i := n - 2; i >= 0; i-- {
		c[i] = pole * (c[i+1] - c[i])
	}
	for i := range c {
		c[i] *= 6
	}
}
