package main

// #include "shim.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/volume"
)

// withTransform runs the body of a function on a result or a transform alone.
func withTransform(handle C.ms_result, body func(*engine.Transform) error) C.ms_status {
	return with(&results, uint64(handle), func(o outcome) error { return body(o.Transform) })
}

// floats returns the caller's buffer of n floats, which must be just what is written.
func floats(dst *C.float, n C.size_t, want int) ([]float32, error) {
	if dst == nil {
		return nil, invalid("dst is NULL")
	}
	if uint64(n) != uint64(want) {
		return nil, invalid("dst has room for %d floats where %d are written", n, want)
	}
	return unsafe.Slice((*float32)(dst), want), nil
}

// copyOut writes src to the caller's buffer.
func copyOut(dst *C.float, n C.size_t, src []float32) error {
	buffer, err := floats(dst, n, len(src))
	if err == nil {
		copy(buffer, src)
	}
	return err
}

// withResult runs the body of a function on what a transform alone does not have.
func withResult(handle C.ms_result, body func(*engine.Result) error) C.ms_status {
	return with(&results, uint64(handle), func(o outcome) error {
		if o.whole == nil {
			return invalid("this result is a transform alone, as an inverse is: it has no warped image, uncertainty, verdict " +
				"and metrics, and cannot be saved; use the result it was made from")
		}
		return body(o.whole)
	})
}

// makeResult is the frame of every function that ends in a new result.
func makeResult(out *C.ms_result, body func() (*engine.Result, error)) C.ms_status {
	return makeOutcome(out, func() (outcome, error) {
		r, err := body()
		if err != nil {
			return outcome{}, err
		}
		return outcome{&r.Transform, r}, nil
	})
}

func makeOutcome(out *C.ms_result, body func() (outcome, error)) C.ms_status {
	return call(func() error {
		if out == nil {
			return invalid("out is NULL")
		}
		*out = 0
		o, err := body()
		if err == nil {
			*out = C.ms_result(results.add(o))
		}
		return err
	})
}

//export ms_result_geometry
func ms_result_geometry(handle C.ms_result, grid *C.ms_image) C.ms_status {
	return withTransform(handle, func(t *engine.Transform) error {
		if grid == nil {
			return invalid("grid is NULL")
		}
		return putGrid(grid, t.Field.Geometry)
	})
}

//export ms_result_initial
func ms_result_initial(handle C.ms_result, matrix *C.double) C.ms_status {
	return withTransform(handle, func(t *engine.Transform) error {
		if matrix == nil {
			return invalid("matrix is NULL")
		}
		dst := unsafe.Slice((*float64)(matrix), 12)
		for row := range 3 {
			copy(dst[4*row:], t.Initial.M[3*row:3*row+3])
			dst[4*row+3] = t.Initial.T[row]
		}
		return nil
	})
}

//export ms_result_field
func ms_result_field(handle C.ms_result, dst *C.float, n C.size_t) C.ms_status {
	return withTransform(handle, func(t *engine.Transform) error { return copyOut(dst, n, t.Field.Data) })
}

//export ms_result_field_mm
func ms_result_field_mm(handle C.ms_result, dst *C.float, n C.size_t) C.ms_status {
	return withTransform(handle, func(t *engine.Transform) error {
		buffer, err := floats(dst, n, len(t.Field.Data))
		if err != nil {
			return err
		}
		t.Field.MM(buffer, t.Threads)
		return nil
	})
}

//export ms_result_inverse
func ms_result_inverse(handle C.ms_result, out *C.ms_result, residual *C.double) C.ms_status {
	return makeOutcome(out, func() (outcome, error) {
		o, err := results.get(uint64(handle))
		if err != nil {
			return outcome{}, err
		}
		inverse, mm, err := o.Inverse()
		if err == nil && residual != nil {
			*residual = C.double(mm)
		}
		return outcome{Transform: inverse}, err
	})
}

//export ms_result_halfway
func ms_result_halfway(handle C.ms_result, toFixed, toMoving *C.ms_result) C.ms_status {
	return call(func() error {
		if toFixed == nil || toMoving == nil {
			return invalid("to_fixed or to_moving is NULL")
		}
		*toFixed, *toMoving = 0, 0
		o, err := results.get(uint64(handle))
		if err != nil {
			return err
		}
		fixed, moving, err := o.Halfway()
		if err == nil {
			*toFixed = C.ms_result(results.add(outcome{Transform: fixed}))
			*toMoving = C.ms_result(results.add(outcome{Transform: moving}))
		}
		return err
	})
}

