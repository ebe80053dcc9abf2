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
	Stage    string  `json:"stage"`    // "align", "look", "search", "network", "refine", "landmarks", "reverse", "uncertainty", "finish"
	Fraction float64 `json:"fraction"` // of the whole registration, 0..1, never decreasing
	Message  string  `json:"message"`  // for a log; may be empty (a heartbeat)
}

// ProgressFunc hears about a registration's progress and says whether to go on: false cancels. It is called on the
// goroutine that called Register (language bindings rely on that), at every change and at least every 100 ms.
type ProgressFunc func(Progress) (proceed bool)

// Transform maps points of the fixed space to the moving space. It does not change after it was returned.
type Transform struct {
	Field   *field.Field  // the whole map on the fixed grid, in fixed voxels
	Initial volume.Affine // the initial transform, fixed -> moving, LPS mm; part of Field already
	Moving  volume.Geometry
	Threads int // that its methods use; 0: every core
}

// Result is a finished registration.
type Result struct {
	Transform
	Warped  *volume.Volume // the moving image resampled once, linearly, by Field onto the fixed grid
	Metrics Metrics

	// Uncertainty is the standard deviation of the displacement in mm, on the fixed grid: the root of the sum of the
	// variances of its three components. Nil unless the option asked for it.
	Uncertainty *volume.Volume
}

// Warp returns v, an image or label map in the moving image's space on any grid, resampled once by the whole map onto
// the fixed grid. Points outside v get background. v may hold any values, but its geometry must be valid.
func (t *Transform) Warp(v *volume.Volume, interp volume.Interpolation, background float32) (warped *volume.Volume, err error) {
	defer fault.Recovered(&err)
	if err := v.CheckShape("input"); err != nil {
		return nil, err
	}
	return t.Field.Warp(v, interp, background, t.Threads), nil
}

// TransformPoints maps points, LPS mm with x, y, z interleaved, from fixed to moving space in place. Beyond the fixed
// grid the displacement of its border fades within a margin, and farther out the initial transform alone remains, as in
// the files (field.Endless).
func (t *Transform) TransformPoints(points []float64) (err error) {
	defer fault.Recovered(&err)
	if len(points)%3 != 0 {
		return fault.New(fault.InvalidArgument, "points: %d coordinates are not a multiple of 3", len(points))
	}
	endless, err := t.Field.Endless(t.Initial)
	if err != nil {
		return err
	}
	endless.TransformPoints(points)
	return nil
}

// JacobianDeterminant returns det(I + grad u) on the fixed grid.
func (t *Transform) JacobianDeterminant() (det *volume.Volume, err error) {
	defer fault.Recovered(&err)
	return t.Field.JacobianDeterminant(t.Threads), nil
}

// Inverse returns the inverse map, on the moving image's grid: its Warp brings images of the fixed space onto that
// grid. residualMM is the largest |Phi(Inverse(y)) - y| inside the fixed grid; where the field folds there is no
// inverse, and the residual is large.
func (t *Transform) Inverse() (inverse *Transform, residualMM float64, err error) {
	defer fault.Recovered(&err)
	initial, err := t.Initial.Inverse()
	if err != nil {
		return nil, 0, err
	}
	endless, err := t.Field.Endless(t.Initial)
	if err != nil {
		return nil, 0, err
	}
	f, residualMM := endless.Inverse(t.Moving, t.Threads)
	return &Transform{Field: f, Initial: initial, Moving: t.Field.Geometry, Threads: t.Threads}, residualMM, nil
}

// Save writes the result to path as a snapshot, whole or not at all. Errors: OutputUnwritable, DiskFull.
func (r *Result) Save(path string) (err error) {
	defer fault.Recovered(&err)
	return r.save(path, "")
}

// save is Save with the key that a cache asks for the file by.
func (r *Result) save(path, key string) error {
	metrics, err := json.Marshal(r.Metrics)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "metrics cannot be written")
	}
	return snapshot.Save(path, &snapshot.Snapshot{Field: r.Field, Warped: r.Warped, Initial: r.Initial, Moving: r.Moving, Metrics: metrics, Uncertainty: r.Uncertainty, Key: key})
}

// LoadResult reads what Save wrote. Errors: InputUnreadable, SnapshotCorrupt.
func LoadResult(path string) (r *Result, err error) {
	r, _, err = load(path)
	return r, err
}

// load is LoadResult with the key that was saved.
func load(path string) (r *Result, key string, err error) {
	defer fault.Recovered(&err)
	s, err := snapshot.Load(path)
	if err != nil {
		return nil, "", err
	}
	r = &Result{Transform: Transform{Field: s.Field, Initial: s.Initial, Moving: s.Moving}, Warped: s.Warped, Uncertainty: s.Uncertainty}
	if err := json.Unmarshal(s.Metrics, &r.Metrics); err != nil {
		return nil, "", fault.Wrap(fault.SnapshotCorrupt, err, "snapshot %s has unreadable metrics; delete it and register again", path)
	}
	r.Threads = r.Metrics.Threads
	return r, s.Key, nil
}
