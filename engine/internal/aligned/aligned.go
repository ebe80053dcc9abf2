// Package aligned resamples a pair of volumes to one grid under the initial transform. The search and the refinement
// work on that.
package aligned

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/interp"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// SlicePixels are the most pixels of a slice that tell where it lies: what is finer in a section of tissue has no
// counterpart in the next one.
const SlicePixels = 1 << 16

// Pair is a pair after its initial alignment. Masks may be nil; non-zero selects.
type Pair struct {
	Fixed, Moving         *volume.Volume
	FixedMask, MovingMask *volume.Volume
	Rigid                 *volume.Volume // labels on the fixed grid, each of which moves as one body; may be nil
	Initial               volume.Affine  // fixed -> moving, LPS mm
	Channels              []Channel      // further images and label maps; may be nil
}

// Images are a pair at one resolution, with intensities in 0..1: the fixed image on a grid, and the moving one, under the
// initial transform, on that grid grown by a margin, so that a displacement may reach beyond the fixed field of view.
type Images struct {
	Fixed, Moving           *volume.Volume
	FixedValid, MovingValid *volume.Volume // 1 inside the field of view and the mask, else 0: unknown, not air; nil where packed

	fixedValid, movingValid *volume.Mask // the same, packed; nil before
}

// minSize is the least number of voxels of a grid along an axis.
const minSize = 8

// Grid returns the grid of isotropic voxels of spacing mm over the fixed volume. The voxels are larger where the volume
// is so thin that the least size of a grid would multiply their number.
func (p Pair) Grid(spacing float64) volume.Geometry {
	const maxVoxels = 1 << 20
	volumeMM := math.Abs(p.Fixed.IndexToPhysical().Det()) * float64(p.Fixed.Voxels())
	for {
		g := p.Fixed.NetworkGrid([3]float64{spacing, spacing, spacing}, [3]int{minSize, minSize, minSize}, 1)
		if p.Fixed.Flat() {
			g.Size[2] = 1
			return g.CenteredAt(p.Fixed.Center())
		}
		n := float64(g.Size[0]) * float64(g.Size[1]) * float64(g.Size[2])
		if n <= maxVoxels || n*spacing*spacing*spacing <= 4*volumeMM {
			return g
		}
		spacing *= 1.1
	}
}

// nearlyCubes is how much longer the longest side of a voxel may be than the shortest where it counts as a cube.
const nearlyCubes = 1.15

// GridOfFixed returns the grid of the fixed volume's own voxels where these are cubes, or nearly, and enough along
// every axis; otherwise Grid. On its own voxels the fixed image is read without the blur of an interpolation.
func (p Pair) GridOfFixed(spacing float64) volume.Geometry {
	g, _, _ := p.Fixed.Geometry.Canonical()
	if slices.Max(g.Spacing[:]) <= nearlyCubes*slices.Min(g.Spacing[:]) && slices.Min(g.Size[:g.Axes()]) >= minSize {
		return g
	}
	return p.Grid(spacing)
}

// Spacing returns the geometric mean of g's spacings, mm: the isotropic voxel of the same volume.
func Spacing(g volume.Geometry) float64 {
	if g.Spacing[0] == g.Spacing[1] && g.Spacing[0] == g.Spacing[2] {
		return g.Spacing[0] // exactly; the root may round
	}
	return math.Cbrt(g.Spacing[0] * g.Spacing[1] * g.Spacing[2])
}

// Edge says which values an image has beyond its field of view.
type Edge int

const (
	// ZeroEdge has zeros there. So the end of a field of view shows as an edge, which helps the search and the block
	// matches.
	ZeroEdge Edge = iota
	// RepeatedEdge repeats the border. So no filter finds an edge that is not in the body, and that a refinement would
	// move.
	RepeatedEdge
)

// At returns the images on grid g, moving with a margin in voxels.
func (p Pair) At(g volume.Geometry, margin int, e Edge, threads int) Images {
	grown := Grow(g, margin)
	im := p.inside(g, grown, threads)
	im.Fixed = prepare(p.Fixed, g, volume.IdentityAffine(), e, threads)
	im.Moving = prepare(p.Moving, grown, p.Initial, e, threads)
	return im
}

