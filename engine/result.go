package engine

import (
	"encoding/json"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/snapshot"
	"github.com/morphseek/morphseek/engine/volume"
)

// Progress is one report of a running registration.
type Progress struct {
	Stage    string  `json:"stage"`    // "align", "search", "network", "refine", "uncertainty", "finish"
	Fraction float64 `json:"fraction"` // of the whole registration, 0..1, never decreasing
	Message  string  `json:"message"`  // for a log; may be empty (a heartbeat)
}

// ProgressFunc hears about a registration's progress and says whether to go on: false cancels. It is called on the goroutine
// that called Register (language bindings rely on that), at every change and at least every 100 ms.
type ProgressFunc func(Progress) (proceed bool)

// Result is a finished registration.
type Result struct {
	Field   *field.Field   // the total transform on the fixed grid, in fixed voxels
	Initial volume.Affine  // the initial transform, fixed -> moving, LPS mm; part of Field already
	Warped  *volume.Volume // the moving image resampled once, linearly, by Field onto the fixed grid
	Moving  volume.Geometry
	Metrics Metrics

	// Uncertainty is the standard deviation of the displacement in mm, on the fixed grid: the root of the sum of the variances of
	// its three components. Nil unless the option asked for it.
	Uncertainty *volume.Volume
}

// Warp returns v, an image or label map in the moving image's space on any grid, resampled once by the total transform onto
// the fixed grid. Points outside v get background. v may hold anything but must have a sound shape.
func (r *Result) Warp(v *volume.Volume, interp volume.Interpolation, background float32, threads int) (warped *volume.Volume, err error) {
	defer recovered(&err)
	if err := v.CheckShape("input"); err != nil {
		return nil, err
	}
	return r.Field.Warp(v, interp, background, threads), nil
}

// TransformPoints maps points, LPS mm with x, y, z interleaved, from fixed to moving space in place. Beyond the fixed grid the
// displacement of its border holds.
func (r *Result) TransformPoints(points []float64) (err error) {
	defer recovered(&err)
	if len(points)%3 != 0 {
		return fault.New(fault.InvalidArgument, "points: %d coordinates are not a multiple of 3", len(points))
	}
	r.Field.TransformPoints(points)
	return nil
}

// JacobianDeterminant returns det(I + grad u) on the fixed grid.
func (r *Result) JacobianDeterminant(threads int) (det *volume.Volume, err error) {
	defer recovered(&err)
	return r.Field.JacobianDeterminant(threads), nil
}

// Inverse returns the inverse transform, on the moving image's grid: its Warp brings images of the fixed space onto that grid.
// It has neither a warped image nor metrics but the threads. residualMM is the largest |Phi(Inverse(y)) - y| inside the fixed grid; where the
// field folds there is no inverse, and the residual tells.
func (r *Result) Inverse(threads int) (inverse *Result, residualMM float64, err error) {
	defer recovered(&err)
	initial, err := r.Initial.Inverse()
	if err != nil {
		return nil, 0, err
	}
	f, residualMM := r.Field.Inverse(r.Moving, field.InverseOptions{Threads: threads})
	return &Result{Field: f, Initial: initial, Moving: r.Field.Geometry, Metrics: Metrics{Threads: r.Metrics.Threads}}, residualMM, nil
}

// Save writes the result to path as a snapshot, whole or not at all. Errors: OutputUnwritable, DiskFull.
func (r *Result) Save(path string) (err error) {
	defer recovered(&err)
	metrics, err := json.Marshal(r.Metrics)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "metrics cannot be written")
	}
	return snapshot.Save(path, &snapshot.Snapshot{Field: r.Field, Warped: r.Warped, Initial: r.Initial, Moving: r.Moving, Metrics: metrics, Uncertainty: r.Uncertainty})
}

// LoadResult reads what Save wrote. Errors: InputUnreadable, SnapshotCorrupt.
func LoadResult(path string) (r *Result, err error) {
	defer recovered(&err)
	s, err := snapshot.Load(path)
	if err != nil {
		return nil, err
	}
	r = &Result{Field: s.Field, Warped: s.Warped, Initial: s.Initial, Moving: s.Moving, Uncertainty: s.Uncertainty}
	if err := json.Unmarshal(s.Metrics, &r.Metrics); err != nil {
		return nil, fault.Wrap(fault.SnapshotCorrupt, err, "snapshot %s has unreadable metrics; delete it and register again", path)
	}
	return r, nil
}
