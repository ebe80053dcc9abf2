package volume

import "github.com/morphseek/morphseek/engine/fault"

// Volume is a scalar image. It does not own Data: a skin may pass its caller's buffer, which the engine only reads.
type Volume struct {
	Geometry
	Data []float32 // len == Voxels(), x fastest
}

// Zeros returns a volume of zeros on grid g.
func Zeros(g Geometry) *Volume { return &Volume{Geometry: g, Data: make([]float32, g.Voxels())} }

// Check reports the first fault of the volume as an image to register: geometry, then voxel count, then content (all
// non-finite, constant). name says which input it is ("fixed", "moving").
func (v *Volume) Check(name string) error {
	if err := v.CheckShape(name); err != nil {
		return err
	}
	lo, hi := v.MinMax()
	if lo > hi {
		return fault.New(fault.NonFiniteVolume, "%s volume holds nothing but NaN or infinite voxels; check how it was made", name)
	}
	if lo == hi {
		return fault.New(fault.ConstantVolume, "%s volume is constant (every voxel is %g): there is nothing to align; check the file", name, lo)
	}
	return nil
}

// CheckShape is Check without the content: for masks and label maps.
func (v *Volume) CheckShape(name string) error {
	if v == nil {
		return fault.New(fault.EmptyVolume, "%s volume is missing", name)
	}
	if err := v.Geometry.Check(name); err != nil {
		return err
	}
	if len(v.Data) != v.Voxels() {
		return fault.New(fault.EmptyVolume, "%s volume has %d voxels where its size %v needs %d", name, len(v.Data), v.Size, v.Voxels())
	}
	return nil
}

// CheckMask reports the first fault of mask, non-zero where it selects, as a mask of v: shape, then grid, then whether it
// selects anything. name says which input v is; v must have passed CheckShape.
func (v *Volume) CheckMask(name string, mask *Volume) error {
	if err := mask.CheckShape(name + " mask"); err != nil {
		return err
	}
	if !mask.SameGrid(v.Geometry) {
		return fault.New(fault.GridMismatch, "%s mask (size %v) is not on the grid of the %s volume (size %v); resample it onto that grid, with nearest neighbours", name, mask.Size, name, v.Size)
	}
	for _, m := range mask.Data {
		if m != 0 {
			return nil
		}
	}
	return fault.New(fault.EmptyMask, "%s mask selects nothing: every voxel is 0; correct it or leave it out", name)
}
