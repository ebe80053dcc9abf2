package refine

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// ssd is minus the mean squared difference of one or more channels over the valid voxels: of the intensities, or of
// MIND-SSC descriptors. Channels are interleaved, a voxel's side by side; they are not Pair.Channels.
type ssd struct {
	aligned.Images
	channels      int
	fixed, moving []float32
	warped        []float32 // a ring of slices
	weight        []float32 // 1 in valid voxels
	valid         int       // how many those are
	open          []uint8   // bit k is set where a voxel and both its neighbours along axis k are valid
	sums          []float64 // of the squared differences, by row
	threads       int
}

// kernel is that of MIND-SSC. For two contrasts of one person near patches are best
// (RATIONALE.md, MIND at a dilation of one voxel).
var kernel = mind.Kernel{Dilation: 1, Least: mind.Published}

func newMIND(im aligned.Images, threads int) *ssd {
	describe := func(v, valid *volume.Volume, padding int) []float32 {
		planes := mind.Describe(v.Data, valid.Data, v.Size, kernel, threads)
		n, out := len(v.Data), make([]float32, len(planes)+padding*mind.Channels)
		parallel.For(n, 1<<13, threads, func(lo, hi int) {
			for c := range mind.Channels {
				for i, x := range planes[c*n+lo : c*n+hi] {
					out[(lo+i)*mind.Channels+c] = x
				}
			}
		})
		return out
	}
	moving := describe(im.Moving, im.MovingValid, beyond(im.Moving.Size)) // first: it takes more memory while it is made
	return newSSD(im, mind.Channels, describe(im.Fixed, im.FixedValid, 0), moving, threads)
}

func newSSD(im aligned.Images, channels int, fixed, moving []float32, threads int) *ssd {
	n, size := im.Fixed.Voxels(), im.Fixed.Size
	s := &ssd{
		Images: im.Packed(), channels: channels, fixed: fixed, moving: moving,
		weight: make([]float32, n), open: make([]uint8, n), sums: make([]float64, n/size[0]), threads: threads,
	}
	s.warped = make([]float32, min(s.part()+2, size[2])*size[0]*size[1]*channels) // with a neighbour on both sides
	return s
}

func (s *ssd) validate(u *field.Field) {
	s.Valid(s.weight, u, s.threads)
	s.valid = 0
	for _, w := range s.weight {
		s.valid += int(w)
	}
	parallel.Each(len(s.open)/u.Size[0], parallel.Rows(u.Size[0]), s.threads, func(r int) {
		openRow(s.open, s.weight, u.Size, r%u.Size[1], r/u.Size[1])
	})
}

func (s *ssd) voxels() int { return s.valid }

// part is how many slices are warped together: few, which stay in the processor's cache.
func (s *ssd) part() int {
	const voxels = 1 << 17
	size := s.Fixed.Size
	return min(max(voxels/(size[0]*size[1])&^1, 2), size[2])
}

func (s *ssd) reach() filter.Band { return nil }

// force is the derivative of -sum (fixed - warped)^2, by central differences.
func (s *ssd) force(g, u *field.Field, done func(from, to int)) float64 {
	nx, ny, nz := s.Fixed.Size[0], s.Fixed.Size[1], s.Fixed.Size[2]
	grain := parallel.Rows(nx)
	for from, known := 0, 0; from < nz; from += s.part() {
		to := min(from+s.part(), nz)
		needed := min(to+1, nz)
		s.warp(u, known, needed)
		known = needed
		parallel.For((to-from)*ny, grain, s.threads, func(lo, hi int) {
			for r := from*ny + lo; r < from*ny+hi; r++ {
				s.sums[r] = s.row(g, r%ny, r/ny)
			}
		})
		done(from, to)
	}
	return -parallel.Sum(ny*nz, grain, s.threads, func(lo, hi int) (sum float64) {
		for _, x := range s.sums[lo:hi] {
			sum += x
		}
		return sum
	}) / float64(s.channels)
}

// place is where the warped row y, z begins in the ring, voxels.
func (s *ssd) place(y, z int) int {
	nx, ny := s.Fixed.Size[0], s.Fixed.Size[1]
	return z*ny*nx%(len(s.warped)/s.channels) + y*nx
}

// row writes the row y, z of the force to g and returns the sum of its squared differences.
func (s *ssd) row(g *field.Field, y, z int) float64 {
	size := s.Fixed.Size
	nx, here := size[0], s.place(y, z)
	from := (z*size[1] + y) * nx
	r := forceRow{
		g: g.Row(y, z%g.Size[2]), weight: s.weight[from : from+nx], open: s.open[from : from+nx], at: here,
		before: s.place(y, max(z-1, 0)) - here, after: s.place(y, min(z+1, size[2]-1)) - here,
	}
	fixed := s.fixed[from*s.channels : (from+nx)*s.channels]
	squares, ok := r.vector(fixed, s.warped)
	if !ok {
		squares = r.loop(fixed, s.warped)
	}
	return squares
}

