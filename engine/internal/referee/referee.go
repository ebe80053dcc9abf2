// Package referee compares candidate transforms of one pair. It measures all of them alike: on the same voxels, by
// descriptors that hold across contrasts, with both images smoothed to one grid, so that a transform gains nothing from
// the blur that it causes. No stage optimises its measure in this form, and it knows no stage.
package referee

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/internal/moments"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// most bounds the voxels that are compared, by the axes along which the image extends: every k-th of the fixed image's own.
// They are not resampled to cubes: thick slices would be interpolated, and an interpolation looks like a misfit.
var most = [4]int{2: aligned.SlicePixels, 3: 250_000}

// kernel is that of the descriptors, and window the radius of the local correlation's, in voxels of the referee's grid.
var kernel = mind.Kernel{Dilation: 1, Least: mind.Published}

const window = 2

// blurred is the least standard deviation, voxels, of the Gaussian on both images.
const blurred = 0.8

// same is the least mean squared difference of descriptors that counts: an image and itself differ by zero, or by
// rounding.
const same = 1e-6

// flat is the variance, of intensities in 0..1, below which a window has no structure.
const flat = 1e-5

// Referee holds what is the same for all candidates of a pair.
type Referee struct {
	grid        volume.Geometry
	fixed       []float32 // intensities in 0..1
	descriptors []float32 // of fixed
	known       []float32 // 1 where the fixed image shows something, else 0
	structure   []float32 // weight: local variance of fixed over its mean, at most 1

	moving      *volume.Volume
	movingKnown *volume.Mask // its voxels that show something
	channels    []channel
	threads     int
}

// State is a candidate as the referee sees it, voxel by voxel.
type State struct {
	known       []float32 // 1 where both images show something
	distance    []float32 // mean squared difference of the descriptors
	correlation []float32 // local correlation, -1..1
	channels    []seen
}

// New returns the referee of a pair. It does not read the pair's initial transform: every candidate has its own.
func New(pair aligned.Pair, threads int) *Referee {
	grid := thinned(pair.Fixed.Geometry, most[pair.Fixed.Axes()])
	r := on(grid, threads,
		smoothed(pair.Fixed, grid.Spacing, threads), shown(pair.Fixed, pair.FixedMask, threads),
		smoothed(pair.Moving, movingSpacing(grid, pair.Moving.Geometry), threads), shown(pair.Moving, pair.MovingMask, threads))
	r.channels = channelsOf(pair, threads)
	return r
}

// on returns the referee on a grid, by smoothed images and where they show something.
func on(grid volume.Geometry, threads int, fixed, fixedKnown, moving, movingKnown *volume.Volume) *Referee {
	identity := volume.IdentityAffine()
	r := &Referee{grid: grid, moving: moving, movingKnown: movingKnown.Mask(), threads: threads}
	r.fixed = fixed.Resample(grid, identity, volume.Linear, 0, threads).Data
	r.known = fixedKnown.Resample(grid, identity, volume.Nearest, 0, threads).Data
	r.descriptors = mind.Describe(r.fixed, r.known, grid.Size, kernel, threads)
	r.structure = r.weigh()
	return r
}

// Look measures the candidate p -> initial(p + d(p)), d the displacement of deform; nil is none.
func (r *Referee) Look(initial volume.Affine, deform *field.Field) State {
	total := field.Total(initial, deform, r.grid, r.threads)
	s := State{channels: r.lookAt(initial, deform), known: total.WarpMask(r.movingKnown, r.threads).Data}
	for i, k := range r.known {
		s.known[i] *= k
	}
	warped := repeated(total, r.moving, r.threads)
	s.correlation = r.correlate(warped, s.known)
	theirs := mind.Describe(warped, s.known, r.grid.Size, kernel, r.threads)
	n := len(warped)
	s.distance = make([]float32, n)
	parallel.For(n, 1<<14, r.threads, func(lo, hi int) {
		for c := range mind.Channels {
			ours, theirs := r.descriptors[c*n:(c+1)*n], theirs[c*n:(c+1)*n]
			for i := lo; i < hi; i++ {
				d := ours[i] - theirs[i]
				s.distance[i] += float32(d*d) / mind.Channels
			}
		}
	})
	return s
}

// Covered is the share of what the fixed image shows that the moving one, under an affine map into its space, can cover
// at most: less than 1 where it is the smaller one.
func (r *Referee) Covered(by volume.Affine) float64 {
	fixed := shows(r.known, r.grid)
	moving := shows(r.movingKnown.Data, r.movingKnown.Geometry) / math.Abs(by.Det())
	if moving >= fixed { // which may be 0
		return 1
	}
	return moving / fixed
}

// shows is the volume that a mask on g selects, mm^3; of a slice the area, mm^2.
func shows[T float32 | uint8](mask []T, g volume.Geometry) (measure float64) {
	for _, k := range mask {
		measure += float64(k)
	}
	return measure * g.Cell()
}

