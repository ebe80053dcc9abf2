package engine

import (
	"fmt"
	"math"

	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/refine"
)

// What calls for a look at the result.
const (
	leastOverlap    = 0.4  // of the smaller field of view
	asReversed      = 165  // degrees of a turn that a reversed axis of a file makes, too, of what is nearly its own mirror image
	leastConfidence = 0.1  // of the alignment found
	leastScore      = 0.34 // of an alignment of volumes: every wrong pose had less
	surePose        = 0.8  // confidence of right ones that have less, too
	mostFolding     = 0.5  // % of the voxels
	leastVolume     = 0.1  // Jacobian determinant within one body
	mostVolume      = 6    // likewise
	rounding        = 1e-4 // of the similarity: one map, sampled in two ways

	// unrelated is a normalized mutual information that no registration of two images of one body falls below
	// (RATIONALE.md, Warnings).
	unrelated = 1.025
)

// startDoubts says in plain words what about the initial transform, of slices or volumes, calls for a look.
func startDoubts(m Metrics, slices bool) (doubts []string) {
	a := m.Align
	if a.Overlap < leastOverlap {
		doubts = append(doubts, fmt.Sprintf("The fields of view overlap by only %.0f %% of the smaller one: check that the images show the same part of the body.", 100*a.Overlap))
	}
	searched := align.Method(a.Method).Refines() && !plan.LiesRight(m.Plan.Facts)
	switch {
	case searched && a.Confidence < leastConfidence && a.RivalMM > 0:
		doubts = append(doubts, fmt.Sprintf("The initial alignment is uncertain: another position fits nearly as well, with the corners of the image %.3g mm away on average. Look at the result, or give an initial transform.", a.RivalMM))
	case searched && a.Confidence < leastConfidence:
		doubts = append(doubts, "The initial alignment is uncertain: the images match little there. Look at the result, or give an initial transform.")
	case searched && a.Score < leastScore && a.Confidence < surePose && !slices:
		doubts = append(doubts, fmt.Sprintf("The images match little after the initial alignment (%.2f; pairs that belong together have %.2f and more), which may be in the wrong position: look at the result, or give an initial transform.", a.Score, leastScore))
	}
	if a.Turn > asReversed && m.Referee.Mirrored > maybeMirrored {
		doubts = append(doubts, fmt.Sprintf("The alignment turned the moving image by %.0f degrees, as where a header reverses an axis, and its mirror image would match nearly as well: check left and right in both.", a.Turn))
	}
	return doubts
}

