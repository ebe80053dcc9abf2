package engine

import (
	"fmt"
	"math"

	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/internal/refine"
)

// What is chosen from a pair, as pure functions of what was measured in it. RATIONALE.md has the figures behind the thresholds.

// crop is how many voxels a volume has, at least, that is more than a crop around one structure.
const crop = 1 << 19

// room is the number of voxels of the fixed image. A slice counts as a cube of its side, so that the same thresholds hold for both.
func (r *registration) room() int {
	side := r.pair.Fixed.Side()
	if r.pair.Fixed.Flat() {
		return int(side * side * side)
	}
	return r.pair.Fixed.Voxels()
}

// Agreement (the squared local correlation at half the resolution after a smooth fit) of two scans of one modality: of two people below, of
// one body with tissue that is new, gone or speckled, and of one body up to noise.
const (
	twoPeople, oneBody = 0.82, 0.835
	unlike, alike      = 0.87, 0.90
)

// Of two scans whose intensities seemed to correspond, these tell that they do not: the share of local correlation that is negative, and how
// far the contrast of one over the other's varies from place to place.
const (
	mostNegative = 0.10
	mostGain     = 0.25
	wellAligned  = 0.65
)

// noisy is the share of the agreement that is left at the finest resolution, below which noise, not two people's anatomy, keeps the images
// from agreeing.
const noisy = 0.4

// leastScore is the score of the alignment below which two images are not compared by their intensities, even if these seemed to correspond.
const leastScore = 0.35

// stillApart is the agreement right after a search below which two scans of one modality are taken to be of two people without another look.
const stillApart = 0.70

// Of slices, the agreement after a smooth fit below which they lie apart and the search counts whole, and above which it only adds noise.
const slicesApart, slicesAgree = 0.70, 0.73

// sharesContrast is the agreement above which two contrasts are taken to be of one body: a smooth fit found the match, and a search would only
// find others like it.
const sharesContrast = 0.5

// rough follows fine detail: between two people it gives the best overlap of labels. In a crop, where structures are a few voxels
// wide, more sharpening gains more.
func rough(similarity refine.Similarity, voxels int) refine.Regularisation {
	switch {
	case similarity == refine.MIND: // its forces are noisier
		return refine.Regularisation{Fluid: 1.75, Elastic: 0.75, Sharpen: 0.5}
	case similarity == refine.MSE:
		return refine.Regularisation{Fluid: 1.75, Elastic: 0.5, Sharpen: 0.5}
	case voxels < crop:
		return refine.Regularisation{Fluid: 1.5, Elastic: 0.4, Sharpen: 3}
	}
	return refine.Regularisation{Fluid: 1.75, Elastic: 0.35, Sharpen: 0.5}
}

var (
	// smooth fits one body seen twice, up to noise.
	smooth = refine.Regularisation{Fluid: 4, Elastic: 0.5, Fading: 1, Sharpen: 0.5}
	// stiff fits one body where tissue is new, gone or speckled: what has no counterpart must not pull far.
	stiff = refine.Regularisation{Fluid: 1.5, Elastic: 1, Fading: 0.5}
	// faint is for two contrasts that have little in common: their descriptors agree in large structures alone.
	faint = refine.Regularisation{Fluid: 9, Elastic: 2.25, Fading: 1, Sharpen: 0.5}
	// grainy is for one body under noise that covers all detail.
	grainy = refine.Regularisation{Fluid: 4, Elastic: 2, Fading: 1}
	// firm holds tissue together against what the images ask for.
	firm = refine.Regularisation{Fluid: 3.5, Elastic: 1, Fading: 1, Sharpen: 0.5}
)

// supple fits one body that moved sharply. In a crop noise has more of a share.
func supple(voxels int) refine.Regularisation {
	if voxels < crop {
		return refine.Regularisation{Fluid: 3, Elastic: 0.5, Fading: 1, Sharpen: 0.5}
	}
	return refine.Regularisation{Fluid: 2.5, Elastic: 0.4, Fading: 1, Sharpen: 0.5}
}

// local fits frames of one scan, in which a part moved by itself: sharply, beside tissue that stays.
var local = refine.Regularisation{Fluid: 2.3, Elastic: 0.35, Fading: 1, Sharpen: 0.5}

// still is the correlation of two images where they lay above which they are frames of one scan, if no alignment brings them closer.
const still = 0.87

// acrossContrasts is for descriptors, which agree less sharply than intensities do.
func acrossContrasts(voxels int) refine.Regularisation {
	if voxels < crop {
		return refine.Regularisation{Fluid: 3.5, Elastic: 1, Fading: 1, Sharpen: 0.5}
	}
	return refine.Regularisation{Fluid: 4.5, Elastic: 1.2, Fading: 1, Sharpen: 0.5}
}

// mapped is for two contrasts of one body where a curve maps one to the other.
func mapped(voxels int) refine.Regularisation {
	if voxels < crop {
		return refine.Regularisation{Fluid: 4, Elastic: 0.7, Fading: 1, Sharpen: 0.5}
	}
	return refine.Regularisation{Fluid: 5, Elastic: 1, Fading: 1, Sharpen: 0.5}
}

