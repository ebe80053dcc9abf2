package gopy

import (
	"context"

	"github.com/morphseek/morphseek/engine/epi"
)

// CorrectEPI writes the shift of two images of opposite phase encodings along an axis (0, 1 or 2: x, y or z) of their grid,
// voxels, and both images without distortion to shift, first and second: float32 on the grid. progress is as Register's.
func CorrectEPI(one, oneGrid, other, otherGrid uint64, axis, threads int,
	progress func(stage string, fraction float64, message string) bool, shift, first, second uint64) (err error) {
	defer guard(&err)
	pair := epi.Pair{Axis: axis}
	if pair.One, err = image(one, oneGrid, "first"); err != nil {
		return err
	}
	if pair.Other, err = image(other, otherGrid, "second"); err != nil {
		return err
	}
	c, err := epi.Correct(context.Background(), pair, threads, func(fraction float64) bool {
		return progress("epi", fraction, "")
	})
	if err != nil {
		return err
	}
	n := c.Shift.Voxels()
	copy(floats(shift, n), c.Shift.Data)
	copy(floats(first, n), c.One.Data)
	copy(floats(second, n), c.Other.Data)
	return nil
}
