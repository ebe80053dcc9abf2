// Package volume holds images in physical space: voxels, their geometry, and the maps between index and millimetres.
//
// # Conventions
//
// Physical space is LPS in millimetres, as ITK's. Sizes, spacings and indices are in ITK's order (x, y, z); voxel data
// are contiguous with x fastest, so the same buffer is a numpy array of shape (z, y, x).
package volume

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/fault"
)

// Geometry places a grid of voxels in space, as itk::ImageBase does: the centre of voxel (i, j, k) lies at
// Origin + Direction * (Spacing .* (i, j, k)).
type Geometry struct {
	Size      [3]int     // voxels along x, y, z
	Spacing   [3]float64 // mm, positive
	Origin    [3]float64 // mm, LPS: centre of voxel (0, 0, 0)
	Direction [9]float64 // row-major 3x3; column c is the unit vector of index axis c
}

// Identity is the direction of a grid aligned with LPS.
var Identity = [9]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}

// Voxels returns the number of voxels.
func (g Geometry) Voxels() int { return g.Size[0] * g.Size[1] * g.Size[2] }

// Flat reports whether g is a slice with its thickness along the last axis, which is how the stages read one. It stays
// in its plane.
func (g Geometry) Flat() bool { return g.Size[2] == 1 }

// Axes returns along how many axes, from the first, g extends: two for a slice, three for a volume.
func (g Geometry) Axes() int {
	if g.Flat() {
		return 2
	}
	return 3
}

// Thin returns the axis along which g has one voxel, -1 where it has more along each.
func (g Geometry) Thin() int { return slices.Index(g.Size[:], 1) }

// Cell returns the volume of a voxel, mm^3; of a slice its area, mm^2: how thick it is may be made up.
func (g Geometry) Cell() float64 {
	cell := math.Abs(g.IndexToPhysical().Det())
	if thin := g.Thin(); thin >= 0 {
		cell /= g.Spacing[thin]
	}
	return cell
}

// Lengths returns how long g is along its axes, mm.
func (g Geometry) Lengths() (mm [3]float64) {
	for a, n := range g.Size {
		mm[a] = float64(n) * g.Spacing[a]
	}
	return mm
}

// Longest returns the longest side of g, mm.
func (g Geometry) Longest() float64 {
	mm := g.Lengths()
	return slices.Max(mm[:])
}

// Side returns how many voxels g has along an axis in the geometric mean; of a slice, along the two of its plane.
func (g Geometry) Side() float64 { return g.Root(float64(g.Voxels())) }

// Root returns the length of which x is the volume or, on a slice, the area.
func (g Geometry) Root(x float64) float64 {
	if g.Flat() {
		return math.Sqrt(x)
	}
	return math.Cbrt(x)
}

// maxVoxels bounds a grid so that no product of sizes or byte count overflows: 2^33 voxels are 32 GiB of float32.
const maxVoxels = 1 << 33

// Check reports the first fault of the geometry. name says which input it is ("fixed", "moving mask").
func (g Geometry) Check(name string) error {
	voxels, thin := 1, 0
	for a, n := range g.Size {
		if n <= 0 {
			return fault.New(fault.EmptyVolume,
				"%s volume is empty: size %v has no voxels along axis %d; load an image with voxels", name, g.Size, a)
		}
		if n > maxVoxels/voxels {
			return fault.New(fault.InvalidArgument, "%s volume: size %v is beyond what this library handles", name, g.Size)
		}
		voxels *= n
		if n == 1 {
			thin++
		}
	}
	if thin > 1 {
		return fault.New(fault.ThinVolume,
			"%s volume has more than one voxel along one axis alone (size %v): give a volume, or a slice of one "+
				"voxel's thickness", name, g.Size)
	}
	for a := range 3 {
		if s := g.Spacing[a]; !(s >= leastSpacing && s <= mostSpacing) {
			return fault.New(fault.InvalidSpacing,
				"%s volume: spacing %v must be positive millimetres, from %g to %g; correct the image header",
				name, g.Spacing, leastSpacing, mostSpacing)
		}
		if o := g.Origin[a]; !(math.Abs(o) <= farthest) {
			return fault.New(fault.InvalidSpacing,
				"%s volume: origin %v must be millimetres, at most %g from 0; correct the image header", name, g.Origin, farthest)
		}
	}
	// Grids of isotropic voxels follow from a volume; a header with metres or micrometres in one place would make them
	// enormous.
	if s := g.Spacing; max(s[0], s[1], s[2]) > 1000*min(s[0], s[1], s[2]) {
		return fault.New(fault.InvalidSpacing,
			"%s volume: the spacing %v mm differs between the axes by more than a factor of 1000; correct the "+
				"image header", name, s)
	}
	direction, singular := g.Direction, false
	for c, length := range (Affine{M: direction}).Scales() {
		if length == 0 { // of numbers whose squares are, too
			singular = true
			break
		}
		if !(math.Abs(length-1) <= unitLength) {
			return fault.New(fault.InvalidDirection,
				"%s volume: column %d of the direction matrix %v has the length %.6g where a direction has 1; correct "+
					"the image header (scales belong to the spacing)", name, c, g.Direction, length)
		}
		for r := range 3 {
			direction[3*r+c] /= length
		}
	}
	if d := math.Abs(det3(direction)); singular || !(d >= leastAngles) {
		return fault.New(fault.InvalidDirection,
			"%s volume: direction matrix %v is singular, or nearly; correct the image header", name, g.Direction)
	}
	return nil
}

