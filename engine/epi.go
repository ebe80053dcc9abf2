package engine

import (
	"context"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/epi"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// EPI is a pair of echo-planar images of opposite phase encodings, on one grid.
type EPI struct {
	One, Other *volume.Volume
	Axis       int // of the grid, along which phase was encoded: 0, 1 or 2
}

// EPICorrection is the distortion found, and both images without it.
type EPICorrection struct {
	Shift      *volume.Volume // voxels along the axis: what lies at x is shown at x + Shift(x) by One, at x - Shift(x) by Other
	One, Other *volume.Volume // without distortion, their intensities too
}

// CorrectEPI finds the distortion of two echo-planar images of opposite phase encodings and takes it back. progress may be nil.
func (e *Engine) CorrectEPI(ctx context.Context, pair EPI, threads int, progress ProgressFunc) (c *EPICorrection, err error) {
	defer recovered(&err)
	release, err := e.acquire()
	if err != nil {
		return nil, err
	}
	defer release()
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
		return nil, fault.New(fault.ThinVolume, "the images have %d voxels along the phase encoding; it takes %d; check the axis", n, least)
	}
	const floats, live = 4, 24
	if err := checkMemory(floats*live*int64(pair.One.Voxels()), "correcting these volumes"); err != nil {
		return nil, err
	}
	threads = parallel.Threads(threads)
	one, other := allFinite(pair.One), allFinite(pair.Other)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shift, err := epi.Field(ctx, one, other, pair.Axis, threads, func(fraction float64) {
		if progress != nil && !progress(Progress{Stage: "epi", Fraction: fraction}) {
			cancel()
		}
	})
	if err != nil {
		return nil, err
	}
	shift.Geometry = pair.One.Geometry
	c = &EPICorrection{Shift: shift, One: volume.Zeros(pair.One.Geometry), Other: volume.Zeros(pair.One.Geometry)}
	epi.Modulated(c.One.Data, one, shift, pair.Axis, 1, threads)
	epi.Modulated(c.Other.Data, other, shift, pair.Axis, -1, threads)
	return c, nil
}
