package gopy

import (
	"math"
	"unsafe"

	"github.com/morphseek/morphseek/bridge/internal/wire"
	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// withField runs the body of an entry point with the field at u, on the grid at uGrid.
func withField(u, uGrid uint64, body func(*field.Field) error) (err error) {
	defer guard(&err)
	g, err := grid(uGrid, "field")
	if err != nil {
		return err
	}
	return body(field.Over(g, floats(u, 3*g.Voxels())))
}

// withEndless runs it with the field as it goes on beyond its grid under the affine map at last (12 float64), which it ends with.
func withEndless(u, uGrid, last uint64, body func(*field.Endless) error) error {
	return withField(u, uGrid, func(f *field.Field) error {
		a := wire.Address[volume.Affine](last)
		if a == nil {
			return fault.New(fault.InvalidArgument, "no affine map is given")
		}
		e, err := f.Endless(*a)
		if err != nil {
			return err
		}
		return body(e)
	})
}

// Warp resamples an image on its own grid through the field and writes it to out, float32 on the field's grid.
// interpolation is "linear" or "nearest".
func Warp(u, uGrid, img, imgGrid uint64, interpolation string, background float64, threads int, out uint64) (err error) {
	return withField(u, uGrid, func(f *field.Field) error {
		moving, err := image(img, imgGrid, "moving")
		if err != nil {
			return err
		}
		how, err := volume.ParseInterpolation(interpolation)
		if err != nil {
			return err
		}
		copy(floats(out, f.Voxels()), f.Warp(moving, how, float32(background), threads).Data)
		return nil
	})
}

// Resample resamples an image onto another grid through an affine (12 float64, from the grid's space to the image's; 0 is the
// identity) and writes it to out, float32.
func Resample(img, imgGrid, outGrid, matrix uint64, interpolation string, background float64, threads int, out uint64) (err error) {
	defer guard(&err)
	moving, err := image(img, imgGrid, "moving")
	if err != nil {
		return err
	}
	g, err := grid(outGrid, "fixed")
	if err != nil {
		return err
	}
	how, err := volume.ParseInterpolation(interpolation)
	if err != nil {
		return err
	}
	a := volume.IdentityAffine()
	if m := wire.Address[volume.Affine](matrix); m != nil {
		a = *m
	}
	copy(floats(out, g.Voxels()), moving.Resample(g, a, how, float32(background), threads).Data)
	return nil
}

// Intensities writes the image to out as the stages compare it, float32. Outliers (a scanner's padding, failed fits) are replaced by the
// nearest intensity that is none, voxels that are not finite by the least. intensityRange is a JSON array of the low and the high percentile,
// by which a network's input is scaled.
func Intensities(img, imgGrid uint64, low, high float64, out uint64) (intensityRange string, err error) {
	defer guard(&err)
	v, err := image(img, imgGrid, "image")
	if err != nil {
		return "", err
	}
	v = v.Plausible()
	p := v.Percentiles(low, high)
	if math.IsNaN(p[0]) {
		return "", fault.New(fault.EmptyVolume, "no voxel of the image is a finite number; check the image")
	}
	copy(floats(out, v.Voxels()), v.Filled().Data)
	return text(p)
}

// TransformPoints maps n points, float64 LPS mm with x, y, z interleaved, from fixed to moving space in place. The field ends with the affine
// map at last.
func TransformPoints(u, uGrid, last, points uint64, n int) (err error) {
	return withEndless(u, uGrid, last, func(e *field.Endless) error {
		e.TransformPoints(unsafe.Slice(wire.Address[float64](points), 3*n))
		return nil
	})
}

// Inverse writes the inverse of the field, which ends with the affine map at last, on outGrid to out and returns the largest residual in mm.
func Inverse(u, uGrid, last, outGrid uint64, threads int, out uint64) (residual float64, err error) {
	err = withEndless(u, uGrid, last, func(e *field.Endless) error {
		g, err := grid(outGrid, "moving")
		if err != nil {
			return err
		}
		inverse, largest := e.Inverse(g, threads)
		copy(floats(out, len(inverse.Data)), inverse.Data)
		residual = largest
		return nil
	})
	return residual, err
}

// Halfway writes the grid of the space half-way between two images (18 float64, as many voxels as the field), and the maps from it to the fixed and
// to the moving space (float32 fields) with the affine maps that they end with (12 float64 each). The field is from fixed to moving space and ends
// with the affine map at last.
func Halfway(u, uGrid, last uint64, threads int, outGrid, toFixed, fixedLast, toMoving, movingLast uint64) (err error) {
	return withEndless(u, uGrid, last, func(e *field.Endless) error {
		whole := engine.Transform{Field: e.Field, Initial: e.Last(), Threads: threads}
		fixed, moving, err := whole.Halfway()
		if err != nil {
			return err
		}
		g, numbers := fixed.Field.Geometry, wire.Address[[18]float64](outGrid)
		for a := range 3 {
			numbers[a], numbers[3+a], numbers[6+a] = float64(g.Size[a]), g.Spacing[a], g.Origin[a]
		}
		copy(numbers[9:], g.Direction[:])
		for _, out := range []struct {
			t           *engine.Transform
			field, last uint64
		}{{fixed, toFixed, fixedLast}, {moving, toMoving, movingLast}} {
			copy(floats(out.field, len(out.t.Field.Data)), out.t.Field.Data)
			*wire.Address[volume.Affine](out.last) = out.t.Initial
		}
		return nil
	})
}

// Jacobian writes det(I + grad u) to out, float32 on the field's grid.
func Jacobian(u, uGrid uint64, threads int, out uint64) (err error) {
	return withField(u, uGrid, func(f *field.Field) error {
		copy(floats(out, f.Voxels()), f.JacobianDeterminant(threads).Data)
		return nil
	})
}

// Stats returns how regular the field is and how far it moves, as JSON.
func Stats(u, uGrid uint64, threads int) (stats string, err error) {
	err = withField(u, uGrid, func(f *field.Field) (err error) {
		stats, err = text(f.Stats(threads))
		return err
	})
	return stats, err
}

// ToMM writes the field in LPS mm to out: float32, x, y, z interleaved.
func ToMM(u, uGrid uint64, threads int, out uint64) (err error) {
	return withField(u, uGrid, func(f *field.Field) error {
		f.MM(floats(out, len(f.Data)), threads)
		return nil
	})
}

// Margin writes to out (6 int64: below and above along x, y, z) how many voxels the field, which ends with the affine map at last, needs
// beyond its grid to fade.
func Margin(u, uGrid, last, out uint64) (err error) {
	return withEndless(u, uGrid, last, func(e *field.Endless) error {
		*wire.Address[[3][2]int](out) = e.Margin()
		return nil
	})
}

// BehindMM writes to out the displacements in LPS mm behind the affine map at last (12 float64), which the field ends with, on the grid with
// Margin: float32, x, y, z interleaved.
func BehindMM(u, uGrid, last uint64, threads int, out uint64) (err error) {
	return withEndless(u, uGrid, last, func(e *field.Endless) error {
		return e.BehindMM(floats(out, 3*e.Grid().Voxels()), threads)
	})
}

// FromMM writes to out the field whose displacements in LPS mm are at mm: float32, x, y, z interleaved.
func FromMM(mm, uGrid uint64, threads int, out uint64) (err error) {
	defer guard(&err)
	g, err := grid(uGrid, "field")
	if err != nil {
		return err
	}
	n := 3 * g.Voxels()
	copy(floats(out, n), field.FromMM(g, floats(mm, n), threads).Data)
	return nil
}

// finite returns x, or nil where it is infinite.
func finite(x float64) *float64 {
	if math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// registrationScore is one label's agreement before and after a registration; distances are null where one map has lost the label.
type registrationScore struct {
	Label       int32    `json:"label"`
	DiceBefore  float64  `json:"dice_before"`
	DiceAfter   float64  `json:"dice_after"`
	HD95Before  *float64 `json:"hd95_before"`
	HD95After   *float64 `json:"hd95_after"`
	VolumeError float64  `json:"volume_error_percent"`
}

// ScoreLabels scores a field, whose Jacobian determinant is at det, by label maps of int32 on their grids: a JSON list, by label. carried is 0
// or the moving map as the field carries it to its grid.
func ScoreLabels(u, uGrid, det, fixed, moving, movingGrid, carried uint64, threads int) (scores string, err error) {
	err = withField(u, uGrid, func(f *field.Field) error {
		g, err := grid(movingGrid, "moving labels")
		if err != nil {
			return err
		}
		here := engine.LabelMap{Geometry: f.Geometry, Data: unsafe.Slice(wire.Address[int32](fixed), f.Voxels())}
		there := engine.LabelMap{Geometry: g, Data: unsafe.Slice(wire.Address[int32](moving), g.Voxels())}
		var after []int32
		if carried != 0 {
			after = unsafe.Slice(wire.Address[int32](carried), f.Voxels())
		}
		agreements, err := engine.ScoreLabels(f, floats(det, f.Voxels()), here, there, after, threads)
		if err != nil {
			return err
		}
		list := []registrationScore{}
		for _, s := range agreements {
			list = append(list, registrationScore{s.Label, s.DiceBefore, s.DiceAfter, finite(s.HD95Before), finite(s.HD95After), s.VolumeError})
		}
		scores, err = text(list)
		return err
	})
	return scores, err
}
