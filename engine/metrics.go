package engine

import "github.com/morphseek/morphseek/engine/internal/refine"

// This file is the one table of what a registration says of itself: `go generate ./engine` writes its members and their
// comments into the C header, Python's types and python/docs/metrics.md.

// Metrics is what a registration knows about itself.
type Metrics struct {
	Verdict          Verdict             `json:"verdict"`              // whether the result can be trusted
	Referee          RefereeMetrics      `json:"referee"`              // what the verdict goes by
	Plan             PlanMetrics         `json:"plan"`                 // what was chosen for the pair, and why
	Warnings         []string            `json:"warnings"`             // plain words, for the user; what is among the verdict's reasons need not be shown twice
	Similarity       string              `json:"similarity"`           // which measure the three values are of
	SimilarityBefore float64             `json:"similarity_before"`    // under the identity in physical space
	SimilarityAlign  float64             `json:"similarity_align"`     // after the initial transform
	SimilarityAfter  float64             `json:"similarity_after"`     // of the result
	NJDPercent       float64             `json:"njd_percent"`          // share of the voxels where the transform folds (det(I + grad u) < 0), %
	SDLogJ           float64             `json:"sdlogj"`               // standard deviation of the Jacobian determinant's logarithm
	JacobianMin      float64             `json:"jacobian_min"`         // least Jacobian determinant
	JacobianMax      float64             `json:"jacobian_max"`         // greatest Jacobian determinant
	DisplacementMean float64             `json:"displacement_mean_mm"` // mean length of the displacements
	DisplacementMax  float64             `json:"displacement_max_mm"`  // greatest length of the displacements
	Align            AlignMetrics        `json:"align"`                // the initial transform
	Steps            []StepMetrics       `json:"steps"`                // of the network; empty where none ran
	Refine           RefineMetrics       `json:"refine"`               // how the refinement went
	Uncertainty      *UncertaintyMetrics `json:"uncertainty"`          // null unless the option asked for it
	Symmetric        *SymmetricMetrics   `json:"symmetric"`            // null unless the option asked for it
	Channels         []ChannelMetrics    `json:"channels"`             // beside the first; null where there are none
	LandmarkFit      *LandmarkMetrics    `json:"landmark_fit"`         // how the result keeps to the landmarks that it was given; null without
	Version          string              `json:"version"`              // of the library
	Model            string              `json:"model"`                // the network's name; "none" where no network ran
	Device           string              `json:"device"`               // that the networks really ran on
	Seed             uint64              `json:"seed"`                 // of the random draws
	Threads          int                 `json:"threads"`              // that were used
	Seconds          map[string]float64  `json:"seconds"`              // "total" and by stage
	PeakBytes        int64               `json:"peak_bytes"`           // by how much the process's memory grew at most
	Cached           bool                `json:"cached"`               // taken from the folder of the option cache
}

// Verdict says whether a registration can be trusted, as far as its images tell.
type Verdict struct {
	Grade   string   `json:"grade"`    // "good" (nothing that was measured speaks against it), "check" (look before use) or "failed" (do not use); "" where an older library saved the result
	Reasons []string `json:"reasons"`  // plain words; empty where it is good
	ErrorMM float64  `json:"error_mm"` // estimated mean distance of points from where they belong
}

// RefereeMetrics is what the referee, whose measure no stage optimises, saw of the result.
type RefereeMetrics struct {
	Gain        float64 `json:"gain"`        // how much closer the deformation brought the images than the initial transform; 0 where there is none
	Correlation float64 `json:"correlation"` // mean squared local correlation of the images, 0..1
	Start       float64 `json:"start"`       // by what share they differ more when the initial transform is nudged: how sharply they fit
	End         float64 `json:"end"`         // the same of the result; 0 where start is large enough
	ReachMM     float64 `json:"reach_mm"`    // how far it was moved
	Common      float64 `json:"common"`      // share of what the smaller of both images shows that the other one shows, too
	Mirrored    float64 `json:"mirrored"`    // how much closer the images would be with one of them mirrored; 0 where they match too well to ask
	Axis        string  `json:"axis"`        // along which it was mirrored: "left and right", "front and back" or "head and foot"
}

// PlanMetrics says what was chosen from the images, and why: empty where nothing was left to choose.
type PlanMetrics struct {
	Start        string             `json:"start"`         // the alignment from which the deformable stages start: as align's method, or "header" or "given" where that was no better, "landmarks" where what fits these is taken, or "deformation" where one was given
	Similarity   string             `json:"similarity"`    // as the option of this name
	Regime       string             `json:"regime"`        // the kind of pair by which the refinement was regularised; "" where it did not run
	Search       float64            `json:"search"`        // share of the search's displacement that counts, 0..1; 0 where it did not run
	Agreement    float64            `json:"agreement"`     // squared local correlation at half the resolution after a smooth fit, 0..1: below 0.8 as two people's, above 0.9 as one body's; 0 where intensities were not compared
	SmoothnessMM float64            `json:"smoothness_mm"` // over which distance tissue moves together
	Reasons      []string           `json:"reasons"`       // plain words, for the user
	Facts        map[string]float64 `json:"facts"`         // the numbers that the choices follow from, by name; those that are 0 are left out
}