// inside returns images that have but the voxels of two grids that are valid.
func (p Pair) inside(fixed, moving volume.Geometry, threads int) (im Images) {
	im.FixedValid = inside(p.Fixed, p.FixedMask, fixed, volume.IdentityAffine(), threads)
	im.MovingValid = inside(p.Moving, p.MovingMask, moving, p.Initial, threads)
	return im
}

// BothDirections returns the images as At does, and those with the roles exchanged, in which the moving image under the
// initial transform is the fixed one.
func (p Pair) BothDirections(g volume.Geometry, margin, threads int) (forward, backward Images) {
	return p.bothDirections(g, margin, threads, func(v *volume.Volume, on volume.Geometry, a volume.Affine) *volume.Volume {
		return prepare(v, on, a, ZeroEdge, threads)
	})
}

// LabelsBothDirections returns label maps as BothDirections does images, by nearest neighbour.
func (p Pair) LabelsBothDirections(g volume.Geometry, margin, threads int) (forward, backward Images) {
	return p.bothDirections(g, margin, threads, func(v *volume.Volume, on volume.Geometry, a volume.Affine) *volume.Volume {
		return v.Resample(on, a, volume.Nearest, 0, threads)
	})
}

func (p Pair) bothDirections(
	g volume.Geometry, margin, threads int, read func(v *volume.Volume, on volume.Geometry, a volume.Affine) *volume.Volume,
) (forward, backward Images) {
	grown := Grow(g, margin)
	valid := p.inside(grown, grown, threads)
	forward.Moving, forward.MovingValid = read(p.Moving, grown, p.Initial), valid.MovingValid
	backward.Moving, backward.MovingValid = read(p.Fixed, grown, volume.IdentityAffine()), valid.FixedValid
	forward.Fixed, forward.FixedValid = inner(backward.Moving, g, margin), inner(backward.MovingValid, g, margin)
	backward.Fixed, backward.FixedValid = inner(forward.Moving, g, margin), inner(forward.MovingValid, g, margin)
	return forward, backward
}

// inner returns v without a margin of so many voxels, on g.
func inner(v *volume.Volume, g volume.Geometry, margin int) *volume.Volume {
	b := volume.Box{Lo: [3]int{margin, margin, (v.Size[2] - g.Size[2]) / 2}}
	for a, n := range g.Size {
		b.Hi[a] = b.Lo[a] + n
	}
	return &volume.Volume{Geometry: g, Data: b.Crop(v.Data, v.Size)}
}

// Grow returns g with margin voxels more on every side; a slice stays one voxel thick.
func Grow(g volume.Geometry, margin int) volume.Geometry {
	grown := g
	for a := range g.Axes() {
		grown.Size[a] += 2 * margin
	}
	return grown.CenteredAt(g.Center())
}

// prepare maps the 0.5th and the 99.5th percentile of v to 0 and 1, clamps, and resamples v to g under a, smoothed first
// where g is coarser; on a finer g RepeatedEdge reads cubic B-splines, which blur less.
func prepare(v *volume.Volume, g volume.Geometry, a volume.Affine, e Edge, threads int) *volume.Volume {
	return resampled(v.Geometry, g, a, e, threads, Unit(v))
}

// Unit reads v with intensities in 0..1: the 0.5th and the 99.5th percentile are 0 and 1, and what lies beyond is
// clamped to these.
func Unit(v *volume.Volume) filter.Rows {
	lo, hi := v.Range()
	v = v.Finite(lo)
	scale := 1 / (hi - lo)
	return func(y, z int, rows [][]float32) {
		for i, x := range v.Data[(z*v.Size[1]+y)*v.Size[0]:][:v.Size[0]] {
			rows[0][i] = min(max((x-lo)*scale, 0), 1)
		}
	}
}

