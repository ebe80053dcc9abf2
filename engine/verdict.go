package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// warn adds a warning to the result.
func (r *registration) warn(texts ...string) {
	r.metrics.Warnings = append(r.metrics.Warnings, texts...)
}

// warnOfUnusedOptions tells of the options that are not at their default and do nothing beside the others.
func (r *registration) warnOfUnusedOptions() {
	o, network := r.opt, r.model != nil
	ofNetworks := slices.DeleteFunc(optionsOf("network"), func(name string) bool {
		return name == "model" || name == "device" && o.Device == "cpu" // what says that no network runs, and where everything else does
	})
	for _, c := range []struct {
		is           bool
		because, say string
		names        []string
	}{
		{r.begun != nil, "The initial deformation was given", "its affine part stays", []string{"initial"}},
		{r.begun == nil && r.pair.Initial != nil && o.Initial == "com", "The initial transform was given", "initial rigid or affine starts from it", []string{"initial"}},
		{!network, "No network ran", "name a model", ofNetworks},
		{network && o.Tau == 0, "With tau 0 every trajectory is the same", "leave tau at 1", []string{"trajectories"}},
		{network && o.Tau != 0 && o.Trajectories == 1 && o.Uncertainty == "off", "A single trajectory is not sampled", "set trajectories", []string{"tau"}},
		{len(r.pair.Landmarks) == 0, "There are no landmarks", "give some", []string{"landmark_error"}},
		{!r.searches() && r.iterations() == 0, "Neither the search nor the refinement ran", "set refine", []string{"preset", "similarity", "smoothness", "along"}},
	} {
		if names := o.changed(c.names...); c.is && len(names) > 0 {
			r.warn(c.because + ", so " + strings.Join(names, ", ") + " had no effect: " + c.say + ".")
		}
	}
}

// What calls for a look at the result.
const (
	leastOverlap    = 0.3  // of the smaller field of view
	mostTurned      = 90   // degrees, by the alignment
	leastConfidence = 0.1  // of the alignment found
	mostFolding     = 0.5  // % of the voxels
	leastVolume     = 0.1  // Jacobian determinant within one body
	mostVolume      = 6    // likewise
	rounding        = 1e-4 // of the similarity: one map, sampled in two ways

	// unrelated is a normalized mutual information that no registration of two images of one body falls below (RATIONALE.md, Warnings).
	unrelated = 1.025
)

// startDoubts says in plain words what about the initial transform calls for a look.
func startDoubts(a AlignMetrics) (doubts []string) {
	if a.Overlap < leastOverlap {
		doubts = append(doubts, fmt.Sprintf("The fields of view overlap by only %.0f %% of the smaller one: check that the images show the same part of the body.", 100*a.Overlap))
	}
	if searched := a.Method == "rigid" || a.Method == "affine"; searched && a.Confidence < leastConfidence {
		doubts = append(doubts, "The initial alignment is not sure of itself (another position fits nearly as well): look at the result, or give an initial transform.")
	}
	if a.Turn > mostTurned {
		doubts = append(doubts, fmt.Sprintf("The alignment turned the moving image by %.0f degrees: the headers disagree about how the body lies; check left and right in both.", a.Turn))
	}
	return doubts
}

// doubts says in plain words what about the result calls for a look. deformed is whether there is more than the initial transform.
func doubts(m Metrics, deformed bool) (doubts []string) {
	before, when := m.SimilarityBefore, "before"
	if deformed && m.SimilarityAlign > before {
		before, when = m.SimilarityAlign, "after the initial alignment"
	}
	if m.SimilarityAfter < before-rounding && m.Referee.Gain < leastGain { // mutual information says less than the referee
		doubts = append(doubts, fmt.Sprintf("The images match less well after the registration (similarity %.3f) than %s (%.3f): look at the result, and try another model or initial alignment.",
			m.SimilarityAfter, when, before))
	}
	if !m.Align.SameModality && m.SimilarityAfter < unrelated {
		doubts = append(doubts, fmt.Sprintf("The images have next to nothing in common where they were laid (normalized mutual information %.3f; pairs that match have 1.05 and more): check that both show the same part of the body, and look at the result.",
			m.SimilarityAfter))
	}
	if m.NJDPercent > mostFolding {
		doubts = append(doubts, "The deformation folds over itself in more than 0.5 % of the volume: distances and volumes measured there are not reliable.")
	}
	if m.Plan.Agreement >= alike && deformed && (m.JacobianMin < leastVolume || m.JacobianMax > mostVolume) {
		doubts = append(doubts, fmt.Sprintf("The images agree as one body, and yet somewhere tissue shrinks to %.2g or grows to %.2g of its volume: tissue that is new or gone may have been pulled over; look there.", m.JacobianMin, m.JacobianMax))
	}
	return doubts
}

