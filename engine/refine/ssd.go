package refine

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/metric"
	"github.com/morphseek/morphseek/engine/volume"
)

// ssd is minus the mean squared difference of one or more channels over the valid voxels: of the intensities, or of MIND-SSC
// descriptors. Channels are interleaved, a voxel's side by side.
type ssd struct {
	aligned.Images
	channels      int
	fixed, moving []float32
	warped        []float32
	weight        []float32
	threads       int
}

func newMSE(im aligned.Images, threads int) *ssd {
	return newSSD(im, 1, im.Fixed.Data, im.Moving.Data, threads)
}

func newMIND(im aligned.Images, threads int) *ssd {
	describe := func(v *volume.Volume) []float32 {
		planes := metric.MINDSSC(v.Data, v.Size, 1, 2, threads)
		n, out := len(v.Data), make([]float32, len(planes))
		parallel.For(n, 1<<13, threads, func(lo, hi int) {
			for c := range metric.MINDChannels {
				for i, x := range planes[c*n+lo : c*n+hi] {
					out[(lo+i)*metric.MINDChannels+c] = x
				}
			}
		})
		return out
	}
	return newSSD(im, metric.MINDChannels, describe(im.Fixed), describe(im.Moving), threads)
}

func newSSD(im aligned.Images, channels int, fixed, moving []float32, threads int) *ssd {
	return &ssd{Images: im, channels: channels, fixed: fixed, moving: moving, warped: make([]float32, len(fixed)), weight: make([]float32, len(fixed)/channels), threads: threads}
}

func (s *ssd) validate(u *field.Field) { s.Valid(s.weight, u, s.threads) }

func (s *ssd) force(g, _, u *field.Field) float64 {
	s.warp(u)
	nx, ny, nz := g.Size[0], g.Size[1], g.Size[2]
	c := s.channels
	w := s.weight
	total := parallel.Sum(ny*nz, parallel.Rows(nx), s.threads, func(lo, hi int) float64 {
		sum := 0.0
		delta := make([]float32, c)
		// slope is the derivative of -sum (fixed - warped)^2 along one axis: delta is the difference, a and b the neighbours.
		slope := func(inside bool, a, b int) float32 {
			if !inside || w[a] == 0 || w[b] == 0 {
				return 0
			}
			before, after := s.warped[a*c : a*c+c][:len(delta)], s.warped[b*c : b*c+c][:len(delta)]
			var d float32
			for k, x := range delta {
				d += x * (after[k] - before[k])
			}
			return d
		}
		for r := lo; r < hi; r++ {
			y, z := r%ny, r/ny
			for x := range nx {
				i := r*nx + x
				if w[i] == 0 {
					g.X[i], g.Y[i], g.Z[i] = 0, 0, 0
					continue
				}
				fixed, warped := s.fixed[i*c : i*c+c][:len(delta)], s.warped[i*c : i*c+c][:len(delta)]
				var square float32
				for k := range delta {
					d := fixed[k] - warped[k]
					delta[k] = d
					square += d * d
				}
				sum += float64(square)
				g.X[i] = slope(x > 0 && x < nx-1, i-1, i+1)
				g.Y[i] = slope(y > 0 && y < ny-1, i-nx, i+nx)
				g.Z[i] = slope(z > 0 && z < nz-1, i-nx*ny, i+nx*ny)
			}
		}
		return sum
	})
	return -total / float64(c*len(w))
}

// warp reads the moving channels at x + u(x), trilinearly; the weight keeps what lies outside out of the sums.
func (s *ssd) warp(u *field.Field) {
	size := s.Moving.Size
	nx, ny := u.Size[0], u.Size[1]
	c := s.channels
	// Both grids have the same axes and spacing: between their indices lies the margin.
	shift := s.Moving.PhysicalToIndex().Apply(u.Origin)
	lastX, lastY, lastZ := float64(size[0]-1), float64(size[1]-1), float64(size[2]-1)
	parallel.For(ny*u.Size[2], parallel.Rows(nx), s.threads, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			y, z := float64(r%ny)+shift[1], float64(r/ny)+shift[2]
			for x := range nx {
				i := r*nx + x
				ix, fx := volume.Cell(float64(x)+shift[0]+float64(u.X[i]), lastX)
				iy, fy := volume.Cell(y+float64(u.Y[i]), lastY)
				iz, fz := volume.Cell(z+float64(u.Z[i]), lastZ)
				dx, dy, dz := 0, 0, 0
				if fx > 0 {
					dx = c
				}
				if fy > 0 {
					dy = c * size[0]
				}
				if fz > 0 {
					dz = c * size[0] * size[1]
				}
				o := c * (ix + size[0]*(iy+size[1]*iz))
				out := s.warped[i*c : i*c+c]
				m := func(o int) []float32 { return s.moving[o : o+c][:len(out)] }
				a0, a1, a2, a3 := m(o), m(o+dx), m(o+dy), m(o+dy+dx)
				b0, b1, b2, b3 := m(o+dz), m(o+dz+dx), m(o+dz+dy), m(o+dz+dy+dx)
				gx, gy, gz := 1-fx, 1-fy, 1-fz
				w0, w1, w2, w3 := gx*gy*gz, fx*gy*gz, gx*fy*gz, fx*fy*gz
				v0, v1, v2, v3 := gx*gy*fz, fx*gy*fz, gx*fy*fz, fx*fy*fz
				for k := range out {
					out[k] = w0*a0[k] + w1*a1[k] + w2*a2[k] + w3*a3[k] + v0*b0[k] + v1*b1[k] + v2*b2[k] + v3*b3[k]
				}
			}
		}
	})
}