// Margin is by how much one candidate is better than another, over the voxels that both of them show, weighted by the
// fixed image's structure.
type Margin struct {
	Distance    float64 // fall of the logarithm of the descriptors' mean distance
	Correlation float64 // rise of the mean squared local correlation
	T           float64 // Student's t of the fall, over blocks of 6 voxels a side
	Common      float64 // share of the fixed image that both show
	From, To    float64 // the mean squared local correlations
}

// Compare says by how much b is better than a.
func (r *Referee) Compare(a, b State) Margin {
	type sums struct{ weight, a, b, ca, cb, common, known float64 }
	const block = 6
	size := r.grid.Size
	var blocks [3]int
	for k := range 3 {
		blocks[k] = (size[k] + block - 1) / block
	}
	cells := make([]sums, blocks[0]*blocks[1]*blocks[2])
	parallel.For(blocks[2], 1, r.threads, func(lo, hi int) {
		for z := lo * block; z < min(hi*block, size[2]); z++ {
			for y := range size[1] {
				for x := range size[0] {
					i := (z*size[1]+y)*size[0] + x
					cell := &cells[(z/block*blocks[1]+y/block)*blocks[0]+x/block]
					cell.known += float64(r.known[i])
					if a.known[i] == 0 || b.known[i] == 0 {
						continue
					}
					cell.common++
					w := r.structure[i]
					cell.weight += float64(w)
					cell.a += float64(w * a.distance[i])
					cell.b += float64(w * b.distance[i])
					cell.ca += float64(w * a.correlation[i] * a.correlation[i])
					cell.cb += float64(w * b.correlation[i] * b.correlation[i])
				}
			}
		}
	})
	var t sums
	for _, c := range cells {
		t.weight += c.weight
		t.a += c.a
		t.b += c.b
		t.ca += c.ca
		t.cb += c.cb
		t.common += c.common
		t.known += c.known
	}
	var m Margin
	own := 0.0 // what the pair's images count beside its channels
	if t.known > 0 {
		m.Common = t.common / t.known
	}
	if t.weight > 0 {
		mean, square, n := (t.a-t.b)/t.weight, 0.0, 0.0
		for _, c := range cells {
			if c.weight > 0 {
				d := c.a - c.b - float64(mean*c.weight)
				square += float64(d * d)
				n++
			}
		}
		floor := same * t.weight
		m.Distance, m.Correlation = math.Log(max(t.a, floor)/max(t.b, floor)), (t.cb-t.ca)/t.weight
		m.From, m.To, own = t.ca/t.weight, t.cb/t.weight, 1
		if square > 0 {
			m.T = mean * t.weight / math.Sqrt(square*n/(n-1))
		}
	}
	if n := len(a.channels); n > 0 && n == len(b.channels) { // a mirrored pair has no channels
		m = r.withChannels(m, own, a, b)
	}
	return m
}

// thinned returns every k-th voxel of g along each axis, at most most of them, the k chosen so that voxels are as
// nearly cubes as possible.
func thinned(g volume.Geometry, most int) volume.Geometry {
	k := [3]int{1, 1, 1}
	for {
		grid := g.Blocks(k)
		if grid.Voxels() <= most {
			return grid
		}
		finest := -1
		for a := range g.Axes() {
			if k[a] < g.Size[a] && (finest < 0 || grid.Spacing[a] < grid.Spacing[finest]) {
				finest = a
			}
		}
		k[finest]++
	}
}

// across returns the spacing of grid along the axes of g, so that an image on g can be smoothed for grid.
func across(spacing [3]float64, grid, g volume.Geometry) (out [3]float64) {
	for a := range 3 {
		square := 0.0
		for b := range 3 {
			dot := 0.0
			for row := range 3 {
				dot += float64(g.Direction[3*row+a] * grid.Direction[3*row+b])
			}
			square += float64(dot * dot * spacing[b] * spacing[b])
		}
		out[a] = math.Sqrt(square)
	}
	return out
}

// movingSpacing returns the spacing along the axes of a moving image for which it is smoothed: that of grid, or where this
// is far beyond what the image can have, as in another unit that the initial transform bridges, what its own grid has.
func movingSpacing(grid, moving volume.Geometry) [3]float64 {
	const far = 8
	out := across(grid.Spacing, grid, moving)
	own := thinned(moving, most[moving.Axes()]).Spacing
	for a := range moving.Axes() {
		if out[a] > far*own[a] {
			return own
		}
	}
	return out
}

