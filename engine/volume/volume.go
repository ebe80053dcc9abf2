package volume

import (
	"fmt"
	"maps"
	"slices"

	"github.com/morphseek/morphseek/engine/fault"
)

// Volume is a scalar image. It does not own Data: a front end may pass its caller's buffer, which the engine only
// reads.
type Volume struct {
	Geometry
	Data []float32 // len == Voxels(), x fastest

	frozen *intensities // nil where the voxels may still change
}

// Zeros returns a volume of zeros on grid g.
func Zeros(g Geometry) *Volume { return &Volume{Geometry: g, Data: make([]float32, g.Voxels())} }

// Mask is zeros and ones on a grid, in a quarter of a volume's memory.
type Mask struct {
	Geometry
	Data []uint8
}

// Mask returns v, whose voxels are 0 or 1, as a mask.
func (v *Volume) Mask() *Mask {
	m := &Mask{v.Geometry, make([]uint8, len(v.Data))}
	for i, x := range v.Data {
		m.Data[i] = uint8(x)
	}
	return m
}

// Volume returns the mask as a volume.
func (m *Mask) Volume() *Volume {
	v := Zeros(m.Geometry)
	for i, x := range m.Data {
		v.Data[i] = float32(x)
	}
	return v
}

// Labels returns those of a label map but 0, ascending.
func (v *Volume) Labels() []float32 {
	known := map[float32]bool{}
	last := float32(0)
	for _, label := range v.Data {
		if label != last && label != 0 {
			known[label] = true
		}
		last = label
	}
	return slices.Sorted(maps.Keys(known))
}

// Check reports the first fault of the volume as an image to register: geometry, then voxel count, then content (all
// non-finite, constant). name says which input it is ("fixed", "moving").
func (v *Volume) Check(name string) error {
	if err := v.CheckShape(name); err != nil {
		return err
	}
	lo, hi := v.MinMax()
	if lo > hi {
		return fault.New(fault.NonFiniteVolume,
			"%s volume holds nothing but NaN or infinite voxels; check how it was made", name)
	}
	if lo == hi {
		return fault.New(fault.ConstantVolume,
			"%s volume is constant (every voxel is %g in single precision): there is nothing to align; check the "+
				"file", name, lo)
	}
	if hi-lo < leastRange {
		return fault.New(fault.ConstantVolume,
			"%s volume is as good as constant (from %g to %g): there is nothing to align in single precision; "+
				"check the file, or multiply it", name, lo, hi)
	}
	return nil
}

// leastRange is how far the intensities of a volume reach at least: its inverse must be a float32.
const leastRange = 1e-30

// CheckShape is Check without the content: for masks and label maps.
func (v *Volume) CheckShape(name string) error {
	if v == nil {
		return fault.New(fault.EmptyVolume, "%s volume is missing", name)
	}
	if err := v.Geometry.Check(name); err != nil {
		return err
	}
	if len(v.Data) != v.Voxels() {
		return fault.New(fault.EmptyVolume,
			"%s volume has %d voxels where its size %v needs %d", name, len(v.Data), v.Size, v.Voxels())
	}
	return nil
}

// CheckMask reports the first fault of mask, finite and not zero where it selects, as a mask of v: shape, then grid,
// then whether it selects anything. name says which input v is; v must have passed CheckShape.
func (v *Volume) CheckMask(name string, mask *Volume) error {
	if err := mask.CheckShape(name + " mask"); err != nil {
		return err
	}
	if err := v.CheckGrid(name, name+" mask", mask); err != nil {
		return err
	}
	if slices.ContainsFunc(mask.Data, func(m float32) bool { return m != 0 && IsFinite(m) }) {
		return nil
	}
	return fault.New(fault.EmptyMask,
		"%s mask selects nothing: every voxel is 0 or no number; correct it or leave it out", name)
}

// CheckGrid reports a map that does not lie on v's grid; name says which input v is, and what that the map is.
func (v *Volume) CheckGrid(name, what string, mask *Volume) error {
	if !mask.SameGrid(v.Geometry) {
		how := fmt.Sprintf("has size %v where the volume has %v", mask.Size, v.Size)
		if mask.Size == v.Size {
			how = fmt.Sprintf("lies up to %.3g voxels away: origin, spacing or direction differ", v.cornerDistance(mask.Geometry))
		}
		return fault.New(fault.GridMismatch,
			"%s is not on the grid of the %s volume (it %s); resample it onto that grid, with nearest neighbours",
			what, name, how)
	}
	return nil
}