// The grades of a verdict, from the best.
const (
	Good   = "good"
	Check  = "check"
	Failed = "failed"
)

// What the verdict goes by. RATIONALE.md has the figures behind these.
const (
	sharp      = 0.13 // evidence below which another place would do as well
	blunt      = 0.22 // and below which it nearly would
	sharpEnd   = 0.36 // the same after a deformation, which fits chance, too
	leastShare = 0.1  // of the fixed image that both show

	oneImage      = 0.95  // correlation from which on no mirror image is asked for
	maybeMirrored = -0.32 // gain of one that was only moved from which on it is aligned
	asMirrored    = 0.01  // gain of an aligned one that speaks for it
)

// evidence is what must speak for a place: that of volumes, or of slices, in which less does and a deformation fits more by chance.
type evidence struct{ sharp, blunt, sharpEnd float64 }

var (
	ofVolumes = evidence{sharp, blunt, sharpEnd}
	ofSlices  = evidence{0.07, 0.1, 0.8}
)

// evidence returns that of the pair.
func (r *registration) evidence() evidence {
	if r.isFlat() {
		return ofSlices
	}
	return ofVolumes
}

// isChance says whether another place would do as well.
func (v evidence) isChance(e RefereeMetrics) bool { return e.Start < v.sharp && e.End < v.sharpEnd }

// mirrored says whether the images match better with one of them mirrored. Where alignments are chance, and the deformation alone found
// something, no two of them tell.
func mirrored(e RefereeMetrics) bool {
	return e.Mirrored > asMirrored && (e.Start >= sharp || e.End < sharpEnd)
}

// verdict judges by what was measured and by the doubts that it left, voxel being the fixed image's, mm: the cube of the same volume.
func verdict(e RefereeMetrics, by evidence, doubts []string, voxel float64) Verdict {
	v := Verdict{Grade: Good, Reasons: []string{}}
	doubt := func(grade, reason string) {
		if v.Grade != Failed {
			v.Grade = grade
		}
		v.Reasons = append(v.Reasons, reason)
	}
	if e.Common < leastShare {
		doubt(Failed, fmt.Sprintf("Where they were laid the images share only %.0f %% of what the fixed one shows.", 100*e.Common))
	}
	switch {
	case by.isChance(e):
		doubt(Failed, "Nothing in the images speaks for this place: moved by some voxels they would match as well.")
	case e.Start < by.blunt:
		doubt(Check, "Little in the images speaks for the initial alignment: another place would match nearly as well.")
	}
	if mirrored(e) {
		doubt(Failed, fmt.Sprintf("The images match better with one of them mirrored: check %s in both headers, and that both show the same part of the body.", e.Axis))
	}
	for _, reason := range doubts {
		doubt(Check, reason)
	}
	v.ErrorMM = estimatedError(e, by, voxel)
	return v
}

// estimatedError returns the mean error of points, mm, that pairs of such voxels and such agreement had. Where nothing speaks for this place
// it is as far as the images could be moved.
func estimatedError(e RefereeMetrics, by evidence, voxel float64) float64 {
	if by.isChance(e) || mirrored(e) {
		return max(e.ReachMM, voxel)
	}
	return 1.23 * math.Pow(voxel, 0.88) * math.Pow(1.02-min(max(e.Correlation, 0), 1), 0.35)
}
