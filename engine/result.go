package engine

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// Progress is one report of a running registration.
type Progress struct {
	Stage    string  `json:"stage"`    // "align", "search", "network", "refine", "finish"
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
}

// Metrics is what a registration knows about itself; its JSON is report.json's.
type Metrics struct {
	Version          string             `json:"version"`
	Model            string             `json:"model"`  // "none" where no network ran
	Device           string             `json:"device"` // that the networks really ran on
	Seed             uint64             `json:"seed"`
	Threads          int                `json:"threads"`
	Similarity       string             `json:"similarity"`        // which measure the two figures are of
	SimilarityBefore float64            `json:"similarity_before"` // under the identity in physical space
	SimilarityAlign  float64            `json:"similarity_align"`  // after the initial transform
	SimilarityAfter  float64            `json:"similarity_after"`
	NJDPercent       float64            `json:"njd_percent"` // voxels with det(I + grad u) < 0
	SDLogJ           float64            `json:"sdlogj"`
	JacobianMin      float64            `json:"jacobian_min"`
	JacobianMax      float64            `json:"jacobian_max"`
	DisplacementMean float64            `json:"displacement_mean_mm"`
	DisplacementMax  float64            `json:"displacement_max_mm"`
	Align            AlignMetrics       `json:"align"`
	Steps            []StepMetrics      `json:"steps"`
	Seconds          map[string]float64 `json:"seconds"` // "total" and by stage
	PeakBytes        int64              `json:"peak_bytes"`
	Warnings         []string           `json:"warnings"` // plain words, for the user
	Cached           bool               `json:"cached"`
}

// AlignMetrics says how sure the initial transform is.
type AlignMetrics struct {
	Method       string     `json:"method"`
	Score        float64    `json:"score"`      // overlap-normalised feature similarity, 0..1
	Confidence   float64    `json:"confidence"` // 0..1: margin of the winner over other starts
	Overlap      float64    `json:"overlap"`    // fraction of the smaller field of view that overlaps
	SameModality bool       `json:"same_modality"`
	Matrix       [9]float64 `json:"matrix"` // row-major, fixed -> moving, LPS mm
	Translation  [3]float64 `json:"translation"`
}

// StepMetrics is one network step.
type StepMetrics struct {
	Reward     float64 `json:"reward"`     // label-free, of the trajectory kept
	Trajectory int     `json:"trajectory"` // which was kept; 0 is the mean
	NJDPercent float64 `json:"njd_percent"`
	Seconds    float64 `json:"seconds"`
}