// smoothed returns v with intensities in 0..1, blurred to voxels of the given spacing along its axes, and by blurred
// voxels at least: beside that the blur of an interpolation between two voxels is small.
func smoothed(v *volume.Volume, spacing [3]float64, threads int) *volume.Volume {
	var sigma [3]float64
	for a := range 3 {
		ratio := max(spacing[a]/v.Spacing[a], 1)
		sigma[a] = max(0.5*math.Sqrt(float64(ratio*ratio)-1), blurred)
		if v.Flat() && ratio >= 2 { // what is finer than a section's grid has no counterpart in the next section
			sigma[a] = blurred * ratio
		}
	}
	out := volume.Zeros(v.Geometry)
	filter.Gaussian(v.Size, sigma, 1, threads, aligned.Unit(v), filter.To(v.Size, out.Data))
	return out
}

// shown is 1 where v shows something: inside its mask, and not in a border of about one dark value, of a fiftieth of the image
// or more, that a scanner or a program put there. The border's edge, which is in no body, counts with it.
func shown(v *volume.Volume, mask *volume.Volume, threads int) *volume.Volume {
	const grown, least = 2, 0.02
	out := volume.Zeros(v.Geometry)
	lo := v.DarkBorder()
	nx, ny, rows := v.Size[0], v.Size[1], v.Size[1]*v.Size[2]
	border := make([]bool, len(v.Data))
	found := parallel.Reduce(rows, parallel.Rows(nx), threads, func(from, to int) (found int) {
		for r := from; r < to; r++ {
			y, o := r%ny, r*nx
			for x, value := range v.Data[o : o+nx] {
				i := o + x
				border[i] = !(value > lo || // NaN is border, too
					x > 0 && v.Data[i-1] > lo || x < nx-1 && v.Data[i+1] > lo ||
					y > 0 && v.Data[i-nx] > lo || y < ny-1 && v.Data[i+nx] > lo)
				if border[i] {
					found++
				}
			}
		}
		return found
	}, func(a, b int) int { return a + b })
	if float64(found) < least*float64(len(border)) {
		clear(border)
	}
	parallel.For(rows, parallel.Rows(nx), threads, func(from, to int) {
		for r := from; r < to; r++ {
			y, o := r%ny, r*nx
			for x := range nx {
				i := o + x
				if mask != nil && mask.Data[i] == 0 || slices.Contains(border[o+max(x-grown, 0):o+min(x+grown, nx-1)+1], true) {
					continue
				}
				near := false
				for dy := max(y-grown, 0); dy <= min(y+grown, ny-1); dy++ {
					near = near || border[i+(dy-y)*nx]
				}
				if !near {
					out.Data[i] = 1
				}
			}
		}
	})
	return out
}

// repeated reads v at x + u(x), with its border repeated, so that descriptors have no edge at the end of the field of
// view.
func repeated(u *field.Field, v *volume.Volume, threads int) []float32 {
	out := make([]float32, u.Voxels())
	s := v.Sampler(volume.Linear, 0)
	m := u.To(v.Geometry)
	nx, ny := u.Size[0], u.Size[1]
	parallel.For(ny*u.Size[2], parallel.Rows(nx), threads, func(lo, hi int) {
		x, y, z := make([]float64, nx), make([]float64, nx), make([]float64, nx)
		for r := lo; r < hi; r++ {
			for i := range nx {
				o := r*nx + i
				p := [3]float64{float64(i) + float64(u.X[o]), float64(r%ny) + float64(u.Y[o]), float64(r/ny) + float64(u.Z[o])}
				p = m.Apply(p)
				for a, at := range [3][]float64{x, y, z} {
					at[i] = min(max(p[a], 0), float64(v.Size[a]-1))
				}
			}
			s.Row(out[r*nx:(r+1)*nx], x, y, z)
		}
	})
	return out
}

// weigh returns the weights of the fixed image's voxels: the local variance over its mean, at most 1.
func (r *Referee) weigh() []float32 {
	out := make([]float32, len(r.fixed))
	moments.Windows(r.grid.Size, window, r.fixed, nil, r.known, r.threads, func(i int, s moments.Sums) {
		f := s.F / s.N
		out[i] = max(s.FF/s.N-float32(f*f), 0)
	})
	sum, n := 0.0, 0.0
	for i, x := range out {
		if r.known[i] != 0 {
			sum += float64(x)
			n++
		}
	}
	if sum == 0 {
		return out
	}
	mean := float32(sum / n)
	for i, x := range out {
		out[i] = min(x/mean, 1) * r.known[i]
	}
	return out
}

// correlate returns the local correlation of the fixed and another image where both are known.
func (r *Referee) correlate(other, known []float32) []float32 {
	out := make([]float32, len(other))
	moments.Windows(r.grid.Size, window, r.fixed, other, known, r.threads, func(i int, s moments.Sums) {
		f, m := s.F/s.N, s.M/s.N
		b, c := max(s.FF/s.N-float32(f*f), 0), max(s.MM/s.N-float32(m*m), 0)
		out[i] = (s.FM/s.N - float32(f*m)) / float32(math.Sqrt(float64((b+flat)*(c+flat))))
	})
	return out
}