// forceRow is a row of the force. The warped row begins at voxel at; the rows of the slices around it begin that many
// voxels before and after.
type forceRow struct {
	g                 [3][]float32
	weight            []float32
	open              []uint8
	at, before, after int
}

// loop writes the row and returns the sum of its squared differences. Over the channels four sums run side by side.
func (r forceRow) loop(fixed, warped []float32) (squares float64) {
	nx := len(r.open)
	c := len(fixed) / nx
	delta := make([]float32, c)
	// slope is the derivative along one axis: delta is the difference, a and b the neighbours.
	slope := func(a, b int) float32 {
		before, after := warped[a*c : a*c+c][:len(delta)], warped[b*c : b*c+c][:len(delta)]
		var d [4]float32
		for k, x := range delta {
			d[k&3] += float32(x * (after[k] - before[k]))
		}
		return (d[0] + d[1]) + (d[2] + d[3])
	}
	for x, open := range r.open {
		var by [3]float32
		if r.weight[x] != 0 {
			i := r.at + x
			here := warped[i*c : i*c+c][:len(delta)]
			var square [4]float32
			for k := range delta {
				d := fixed[x*c+k] - here[k]
				delta[k] = d
				square[k&3] += float32(d * d)
			}
			squares += float64((square[0] + square[1]) + (square[2] + square[3]))
			if open&1 != 0 {
				by[0] = slope(i-1, i+1)
			}
			if open&2 != 0 {
				by[1] = slope(i-nx, i+nx)
			}
			if open&4 != 0 {
				by[2] = slope(i+r.before, i+r.after)
			}
		}
		r.g[0][x], r.g[1][x], r.g[2][x] = by[0], by[1], by[2]
	}
	return squares
}

// warp reads the moving channels at x + u(x), trilinearly, in the slices from, ..., to-1; the weight keeps what lies outside
// out of the sums.
func (s *ssd) warp(u *field.Field, from, to int) {
	size := s.Moving.Size
	nx, ny := u.Size[0], u.Size[1]
	margin, across := float64(s.Margin()), float64(s.Across())
	lastX, lastY, lastZ := float64(size[0]-1), float64(size[1]-1), float64(size[2]-1)
	parallel.For(ny*(to-from), parallel.Rows(nx), s.threads, func(lo, hi int) {
		c := cells{make([]int, nx), make([]float32, nx), make([]float32, nx), make([]float32, nx)}
		for r := from*ny + lo; r < from*ny+hi; r++ {
			y, z := float64(r%ny)+margin, float64(r/ny)+across
			for x := range nx {
				i := r*nx + x
				var ix, iy, iz int
				ix, c.x[x] = volume.Cell(float64(x)+margin+float64(u.X[i]), lastX)
				iy, c.y[x] = volume.Cell(y+float64(u.Y[i]), lastY)
				iz, c.z[x] = volume.Cell(z+float64(u.Z[i]), lastZ)
				c.first[x] = s.channels * (ix + size[0]*(iy+size[1]*iz))
			}
			out := s.warped[s.place(r%ny, r/ny)*s.channels:][:nx*s.channels]
			if !s.warpVector(out, c) {
				s.warpRow(out, c)
			}
		}
	})
}

// cells are where a row's samples lie in the moving image: the first channel of the voxel at or below, and the
// fractions beyond.
type cells struct {
	first   []int
	x, y, z []float32
}

func (s *ssd) warpRow(row []float32, at cells) {
	c, nx, slice := s.channels, s.channels*s.Moving.Size[0], s.channels*s.Moving.Size[0]*s.Moving.Size[1]
	for i, o := range at.first {
		fx, fy, fz := at.x[i], at.y[i], at.z[i]
		dx, dy, dz := volume.Next(fx, c), volume.Next(fy, nx), volume.Next(fz, slice)
		out := row[i*c : (i+1)*c]
		m := func(o int) []float32 { return s.moving[o : o+c][:len(out)] }
		a0, a1, a2, a3 := m(o), m(o+dx), m(o+dy), m(o+dy+dx)
		b0, b1, b2, b3 := m(o+dz), m(o+dz+dx), m(o+dz+dy), m(o+dz+dy+dx)
		gx, gy, gz := 1-fx, 1-fy, 1-fz
		w0, w1, w2, w3 := gx*gy*gz, fx*gy*gz, gx*fy*gz, fx*fy*gz
		v0, v1, v2, v3 := gx*gy*fz, fx*gy*fz, gx*fy*fz, fx*fy*fz
		for k := range out {
			out[k] = float32(w0*a0[k]) + float32(w1*a1[k]) + float32(w2*a2[k]) + float32(w3*a3[k]) +
				float32(v0*b0[k]) + float32(v1*b1[k]) + float32(v2*b2[k]) + float32(v3*b3[k])
		}
	}
}