//export ms_result_jacobian
func ms_result_jacobian(handle C.ms_result, dst *C.float, n C.size_t) C.ms_status {
	return withTransform(handle, func(t *engine.Transform) error {
		det, err := t.JacobianDeterminant()
		if err != nil {
			return err
		}
		return copyOut(dst, n, det.Data)
	})
}

//export ms_result_warped
func ms_result_warped(handle C.ms_result, dst *C.float, n C.size_t) C.ms_status {
	return withResult(handle, func(r *engine.Result) error { return copyOut(dst, n, r.Warped.Data) })
}

//export ms_result_uncertainty
func ms_result_uncertainty(handle C.ms_result, dst *C.float, n C.size_t) C.ms_status {
	return withResult(handle, func(r *engine.Result) error {
		if r.Uncertainty == nil {
			return invalid("this result has no uncertainty; register with options.uncertainty \"on\"")
		}
		return copyOut(dst, n, r.Uncertainty.Data)
	})
}

//export ms_result_apply
func ms_result_apply(handle C.ms_result, image *C.ms_image, interpolation C.ms_interpolation, background C.float, dst *C.float, n C.size_t) C.ms_status {
	return withTransform(handle, func(t *engine.Transform) error {
		how, ok := map[C.ms_interpolation]volume.Interpolation{C.MS_LINEAR: volume.Linear, C.MS_NEAREST: volume.Nearest}[interpolation]
		if !ok {
			return invalid("interpolation is %d; it must be MS_LINEAR or MS_NEAREST", interpolation)
		}
		input, err := takeImage(image, "input")
		if err != nil {
			return err
		}
		v, err := input.Volume("input")
		if err != nil {
			return err
		}
		buffer, err := floats(dst, n, t.Field.Voxels())
		if err != nil {
			return err
		}
		warped, err := t.Warp(v, how, float32(background))
		if err != nil {
			return err
		}
		copy(buffer, warped.Data)
		return nil
	})
}

//export ms_result_transform_points
func ms_result_transform_points(handle C.ms_result, points *C.double, count C.size_t) C.ms_status {
	return withTransform(handle, func(t *engine.Transform) error {
		if count > math.MaxInt32 || (points == nil && count > 0) {
			return invalid("%d points cannot be mapped: give at most 2^31 - 1, and an array of them", count)
		}
		return t.TransformPoints(unsafe.Slice((*float64)(points), 3*count))
	})
}

// grades are the words of a verdict as the header numbers them.
var grades = map[string]C.ms_grade{engine.Good: C.MS_GOOD, engine.Check: C.MS_CHECK, engine.Failed: C.MS_FAILED}

//export ms_result_verdict
func ms_result_verdict(handle C.ms_result, verdict *C.ms_verdict) C.ms_status {
	return withResult(handle, func(r *engine.Result) error {
		if verdict == nil {
			return invalid("verdict is NULL")
		}
		v := r.Metrics.Verdict
		return putStruct(unsafe.Pointer(verdict), verdict.size, C.ms_verdict{
			grade: grades[v.Grade], reason_count: C.size_t(len(v.Reasons)),
			error_mm: C.double(v.ErrorMM), njd_percent: C.double(r.Metrics.NJDPercent),
		}, oldestVerdict, "verdict")
	})
}

//export ms_result_reason
func ms_result_reason(handle C.ms_result, index C.size_t, dst *C.char, capacity C.size_t, needed *C.size_t) C.ms_status {
	return withResult(handle, func(r *engine.Result) error {
		reasons := r.Metrics.Verdict.Reasons
		if uint64(index) >= uint64(len(reasons)) {
			return invalid("the verdict has %d reasons, and %d is none's index; count from 0", len(reasons), index)
		}
		return writeText(reasons[index], dst, capacity, needed)
	})
}

//export ms_result_metrics
func ms_result_metrics(handle C.ms_result, dst *C.char, capacity C.size_t, needed *C.size_t) C.ms_status {
	return withResult(handle, func(r *engine.Result) error { return writeJSON(r.Metrics, dst, capacity, needed) })
}

//export ms_result_save
func ms_result_save(handle C.ms_result, path *C.char) C.ms_status {
	return withResult(handle, func(r *engine.Result) error {
		if path == nil {
			return invalid("path is NULL")
		}
		return r.Save(C.GoString(path))
	})
}

//export ms_result_load
func ms_result_load(path *C.char, out *C.ms_result) C.ms_status {
	return makeResult(out, func() (*engine.Result, error) {
		if path == nil {
			return nil, invalid("path is NULL")
		}
		return engine.LoadResult(C.GoString(path))
	})
}

//export ms_result_destroy
func ms_result_destroy(handle C.ms_result) C.ms_status {
	return call(func() error {
		_, err := results.remove(uint64(handle))
		return err
	})
}