// resampled is the resampling of prepare. read gives the rows of the image, which lies on v.
func resampled(v, g volume.Geometry, a volume.Affine, e Edge, threads int, read filter.Rows) *volume.Volume {
	size, block, sigma := v, [3]int{1, 1, 1}, [3]float64{}
	ratio := coarser(v, g, a)
	for k, r := range ratio {
		block[k], sigma[k] = blur(r, v.Size[k])
	}
	if block != [3]int{1, 1, 1} {
		means := averaged(v, block, threads, read)
		size, read = means.Geometry, filter.From(means.Size, means.Data)
	}
	smooth := volume.Zeros(size)
	filter.Gaussian(size.Size, sigma, 1, threads, read, filter.To(size.Size, smooth.Data))
	switch {
	case e == ZeroEdge:
		return smooth.Resample(g, a, volume.Linear, 0, threads)
	case slices.Min(ratio[:]) < finer:
		return smooth.ResampleSpline(g, a, threads)
	}
	return smooth.ResampleRepeated(g, a, threads)
}

// finer is the ratio of a grid's voxel to an image's below which the grid counts as finer: just below 1, for rounding.
const finer = 0.99

// coarser returns how many voxels of v, along each of its axes, a voxel of g covers under a. Scales up to maxStretch,
// which an alignment may find, do not count. Larger ones are a caller's, who bridges two units or growth.
func coarser(v, g volume.Geometry, a volume.Affine) (r [3]float64) {
	if a == volume.IdentityAffine() && v.SameGrid(g) { // GridOfFixed
		return [3]float64{1, 1, 1}
	}
	const maxStretch = 1.5
	m := v.PhysicalToIndex().After(a).M
	for k := range r {
		r[k] = Spacing(g) / v.Spacing[k]
		row := volume.Norm([3]float64(m[3*k:]))
		if stretch := row * v.Spacing[k]; stretch > maxStretch || stretch < 1/maxStretch {
			r[k] = row * Spacing(g)
		}
	}
	return r
}

// blur returns how an axis of n voxels is smoothed for voxels r times as large: by the mean of block voxels, then by a
// Gaussian of sigma blocks. Blocks are for extreme ratios, where the Gaussian alone would cost too much.
func blur(r float64, n int) (block int, sigma float64) {
	const widest, left = 32, 8 // the largest r without blocks, and r in blocks
	switch {
	case r <= 1:
		return 1, 0
	case r <= widest:
		return 1, 0.5 * math.Sqrt(float64(r*r)-1)
	case r >= left*float64(n):
		return n, 0
	}
	f := math.Floor(r / left)
	return int(f), math.Sqrt(float64((float64(r*r)-1)/4)-(float64(f*f)-1)/12) / f
}

// averaged returns the means of blocks of voxels of an image on g, whose rows read gives.
func averaged(g volume.Geometry, block [3]int, threads int, read filter.Rows) *volume.Volume {
	to := g.Blocks(block)
	out := volume.Zeros(to)
	nx, ny := to.Size[0], to.Size[1]
	parallel.For(ny*to.Size[2], parallel.Rows(block[1]*block[2]*g.Size[0]), threads, func(lo, hi int) {
		row := make([]float32, g.Size[0])
		for r := lo; r < hi; r++ {
			sum := make([]float64, nx)
			y0, z0 := r%ny*block[1], r/ny*block[2]
			y1, z1 := min(y0+block[1], g.Size[1]), min(z0+block[2], g.Size[2])
			for z := z0; z < z1; z++ {
				for y := y0; y < y1; y++ {
					read(y, z, [][]float32{row})
					for x, v := range row {
						sum[x/block[0]] += float64(v)
					}
				}
			}
			for i, s := range sum {
				wide := min(block[0], g.Size[0]-i*block[0])
				out.Data[r*nx+i] = float32(s / float64(wide*(y1-y0)*(z1-z0)))
			}
		}
	})
	return out
}

// inside is 1 where g, under a, lies within v and its mask.
func inside(v, mask *volume.Volume, g volume.Geometry, a volume.Affine, threads int) *volume.Volume {
	if mask == nil {
		return v.Holds(g, a, threads)
	}
	valid := volume.Zeros(v.Geometry)
	for i, m := range mask.Data {
		if m != 0 {
			valid.Data[i] = 1
		}
	}
	return valid.Resample(g, a, volume.Nearest, 0, threads)
}