// doubts says in plain words what about the result calls for a look. deformed is whether there is more than the initial
// transform.
func doubts(m Metrics, deformed bool) (doubts []string) {
	before, when := m.SimilarityBefore, "before"
	if deformed && m.SimilarityAlign > before {
		before, when = m.SimilarityAlign, "after the initial alignment"
	}
	if m.SimilarityAfter < before-rounding && m.Referee.Gain < plan.LeastGain { // mutual information says less than the referee
		doubts = append(doubts, fmt.Sprintf("The images match less well after the registration (similarity %.3f) than %s (%.3f): look at the result, and try another model or initial alignment.",
			m.SimilarityAfter, when, before))
	}
	if !m.Align.SameModality && m.SimilarityAfter < unrelated {
		doubts = append(doubts, fmt.Sprintf("The images have next to nothing in common where they were laid (normalized mutual information %.3f; pairs that match have 1.05 and more): check that both show the same part of the body, and look at the result.",
			m.SimilarityAfter))
	}
	// Frames of one scan lie right, and noise between two of their contrasts leads a search astray (RATIONALE.md, Warnings).
	if deformed && m.Plan.Facts["from"] > 0 && m.Plan.Search > 0 && m.Plan.Similarity == string(refine.MIND) {
		doubts = append(doubts, "No alignment brought the images closer than they lay, and yet a search moved parts of them, between two contrasts that agree little: it may have followed noise. If both are of one body, try smoothness high and no search.")
	}
	if m.NJDPercent > mostFolding {
		doubts = append(doubts, "The deformation folds over itself in more than 0.5 % of the volume: distances and volumes measured there are not reliable.")
	}
	if plan.Alike(m.Plan.Agreement) && deformed && (m.JacobianMin < leastVolume || m.JacobianMax > mostVolume) {
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
	leastShare = 0.1  // of the smaller image that both show

	oneImage       = 0.95  // correlation from which on no mirror image is asked for
	maybeMirrored  = -0.32 // gain of one that was only moved from which on it is aligned
	hardlyMirrored = -0.06 // gain of a roughly aligned one from which on it is aligned further
	asMirrored     = 0.01  // gain of an aligned one that speaks for it
	surelyMirrored = 0.045 // gain that pairs as they should be do not reach
)

// evidence is what must speak for a place: that of volumes, or of slices, in which less does and a deformation fits
// more by chance.
type evidence struct{ sharp, blunt, sharpEnd float64 }

var (
	ofVolumes = evidence{sharp, blunt, sharpEnd}
	ofSlices  = evidence{0.07, 0.1, 0.8}
)

// evidenceFor returns what must speak for a place of slices, or of volumes.
func evidenceFor(slices bool) evidence {
	if slices {
		return ofSlices
	}
	return ofVolumes
}

// isChance says whether another place would do as well.
func (v evidence) isChance(e RefereeMetrics) bool { return e.Start < v.sharp && e.End < v.sharpEnd }

// mirrored says whether the images match better with one of them mirrored, by a gain. Where alignments are chance, and the
// deformation alone found something, no two of them tell.
func mirrored(e RefereeMetrics, by float64) bool {
	return e.Mirrored > by && (e.Start >= sharp || e.End < sharpEnd)
}

// verdict judges by what was measured and by the doubts that it left. The estimated error is in proportion to scale, mm:
// the cube root of the volume of the fixed image's voxel, times the factor of the pair (plan.Facts.ErrorFactor).
func verdict(e RefereeMetrics, by evidence, doubts []string, scale float64) Verdict {
	v := Verdict{Grade: Good, Reasons: []string{}}
	doubt := func(grade, reason string) {
		if v.Grade != Failed {
			v.Grade = grade
		}
		v.Reasons = append(v.Reasons, reason)
	}
	if e.Common < leastShare {
		doubt(Failed, fmt.Sprintf("Where they were laid the images share only %.0f %% of what the smaller one shows.", 100*e.Common))
	}
	switch {
	case by.isChance(e):
		doubt(Failed, "The images do not show where they belong: shifted by some voxels they would match just as well.")
	case e.Start < by.blunt:
		doubt(Check, "The images hardly show where they belong: in another position they would match nearly as well.")
	}
	switch {
	case mirrored(e, surelyMirrored):
		doubt(Failed, fmt.Sprintf("The images match better with one of them mirrored: check %s in both headers, and that both show the same part of the body.", e.Axis))
	case mirrored(e, asMirrored):
		doubt(Check, fmt.Sprintf("The images match a little better with one of them mirrored, as a body does that is nearly its own mirror image: check %s in both headers.", e.Axis))
	}
	for _, reason := range doubts {
		doubt(Check, reason)
	}
	v.ErrorMM = estimatedError(e, by, scale)
	return v
}

// doubt adds what the readers of the files doubted.
func (m *Metrics) doubt(sentences []string) {
	if len(sentences) == 0 {
		return
	}
	m.Warnings = append(m.Warnings, sentences...)
	m.Verdict.Reasons = append(m.Verdict.Reasons, sentences...)
	if m.Verdict.Grade == Good {
		m.Verdict.Grade = Check
	}
}

// estimatedError returns the mean error of points, mm, that pairs of such voxels and such agreement had. Where nothing
// speaks for this place it is as far as the images could be moved.
func estimatedError(e RefereeMetrics, by evidence, scale float64) float64 {
	if by.isChance(e) || mirrored(e, surelyMirrored) {
		return max(e.ReachMM, scale)
	}
	return 1.23 * scale * math.Pow(1.02-min(max(e.Correlation, 0), 1), 0.35)
}