// What a header may hold: more than any image does, and no more than double precision carries through every product of
// them.
const (
	leastSpacing, mostSpacing = 1e-6, 1e6 // mm
	farthest                  = 1e9       // of an origin from 0, mm
	unitLength                = 1e-3      // by which a direction may miss 1: headers round to three digits
	leastAngles               = 0.01      // volume that the three directions span
)

// IndexToPhysical returns the map from continuous index (x, y, z) to LPS mm.
func (g Geometry) IndexToPhysical() Affine {
	var a Affine
	for r := range 3 {
		for c := range 3 {
			a.M[3*r+c] = g.Direction[3*r+c] * g.Spacing[c]
		}
	}
	a.T = g.Origin
	return a
}

// PhysicalToIndex returns the map from LPS mm to continuous index. The geometry must pass Check.
func (g Geometry) PhysicalToIndex() Affine {
	inv, err := g.IndexToPhysical().Inverse()
	if err != nil {
		panic("volume: PhysicalToIndex of an unchecked geometry")
	}
	return inv
}

// To returns the map from continuous index to that of another grid: exactly the identity for g itself.
func (g Geometry) To(o Geometry) Affine {
	if g == o {
		return IdentityAffine()
	}
	return o.PhysicalToIndex().After(g.IndexToPhysical())
}

// Index returns the index (x, y, z) of the i-th voxel in memory.
func (g Geometry) Index(i int) [3]int {
	return [3]int{i % g.Size[0], i / g.Size[0] % g.Size[1], i / (g.Size[0] * g.Size[1])}
}

// Strides returns how far neighbours along each axis lie apart in a volume's data.
func (g Geometry) Strides() [3]int { return [3]int{1, g.Size[0], g.Size[0] * g.Size[1]} }

// Point returns Index as a continuous index, which IndexToPhysical takes.
func (g Geometry) Point(i int) [3]float64 {
	index := g.Index(i)
	return [3]float64{float64(index[0]), float64(index[1]), float64(index[2])}
}

// Blocks returns the grid of the centres of blocks of so many voxels along each axis; the last ones may reach beyond g.
func (g Geometry) Blocks(voxels [3]int) Geometry {
	var first [3]float64
	for a, n := range voxels {
		first[a] = float64(n-1) / 2
	}
	blocks := g
	blocks.Origin = g.IndexToPhysical().Apply(first)
	for a, n := range voxels {
		blocks.Size[a] = (g.Size[a] + n - 1) / n
		blocks.Spacing[a] *= float64(n)
	}
	return blocks
}

// Middle returns the part of g in its middle that has one voxel of every n along each axis, and one at least.
func (g Geometry) Middle(n int) Geometry {
	var b Box
	for a := range 3 {
		size := max(g.Size[a]/n, 1)
		b.Lo[a] = (g.Size[a] - size) / 2
		b.Hi[a] = b.Lo[a] + size
	}
	return g.Part(b)
}

// Part returns the part of g in a box.
func (g Geometry) Part(b Box) Geometry {
	part := g
	part.Origin = g.IndexToPhysical().Apply([3]float64{float64(b.Lo[0]), float64(b.Lo[1]), float64(b.Lo[2])})
	part.Size = b.Size()
	return part
}

// Center returns the centre of the grid in LPS mm.
func (g Geometry) Center() [3]float64 {
	var c [3]float64
	for a := range 3 {
		c[a] = float64(g.Size[a]-1) / 2
	}
	return g.IndexToPhysical().Apply(c)
}

// Corners returns the continuous indices of the corners of a box that reaches margin voxels beyond the centres of g's
// outermost voxels; the first and the last lie opposite each other.
func (g Geometry) Corners(margin float64) (corners [8][3]float64) {
	for c := range corners {
		for a, n := range g.Size {
			if corners[c][a] = -margin; c>>a&1 == 1 {
				corners[c][a] = float64(n-1) + margin
			}
		}
	}
	return corners
}

// sameGrid is how far apart, voxels, the corners of two grids may lie that count as one: headers round to six digits,
// and quaternions to fewer.
const sameGrid = 0.01

// SameGrid reports whether two grids coincide, to within a hundredth of a voxel at every corner.
func (g Geometry) SameGrid(o Geometry) bool {
	return g.Size == o.Size && g.cornerDistance(o) <= sameGrid
}

// cornerDistance returns the greatest distance along an axis of g, voxels, between the corners of two grids of one
// size.
func (g Geometry) cornerDistance(o Geometry) (most float64) {
	toIndex, toPhys := g.PhysicalToIndex(), o.IndexToPhysical()
	for _, corner := range g.Corners(0) {
		for a, x := range toIndex.Apply(toPhys.Apply(corner)) {
			most = max(most, math.Abs(x-corner[a]))
		}
	}
	return most
}