// Sharpened returns the images with their difference from a Gaussian blur of sigma voxels added, times amount (unsharp
// masking).
func (im Images) Sharpened(sigma float64, amount float32, threads int) Images {
	sharpen := func(v *volume.Volume) *volume.Volume {
		out, nx := volume.Zeros(v.Geometry), v.Size[0]
		filter.Gaussian(v.Size, [3]float64{sigma, sigma, sigma}, 1, threads, filter.From(v.Size, v.Data), func(y, z int, rows [][]float32) {
			at := (z*v.Size[1] + y) * nx
			dst := out.Data[at : at+nx]
			for i, x := range v.Data[at : at+nx] {
				dst[i] = x + float32(amount*(x-rows[0][i]))
			}
		})
		return out
	}
	im.Fixed, im.Moving = sharpen(im.Fixed), sharpen(im.Moving)
	return im
}

// Through returns the images with the moving one resampled through u, which may lie on another grid; nil is the
// identity.
func (im Images) Through(u *field.Field, threads int) Images {
	if u == nil {
		return im
	}
	u = u.Resample(im.Moving.Geometry, threads)
	im.Moving = u.Warp(im.Moving, volume.Linear, 0, threads)
	im.MovingValid = u.Warp(im.MovingValid, volume.Nearest, 0, threads)
	return im
}

// Packed returns the images with a byte for each voxel that is valid or not, for Valid alone: the refinement keeps that.
func (im Images) Packed() Images {
	if im.FixedValid == nil {
		return im
	}
	im.fixedValid, im.movingValid = im.FixedValid.Mask(), im.MovingValid.Mask()
	im.FixedValid, im.MovingValid = nil, nil
	return im
}

// Warp writes to dst the moving image at x + u(x) for every voxel x of the fixed one in the rows of band, trilinear and
// clamped to the moving grid.
func (im Images) Warp(dst []float32, u *field.Field, band filter.Band, threads int) {
	nx, ny, margin, across := u.Size[0], u.Size[1], im.Margin(), im.Across()
	planes := interp.Planes{Size: im.Moving.Size, Data: [][]float32{im.Moving.Data}}
	parallel.Each(ny*u.Size[2], parallel.Rows(nx), threads, func(r int) {
		if y, z := r%ny, r/ny; band.Has(y, z) {
			planes.Row([][]float32{dst[r*nx : (r+1)*nx]}, margin, margin+y, across+z, u.Row(y, z))
		}
	})
}

// Valid writes to valid 1 where both images are valid under u, else 0.
func (im Images) Valid(valid []float32, u *field.Field, threads int) {
	im = im.Packed()
	moving := interp.Mask{Size: im.Moving.Size, Data: im.movingValid.Data}
	nx, ny, margin, across := u.Size[0], u.Size[1], im.Margin(), im.Across()
	parallel.For(ny*u.Size[2], parallel.Rows(nx), threads, func(lo, hi int) {
		within := func(p float32, axis int) bool { return p >= 0 && p <= float32(im.Moving.Size[axis]-1) }
		for r := lo; r < hi; r++ {
			moving.Row(valid[r*nx:(r+1)*nx], margin, margin+r%ny, across+r/ny, u.Row(r%ny, r/ny))
			for i := range nx {
				o, x, y, z := r*nx+i, float32(margin+i), float32(margin+r%ny), float32(across+r/ny)
				if im.fixedValid.Data[o] == 1 && valid[o] > 0.999 && within(x+u.X[o], 0) && within(y+u.Y[o], 1) && within(z+u.Z[o], 2) {
					valid[o] = 1
				} else {
					valid[o] = 0
				}
			}
		}
	})
}

// Margin is how many voxels of the moving grid lie before the fixed one.
func (im Images) Margin() int { return (im.Moving.Size[0] - im.Fixed.Size[0]) / 2 }

// Across is the margin along z: 0 for slices.
func (im Images) Across() int { return (im.Moving.Size[2] - im.Fixed.Size[2]) / 2 }
