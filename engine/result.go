package engine

import (
	"encoding/json"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/refine"
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

// Metrics is what a registration knows about itself; its JSON is report.json's.
type Metrics struct {
	Version          string              `json:"version"`
	Model            string              `json:"model"`  // "none" where no network ran
	Device           string              `json:"device"` // that the networks really ran on
	Seed             uint64              `json:"seed"`
	Threads          int                 `json:"threads"`
	Similarity       string              `json:"similarity"`        // which measure the two figures are of
	SimilarityBefore float64             `json:"similarity_before"` // under the identity in physical space
	SimilarityAlign  float64             `json:"similarity_align"`  // after the initial transform
	SimilarityAfter  float64             `json:"similarity_after"`
	NJDPercent       float64             `json:"njd_percent"` // voxels with det(I + grad u) < 0
	SDLogJ           float64             `json:"sdlogj"`
	JacobianMin      float64             `json:"jacobian_min"`
	JacobianMax      float64             `json:"jacobian_max"`
	DisplacementMean float64             `json:"displacement_mean_mm"`
	DisplacementMax  float64             `json:"displacement_max_mm"`
	Align            AlignMetrics        `json:"align"`
	Steps            []StepMetrics       `json:"steps"`
	Plan             PlanMetrics         `json:"plan"`
	Referee          RefereeMetrics      `json:"referee"`
	Verdict          Verdict             `json:"verdict"`
	Refine           RefineMetrics       `json:"refine"`
	Uncertainty      *UncertaintyMetrics `json:"uncertainty"` // nil unless the option asked for it
	Seconds          map[string]float64  `json:"seconds"`     // "total" and by stage
	PeakBytes        int64               `json:"peak_bytes"`
	Warnings         []string            `json:"warnings"` // plain words, for the user
	Cached           bool                `json:"cached"`
}

// AlignMetrics says how sure the initial transform is.
type AlignMetrics struct {
	Method       string     `json:"method"`     // none: the caller's transform stays, or the identity
	Score        float64    `json:"score"`      // overlap-normalised feature similarity, 0..1
	Confidence   float64    `json:"confidence"` // 0..1: how well the images fit at the best place, times how far the next best is behind
	Overlap      float64    `json:"overlap"`    // fraction of the smaller field of view that overlaps
	SameModality bool       `json:"same_modality"`
	Matrix       [9]float64 `json:"matrix"` // row-major, fixed -> moving, LPS mm
	Translation  [3]float64 `json:"translation"`
}

// StepMetrics is one network step.
type StepMetrics struct {
	Reward        float64 `json:"reward"`         // label-free, of the trajectory kept
	Trajectory    int     `json:"trajectory"`     // which was kept; 0 is the mean
	Advantage     float64 `json:"advantage"`      // of the trajectory kept over its group, in standard deviations; 0 for one trajectory
	LogLikelihood float64 `json:"log_likelihood"` // of the trajectory kept under the policy, with LDVN; 0 for one trajectory
	NJDPercent    float64 `json:"njd_percent"`    // of the network's cumulative field
	Seconds       float64 `json:"seconds"`        // an equal share each of steps that a GPU took in one run
}

// PlanMetrics says what was chosen from the images, and why: empty where nothing was left to choose.
type PlanMetrics struct {
	Start        string   `json:"start"`         // the alignment from which the deformable stages start: as AlignMetrics.Method, or "header" or "given" where that was no better
	Similarity   string   `json:"similarity"`    // "ncc", "mse" or "mind"
	Search       float64  `json:"search"`        // share of the search's displacement that counts, 0..1; 0 where it did not run
	SmoothnessMM float64  `json:"smoothness_mm"` // over which distance tissue moves together
	Reasons      []string `json:"reasons"`       // plain words, for the user
}

// RefereeMetrics is what the referee, whose measure no stage optimises, saw of the result.
type RefereeMetrics struct {
	Gain        float64 `json:"gain"`        // of the deformation over the initial transform; 0 where there is none
	Correlation float64 `json:"correlation"` // mean squared local correlation of the images, 0..1
	Start       float64 `json:"start"`       // growth of their distance when the initial transform is shaken: how sharply the images fit
	End         float64 `json:"end"`         // the same of the result; 0 where Start is large enough
	ReachMM     float64 `json:"reach_mm"`    // how far it was shaken
	Common      float64 `json:"common"`      // share of the fixed image that both images show
}

// Verdict says whether a registration can be trusted, as far as its images tell.
type Verdict struct {
	Grade   string   `json:"grade"`    // "good", "check" (look before use) or "failed" (do not use)
	Reasons []string `json:"reasons"`  // plain words; empty where it is good
	ErrorMM float64  `json:"error_mm"` // estimated mean distance of points from where they belong
}

// RefineMetrics is the refinement on the pair; empty where it did not run.
type RefineMetrics struct {
	Similarity string         `json:"similarity"` // "ncc", "mse" or "mind"
	Levels     []refine.Level `json:"levels"`     // coarse to fine
}

// UncertaintyMetrics says what the standard deviation of the displacement is, over the fixed mask or, without one, where the
// fixed image is brighter than its mean.
type UncertaintyMetrics struct {
	Source  string  `json:"source"`  // "policy": trajectories of a network; "search": the costs of displacements about the result
	Samples int     `json:"samples"` // trajectories; 0 for the search
	MeanMM  float64 `json:"mean_mm"`
	P95MM   float64 `json:"p95_mm"` // 95 % of the voxels have less
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
