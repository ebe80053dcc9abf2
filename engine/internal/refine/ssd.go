package refine

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// ssd is minus the mean squared difference of one or more channels over the valid voxels: of the intensities, or of
// MIND-SSC descriptors. Channels are interleaved, a voxel's side by side, in units of 1/one; they are not Pair.Channels. Whole
// numbers take half the memory of floats, and their sums are exact.
type ssd struct {
	aligned.Images
	channels      int
	fixed, moving []int16
	warped        []int16   // a ring of slices
	weight        []float32 // 1 in valid voxels
	valid         int       // how many those are
	open          []uint8   // bit k is set where a voxel and both its neighbours along axis k are valid
	sums          []int64   // of the squared differences, by row
	threads       int
}

// one is the value 1 of a channel: as large as the sum of squares of twelve may be in 32 bits.
const one = 1 << 13

// inUnits returns a channel's value, which sharpening may put beyond 0..1: by so little that differences of two fit 16 bits.
func inUnits(x float32) int16 {
	return int16(float32(min(max(x, -1), 2)*one)+(one+0.5)) - one
}

// spare is how many values a vector may read behind the last voxel's.
const spare = 4

// interleaved returns planes side by side, voxel by voxel, and padding voxels more; channels without a plane are 0.
func interleaved(planes [][]float32, channels, padding, threads int) []int16 {
	out := make([]int16, (len(planes[0])+padding)*channels+spare)
	parallel.For(len(planes[0]), 1<<13, threads, func(lo, hi int) {
		for c, plane := range planes {
			for i, x := range plane[lo:hi] {
				out[(lo+i)*channels+c] = inUnits(x)
			}
		}
	})
	return out
}

// kernel is that of MIND-SSC. For two contrasts of one person near patches are best
// (RATIONALE.md, MIND at a dilation of one voxel).
var kernel = mind.Kernel{Dilation: 1, Least: mind.Published}

func newMIND(im aligned.Images, threads int) *ssd {
	describe := func(v, valid *volume.Volume, padding int) []int16 {
		planes := slices.Collect(slices.Chunk(mind.Describe(v.Data, valid.Data, v.Size, kernel, threads), len(v.Data)))
		return interleaved(planes, mind.Channels, padding, threads)
	}
	moving := describe(im.Moving, im.MovingValid, beyond(im.Moving.Size)) // first: it takes more memory while it is made
	return newSSD(im, mind.Channels, describe(im.Fixed, im.FixedValid, 0), moving, threads)
}

func newSSD(im aligned.Images, channels int, fixed, moving []int16, threads int) *ssd {
	n, size := im.Fixed.Voxels(), im.Fixed.Size
	s := &ssd{
		Images: im.Packed(), channels: channels, fixed: fixed, moving: moving,
		weight: make([]float32, n), open: make([]uint8, n), sums: make([]int64, n/size[0]), threads: threads,
	}
	s.warped = make([]int16, min(s.part()+2, size[2])*size[0]*size[1]*channels+spare) // with a neighbour on both sides
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
	sum := int64(0)
	for _, x := range s.sums {
		sum += x
	}
	return -float64(sum) / (one * one * float64(s.channels))
}

// place is where the warped row y, z begins in the ring, voxels.
func (s *ssd) place(y, z int) int {
	nx, ny := s.Fixed.Size[0], s.Fixed.Size[1]
	return z*ny*nx%((len(s.warped)-spare)/s.channels) + y*nx
}

// row writes the row y, z of the force to g and returns the sum of its squared differences, in units of 1/one^2.
func (s *ssd) row(g *field.Field, y, z int) int64 {
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

// loop writes the row and returns the sum of its squared differences.
func (r forceRow) loop(fixed, warped []int16) (squares int64) {
	nx := len(r.open)
	c := len(fixed) / nx
	delta := make([]int32, c)
	// slope is the derivative along one axis: delta is the difference, a and b the neighbours.
	slope := func(a, b int) float32 {
		before, after := warped[a*c : a*c+c][:len(delta)], warped[b*c : b*c+c][:len(delta)]
		sum := int32(0)
		for k, x := range delta {
			sum += x * int32(after[k]-before[k])
		}
		return float32(sum) * (1. / (one * one))
	}
	for x, open := range r.open {
		var by [3]float32
		if r.weight[x] != 0 {
			i := r.at + x
			here := warped[i*c : i*c+c][:len(delta)]
			square := int32(0)
			for k := range delta {
				delta[k] = int32(fixed[x*c+k] - here[k])
				square += delta[k] * delta[k]
			}
			squares += int64(square)
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
	p := points{
		last:   [4]float32{float32(size[0] - 1), float32(size[1] - 1), float32(size[2] - 1)},
		stride: [4]int32{1, int32(size[0]), int32(size[0] * size[1])},
	}
	parallel.For(ny*(to-from), parallel.Rows(nx), s.threads, func(lo, hi int) {
		p := p
		for r := from*ny + lo; r < from*ny+hi; r++ {
			y, z := r%ny, r/ny
			p.u = u.Row(y, z)
			p.first = [4]float32{float32(s.Margin()), float32(y + s.Margin()), float32(z + s.Across())}
			out := s.warped[s.place(y, z)*s.channels:][:nx*s.channels]
			if !s.warpVector(out, p) {
				s.warpRow(out, p)
			}
		}
	})
}

// points are where a row's channels are read: from the first voxel on, each displaced by u, within the moving grid.
type points struct {
	u      [3][]float32
	first  [4]float32 // x, y, z of the first voxel
	last   [4]float32 // of the grid's last one
	stride [4]int32   // voxels to the next one along x, y and z
}

// cell returns the voxel below a point, and how far beyond it the point lies along each axis, in voxels.
func (p points) cell(i int) (voxel int, f [3]float32) {
	from := p.first
	from[0] += float32(i)
	for k := range f {
		at := from[k] + p.u[k][i]
		if at > 0 { // and a number
			at = min(at, p.last[k])
			voxel += int(at) * int(p.stride[k])
			f[k] = at - float32(int(at))
		}
	}
	return voxel, f
}

// full is the weight 1 of a corner of a cell; a product is rounded to a whole number before it is added.
const full = 1 << 15

func (s *ssd) warpRow(row []int16, p points) {
	c := s.channels
	for i := range p.u[0] {
		voxel, f := p.cell(i)
		out := row[i*c : (i+1)*c]
		clear(out)
		for corner := range 8 {
			o, weight := voxel, float32(1)
			for k, f := range f {
				switch {
				case corner>>k&1 == 0:
					weight *= 1 - f
				case f > 0:
					weight *= f
					o += int(p.stride[k])
				default: // there may be no voxel
					weight = 0
				}
			}
			w := min(int32(float32(weight*full)+0.5), math.MaxInt16)
			for k, x := range s.moving[o*c : o*c+c][:len(out)] {
				out[k] += int16((int32(x)*w + full/2) >> 15)
			}
		}
	}
}
