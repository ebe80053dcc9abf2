// Package epi finds the distortion of echo-planar images along the phase encoding, from two images of opposite
// encodings, and takes it back.
//
// One field d, in voxels along one axis, distorts both: what lies at x is shown at x+d in the one and at x-d in the
// other, brighter where it is squeezed. So I1(x+d) (1+d') = I2(x-d) (1-d'), d' being the slope along the axis (Chang
// and Fitzpatrick, IEEE Trans. Med. Imaging 1992). The squared difference and the squared gradient of d are minimised
// together by Gauss-Newton steps, coarse to fine, each solved by conjugate gradients (Ruthotto et al., Phys. Med. Biol.
// 2012).
package epi

import (
	"context"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/memory"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Pair is two echo-planar images of opposite phase encodings, on one grid.
type Pair struct {
	One, Other *volume.Volume
	Axis       int // of the grid, along which phase was encoded: 0, 1 or 2
}

// Correction is the distortion found, and both images without it.
type Correction struct {
	// Shift is in voxels along the axis: what lies at x is shown at x + Shift(x) by One, at x - Shift(x) by Other.
	Shift      *volume.Volume
	One, Other *volume.Volume // without distortion, their intensities too
}

// Correct finds the distortion of the images and takes it back, on so many threads; 0 is every core. progress, which
// may be nil, is told the fraction done and stops the correction by false.
//
// Errors: InvalidArgument, what volume's Check finds, ThinVolume, OutOfMemory, Cancelled.
func Correct(ctx context.Context, pair Pair, threads int, progress func(fraction float64) bool) (*Correction, error) {
	const least = 8 // voxels along the axis, for a slope
	for _, in := range []struct {
		name string
		v    *volume.Volume
	}{{"first", pair.One}, {"second", pair.Other}} {
		if err := in.v.Check(in.name); err != nil {
			return nil, err
		}
	}
	if err := pair.One.CheckGrid("first", "the second image", pair.Other); err != nil {
		return nil, err
	}
	if pair.Axis < 0 || pair.Axis > 2 {
		return nil, fault.New(fault.InvalidArgument, "the phase encoding's axis is %d; it must be 0, 1 or 2", pair.Axis)
	}
	if n := pair.One.Size[pair.Axis]; n < least {
		return nil, fault.New(fault.ThinVolume,
			"the images have %d voxels along the phase encoding; it takes %d; check the axis", n, least)
	}
	const floats, live = 4, 24
	if err := memory.Check(floats*live*int64(pair.One.Voxels()), "correcting these volumes"); err != nil {
		return nil, err
	}
	threads = parallel.Threads(threads)
	one, other := pair.One.Filled(), pair.Other.Filled()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shift, err := shiftOf(ctx, one, other, pair.Axis, threads, func(fraction float64) {
		if progress != nil && !progress(fraction) {
			cancel()
		}
	})
	if err != nil {
		return nil, err
	}
	shift.Geometry = pair.One.Geometry
	c := &Correction{Shift: shift, One: volume.Zeros(pair.One.Geometry), Other: volume.Zeros(pair.One.Geometry)}
	modulated(c.One.Data, one, shift, pair.Axis, 1, threads)
	modulated(c.Other.Data, other, shift, pair.Axis, -1, threads)
	return c, nil
}