// How well two images must agree once one's contrast is mapped to the other's; what share of the variation of the contrast from place to place
// that may leave; of how much variation no curve is made, for descriptors then agree in the large alone; and how much of the image intensities
// may take elsewhere than descriptors did.
const (
	leastMapped   = 0.70
	leftUnmapped  = 0.65
	mostUnmapped  = 1.0
	mostElsewhere = 0.10
)

// isMapped says whether a curve maps the contrast of one image to the other's, by the agreement of descriptors and by that of intensities.
func isMapped(descriptors refine.Agreement, m refine.Match) bool {
	return descriptors.Gain < mostUnmapped && m.Correlation >= leastMapped && m.Before.Gain <= leftUnmapped*descriptors.Gain && m.Apart <= mostElsewhere
}

// between returns a, b or what lies between them, by where x is between from and to.
func between(a, b refine.Regularisation, x, from, to float64) refine.Regularisation {
	t := min(max((x-from)/(to-from), 0), 1)
	mix := func(p, q float64) float64 { return float64((1-t)*p) + float64(t*q) }
	return refine.Regularisation{Fluid: mix(a.Fluid, b.Fluid), Elastic: mix(a.Elastic, b.Elastic), Fading: mix(a.Fading, b.Fading), Sharpen: mix(a.Sharpen, b.Sharpen)}
}

// regularisation chooses from the agreement of the pair and from whether they are frames of one scan, and says why.
func regularisation(similarity refine.Similarity, voxels int, a refine.Agreement, frames bool) (refine.Regularisation, string) {
	if similarity == refine.MIND {
		return between(acrossContrasts(voxels), faint, a.Gain, 0.8, 1.2), "two contrasts are compared: tissue moves together over a wide distance, for descriptors of them agree less sharply than intensities do"
	}
	low, c := rough(similarity, voxels), a.Correlation
	tell := func(text string) string {
		return fmt.Sprintf("the images agree by %.2f after a smooth fit: %s", c, text)
	}
	switch {
	case frames && isAlike(similarity, a):
		return local, tell("as frames of one scan, so what moved by itself is followed")
	case isNoisy(a):
		return grainy, tell("noise covers fine detail, so tissue moves together over a wide distance")
	case c <= twoPeople:
		return low, tell("as two people, so fine detail is followed")
	case c < oneBody:
		return between(low, stiff, c, twoPeople, oneBody), tell("between two people and one body, so detail is followed in part")
	case c <= unlike:
		return stiff, tell("as one body with tissue that is new, gone or noisy, so tissue is held together")
	case c < alike:
		return between(stiff, supple(voxels), c, unlike, alike), tell("as one body nearly everywhere, so tissue moves together")
	}
	return between(supple(voxels), smooth, c, alike, 1), tell("as one body, so tissue moves together")
}

// leastGain is how much better a deformation must be, by gain (RATIONALE.md, The referee). An alignment, which has few degrees of freedom to fit
// noise by, needs half of it.
const leastGain = 0.075

// leastShown is the share of the fixed image that both candidates must show for the start to stay as it was.
const leastShown = 0.4

// gain is how much closer a proposal brings the images, by both of the referee's measures.
func gain(m referee.Margin) float64 { return m.Distance + 2*m.Correlation }

// worthwhile says whether a deformation is taken.
func worthwhile(m referee.Margin) bool { return gain(m) >= leastGain }

// leastT is Student's t that an alignment's gain needs where it is no large one: wrong alignments gain unevenly over the image.
const leastT, large = 8, 0.5

// steadyT is Student's t by which scales and shears between two contrasts must lose to be left out.
const steadyT = 5

// staysAt says why the start stays as it was given, by the margin of the alignment found over it; "" where it does not. Of images whose
// intensities compare, an alignment may gain unevenly: speckle and missing tissue do that.
func staysAt(m referee.Margin, compare bool) string {
	switch g := gain(m); {
	case m.Common < leastShown:
		return ""
	case g < leastGain/2:
		return fmt.Sprintf("an alignment brings the images no closer than they lay (%+.2f): they stay where they were", g)
	case !compare && m.T < leastT && g < large:
		return fmt.Sprintf("an alignment brings the images closer in parts alone (%+.2f): they stay where they were", g)
	}
	return ""
}

// byWord returns the regularisation for the words low and high of the option smoothness.
func byWord(word string, similarity refine.Similarity, voxels int) refine.Regularisation {
	switch {
	case word == "low":
		return rough(similarity, voxels)
	case similarity == refine.MIND:
		return faint
	}
	return firm
}

// byLength is the regularisation by which tissue moves together over mm, on a grid of this voxel and so many voxels along its shortest axis:
// as smooth is, of that width.
func byLength(mm, spacing float64, shortest int) refine.Regularisation {
	fluid := min(max(mm/spacing, 0.5), float64(shortest)/4)
	return refine.Regularisation{Fluid: fluid, Elastic: max(0.35, fluid*smooth.Elastic/smooth.Fluid), Fading: 1, Sharpen: 0.5}
}