// AlignMetrics says how sure the initial transform is.
type AlignMetrics struct {
	Method       string     `json:"method"`        // none: the caller's transform stays, or the identity
	Score        float64    `json:"score"`         // overlap-normalised feature similarity, 0..1
	Confidence   float64    `json:"confidence"`    // 0..1: how well the images fit at the best place, times how far the next best is behind
	RivalMM      float64    `json:"rival_mm"`      // how far the next best place lies from it, mm, on average over the corners of the fixed image; 0 where there is none
	Overlap      float64    `json:"overlap"`       // fraction of the smaller field of view that overlaps
	SameModality bool       `json:"same_modality"` // whether the images' intensities correspond
	Turn         float64    `json:"turn_degrees"`  // by which angle it turns the image further than the headers or the caller's transform do
	Matrix       [9]float64 `json:"matrix"`        // row-major, fixed -> moving, LPS mm
	Translation  [3]float64 `json:"translation"`   // fixed -> moving, LPS mm
}

// StepMetrics is one network step.
type StepMetrics struct {
	Reward        float64 `json:"reward"`         // label-free, of the trajectory kept
	Trajectory    int     `json:"trajectory"`     // which was kept; 0 is the mean
	Advantage     float64 `json:"advantage"`      // of the trajectory kept over its group, in standard deviations; 0 for one trajectory
	LogLikelihood float64 `json:"log_likelihood"` // of the trajectory kept under the policy, with LDVN; 0 for one trajectory
	NJDPercent    float64 `json:"njd_percent"`    // voxels where the network's cumulative field folds, %
	Seconds       float64 `json:"seconds"`        // an equal share each of steps that a GPU took in one run
}

// RefineMetrics is the refinement on the pair; empty where it did not run.
type RefineMetrics struct {
	Similarity string         `json:"similarity"` // as the option of this name
	Levels     []LevelMetrics `json:"levels"`     // coarse to fine
}

// LevelMetrics is how the refinement went at one resolution.
type LevelMetrics struct {
	SpacingMM  float64   `json:"spacing_mm"` // of the grid
	Similarity []float64 `json:"similarity"` // before each iteration
}

// LandmarkMetrics says how a registration keeps to landmarks. Distances are root mean squares over the pairs that were
// not left out, mm.
type LandmarkMetrics struct {
	Count     int      `json:"count"`      // pairs that were given
	ErrorMM   float64  `json:"error_mm"`   // how exactly they were said to be marked
	BeforeMM  float64  `json:"before_mm"`  // apart by the headers, or by the initial transform that was given
	InitialMM float64  `json:"initial_mm"` // after the initial alignment
	ImagesMM  float64  `json:"images_mm"`  // after what the images ask for
	AfterMM   float64  `json:"after_mm"`   // by the result
	CrossMM   float64  `json:"cross_mm"`   // each from where the pull of the others alone puts it; 0 where nothing was pulled
	ReachMM   float64  `json:"reach_mm"`   // over which each pulled at the rest; 0 where nothing was pulled: their error explains how far apart the images left them, or they do not foretell each other
	LeftOut   []string `json:"left_out"`   // pairs that contradict the rest
}

// UncertaintyMetrics says what the standard deviation of the displacement is, over the fixed mask or, without one,
// where the fixed image is brighter than its mean.
type UncertaintyMetrics struct {
	Source  string  `json:"source"`  // "policy": trajectories of a network; "search": the costs of displacements about the result
	Samples int     `json:"samples"` // trajectories; 0 for the search
	MeanMM  float64 `json:"mean_mm"` // mean over the voxels
	P95MM   float64 `json:"p95_mm"`  // 95 % of the voxels have less
}

// SymmetricMetrics says how far the two ways ended apart before their middle was taken: where a point lies, mm, that
// was carried there and back, over the fixed mask or, without one, where the fixed image is brighter than its mean.
type SymmetricMetrics struct {
	MeanMM float64 `json:"mean_mm"` // mean over the voxels
	P95MM  float64 `json:"p95_mm"`  // 95 % of the voxels have less
}

// ChannelMetrics says how one more image of both sides, or label map, came to match.
type ChannelMetrics struct {
	Name       string  `json:"name"`       // as it was given, or its number
	Weight     float64 `json:"weight"`     // beside the 1 of the first
	Similarity string  `json:"similarity"` // of images, as the option of this name; "labels"
	Labels     int     `json:"labels"`     // that both maps have; 0 of images
	Before     float64 `json:"before"`     // after the initial transform: mean squared local correlation of images, mean Jaccard index of labels
	After      float64 `json:"after"`      // the same of the result
}

func levelMetrics(levels []refine.Level) (m []LevelMetrics) {
	for _, l := range levels {
		m = append(m, LevelMetrics{SpacingMM: l.Spacing, Similarity: l.Similarity})
	}
	return m
}
