package refine

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// varianceFloor keeps the correlation of a flat window at zero: a standard deviation of 1 % of the intensity range.
const varianceFloor = 1e-4

// ncc is the local normalised cross-correlation, squared with its sign kept: over the valid voxels of a window,
// A|A| / (B C) with A the covariance and B, C the variances of fixed and moving. Its mean over the grid is the similarity,
// and its derivative is exact, the windows' means included (Avants et al., Med. Image Anal. 2008, leave those out).
type ncc struct {
	aligned.Images
	radius  int
	threads int

	weight, count []float32 // 1 in valid voxels; valid voxels in the window
	meanF, varF   []float32 // of the windows, for the current weight
	warped        []float32
	mm, fm, flat  []float32 // scratch
}

func newNCC(im aligned.Images, radius, threads int) *ncc {
	n := im.Fixed.Voxels()
	s := &ncc{Images: im, radius: radius, threads: threads}
	for _, p := range []*[]float32{&s.count, &s.meanF, &s.varF, &s.warped, &s.mm, &s.fm, &s.flat} {
		*p = make([]float32, n)
	}
	return s
}

func (s *ncc) validate(u *field.Field) {
	f, size := s.Fixed.Data, s.Fixed.Size
	s.weight = s.Valid(u, s.threads)
	w := s.weight
	s.pointwise(func(i int) {
		s.meanF[i] = w[i] * f[i]
		s.varF[i] = w[i] * f[i] * f[i]
	})
	filter.Box(s.count, w, size, s.radius, s.threads)
	filter.Box(s.meanF, s.meanF, size, s.radius, s.threads)
	filter.Box(s.varF, s.varF, size, s.radius, s.threads)
	s.pointwise(func(i int) {
		s.meanF[i] /= max(s.count[i], 1)
		s.varF[i] += s.count[i] * (varianceFloor - s.meanF[i]*s.meanF[i])
	})
}

func (s *ncc) pointwise(body func(i int)) {
	parallel.For(len(s.count), 1<<14, s.threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			body(i)
		}
	})
}

func (s *ncc) force(g, u *field.Field) float64 {
	f, w, size := s.Fixed.Data, s.weight, s.Fixed.Size
	m := s.warped
	s.Warp(m, u, s.threads)
	mean, mm, fm, flat := s.flat, s.mm, s.fm, s.flat
	parallel.For(len(m), 1<<14, s.threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x := w[i] * m[i]
			mean[i], mm[i], fm[i] = x, x*m[i], x*f[i]
		}
	})
	for _, x := range [][]float32{mean, mm, fm} {
		filter.Box(x, x, size, s.radius, s.threads)
	}
	// d(similarity)/d(m(y)) = w(y) sum over the windows around y of 2|A|/(BC) (f(y) - mean f) - 2A|A|/(BC^2) (m(y) - mean m).
	// The three sums that this needs take the place of the three moments.
	voxels := float64(len(m))
	total := parallel.Sum(len(m), 1<<14, s.threads, func(lo, hi int) float64 {
		sum := 0.0
		for i := lo; i < hi; i++ {
			n := s.count[i]
			if w[i] == 0 {
				mean[i], mm[i], fm[i] = 0, 0, 0
				continue
			}
			mu := mean[i] / n
			a := fm[i] - mean[i]*s.meanF[i]
			b := s.varF[i]
			c := mm[i] + n*varianceFloor - mean[i]*mu
			ratio := a / (b * c)
			if ratio < 0 {
				ratio = -ratio
			}
			sum += float64(a * ratio)
			da, dc := 2*ratio, 2*ratio*a/c
			fm[i], mm[i] = da, dc
			flat[i] = dc*mu - da*s.meanF[i]
		}
		return sum
	})
	for _, x := range [][]float32{fm, mm, flat} {
		filter.Box(x, x, size, s.radius, s.threads)
	}
	parallel.For(len(m), 1<<14, s.threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			flat[i] = w[i] * (f[i]*fm[i] - m[i]*mm[i] + flat[i])
		}
	})
	gradient(g, m, flat, w, s.threads)
	return total / voxels
}

// gradient writes scale * grad m to g, with central differences; zero where a neighbour is not valid.
func gradient(g *field.Field, m, scale, w []float32, threads int) {
	nx, ny, nz := g.Size[0], g.Size[1], g.Size[2]
	slice := nx * ny
	parallel.For(ny*nz, parallel.Rows(nx), threads, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			y, z := r%ny, r/ny
			row := r * nx
			for i := row; i < row+nx; i++ {
				s := 0.5 * scale[i]
				var gx, gy, gz float32
				if s != 0 {
					if x := i - row; x > 0 && x < nx-1 {
						gx = s * w[i-1] * w[i+1] * (m[i+1] - m[i-1])
					}
					if y > 0 && y < ny-1 {
						gy = s * w[i-nx] * w[i+nx] * (m[i+nx] - m[i-nx])
					}
					if z > 0 && z < nz-1 {
						gz = s * w[i-slice] * w[i+slice] * (m[i+slice] - m[i-slice])
					}
				}
				g.X[i], g.Y[i], g.Z[i] = gx, gy, gz
			}
		}
	})
}