// searchStiffness is how stiff the search is, by the regularisation of the refinement to come: energies of strain go with the square of the
// length over which tissue moves together. Descriptors of two contrasts ask for more: their costs hardly tell neighbours apart.
func searchStiffness(similarity refine.Similarity, voxels int, by refine.Regularisation) float64 {
	switch {
	case similarity == refine.MIND:
		return 9 * math.Pow(by.Fluid/4.5, 2)
	case voxels < crop:
		return math.Pow(by.Fluid/1.5, 2)
	}
	return 0.1 * math.Pow(by.Fluid/1.75, 2)
}

// contrastDiffers tells of two scans that passed as one modality whether they are of two. Between two people, too, the contrast varies from
// place to place, but they do not align as well.
func contrastDiffers(align AlignMetrics, a refine.Agreement) bool {
	return a.Correlation < alike && (a.Negative > mostNegative || a.Gain > mostGain && align.Score > wellAligned)
}

// isAlike says whether a smooth fit left nothing but motion, and that of a small part.
func isAlike(similarity refine.Similarity, a refine.Agreement) bool {
	return similarity == refine.NCC && a.Correlation >= alike
}

// mostTelling is the agreement of the channel that shows most of what the others may not: two people's images of thick slices agree as one body's do.
// One that noise keeps from agreeing tells nothing, unless all are so.
func mostTelling(first refine.Agreement, channels []refine.Agreement) refine.Agreement {
	told := first
	for _, a := range channels {
		switch {
		case isNoisy(a) && !isNoisy(told):
		case isNoisy(told) && !isNoisy(a), a.Correlation < told.Correlation:
			told = a
		}
	}
	return told
}

// isNoisy tells one body under noise from two people: both agree little at half the resolution.
func isNoisy(a refine.Agreement) bool { return a.Detail > 0 && a.Detail < noisy }

// searchFor says how much of the displacement that the search finds counts, none where a smooth fit has found the match, and why.
func searchFor(similarity refine.Similarity, align AlignMetrics, a refine.Agreement, flat bool) (share float64, why string) {
	switch {
	case similarity == refine.MIND && a.Correlation >= sharesContrast:
		return 0, "a smooth fit found the match: no search"
	case similarity == refine.MIND:
		return 1, "the two contrasts agree little after a smooth fit: the search looks farther"
	case !align.SameModality:
		return 1, "the images seem to be of two modalities: the search looks farther"
	case a.Correlation >= oneBody || isNoisy(a):
		return 0, "the images agree after a smooth fit: no search"
	}
	share = searchShare(align.Score)
	if share == 0 {
		return 0, "the images match well already: no search"
	}
	if flat {
		if share *= min(max((slicesAgree-a.Correlation)/(slicesAgree-slicesApart), 0), 1); share == 0 {
			return 0, "the slices agree after a smooth fit: no search"
		}
	} else if a.Correlation > twoPeople {
		share *= (oneBody - a.Correlation) / (oneBody - twoPeople)
	}
	return share, "the images do not match well after the initial alignment: the search looks farther"
}

// searchShare is how much of the displacement that the search finds counts, by the score of the initial alignment of two images of one
// modality. Well aligned ones are taken to be without large displacements: there the search only adds noise. In between it counts in
// part, so that the same pair on another grid is treated alike.
func searchShare(score float64) float64 {
	const poorly, well = 0.66, 0.70
	return min(max((well-score)/(well-poorly), 0), 1)
}

// intensitiesCompare says whether the intensities of two images correspond, and match well enough where they were aligned to be trusted in that.
func intensitiesCompare(sameModality bool, score float64) bool {
	return sameModality && score >= leastScore
}

// passes is how often the search goes over its levels, and over how many trees. In a crop few levels run, between frames little moved, and
// one time over one tree is as good.
func (r *registration) passes() (passes, trees int) {
	if r.room() < crop || r.frames {
		return 1, 1
	}
	e := effort[r.opt.Preset]
	return e.passes, e.trees
}

// effort is what a preset spends on the search and on the refinement.
var effort = map[string]struct{ passes, trees, iterations, voxels int }{
	"fast":    {1, 1, 30, 1 << 20},
	"default": {2, 4, 30, 6 << 20},
	"best":    {2, 4, 80, 16 << 20},
}

// iterations resolves the refine option. After a network only an explicit number refines: the label-free similarities are
// less than what a network trained with labels knows. On a small volume iterations are cheap, and twice as many gain a little.
func (r *registration) iterations() int {
	switch {
	case r.opt.Refine >= 0:
		return r.opt.Refine
	case r.model != nil:
		return 0
	case r.room() < crop:
		return 2 * effort[r.opt.Preset].iterations
	}
	return effort[r.opt.Preset].iterations
}

// refinedBy resolves the similarity option.
func (r *registration) refinedBy() refine.Similarity {
	switch {
	case r.opt.Similarity != "auto":
		return refine.Similarity(r.opt.Similarity)
	case intensitiesCompare(r.metrics.Align.SameModality, r.metrics.Align.Score) && !r.differs:
		return refine.NCC
	}
	return refine.MIND
}
