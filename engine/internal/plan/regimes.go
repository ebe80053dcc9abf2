package plan

import (
	"fmt"
	"math"

	"github.com/morphseek/morphseek/engine/internal/refine"
)

// Regime is a kind of pair, and what suits it.
type Regime struct {
	Name string
	By   refine.Regularisation
	Why  string // for the user; empty where the caller chose
}

// regime is a row of the table.
type regime struct {
	name  string
	holds func(Options, Facts) bool
	by    func(Options, Facts) refine.Regularisation
	why   func(Facts) string
}

// regimes are the kinds of pairs, by which the refinement is regularised. The first that holds is taken: rows after "two
// contrasts" see only pairs whose intensities are compared.
var regimes = []regime{
	{"asked", func(o Options, f Facts) bool { return f.IsGiven(o) }, given, says("")},
	{"one contrast by a curve", func(_ Options, f Facts) bool { return f.Mapped > 0 }, bySize(mapped), curve},
	{"slices in the large", func(o Options, f Facts) bool { return f.Large && !describes(o, f) }, always(tissue),
		agree("the slices match in their large structures alone, so fine detail is not followed")},
	{"two people, far apart", func(o Options, f Facts) bool { return f.Apart && !describes(o, f) }, farApart,
		says("the images still match little after the search, as those of two people do: fine detail is followed")},
	{"two people, two contrasts", func(o Options, f Facts) bool { return f.arePeople(o) }, acrossPeople,
		says("the images have different contrasts and match little, as those of two people do: detail is followed")},
	{"two contrasts", describes, acrossContrasts,
		says("the images have different contrasts, across which fine detail cannot be matched reliably: the deformation is kept smooth over a wide distance")},
	{"frames of one scan", func(o Options, f Facts) bool { return f.Frames() && f.IsAlike(o) }, always(local),
		agree("as frames of one scan do, so what moved by itself is followed")},
	{"noise", func(_ Options, f Facts) bool { return isNoisy(f.Agreement) }, always(grainy),
		agree("noise covers fine detail, so the deformation is kept smooth over a wide distance")},
	{"two people", upTo(twoPeople), rough,
		agree("as those of two people do, so fine detail is followed")},
	{"two people or one body", below(OneBody), towards(always(stiff), rough, twoPeople, OneBody),
		agree("better than those of two people do and less than those of one body do, so detail is followed in part")},
	{"one body, tissue new or gone", upTo(unlike), always(stiff),
		agree("as those of one body do with tissue that is new, gone or noisy, so the deformation is kept smooth")},
	{"one body nearly everywhere", below(alike), func(o Options, f Facts) refine.Regularisation {
		return between(stiff, bySize(supple)(o, f), f.likeness(), unlike, alike)
	}, agree("as those of one body do nearly everywhere, so the deformation is kept smooth")},
	{"one body", func(Options, Facts) bool { return true }, towards(bySize(unchanged), bySize(supple), alike, 1),
		agree("as those of one body do, so the deformation is kept smooth")},
}

// For returns the regime of a pair.
func For(o Options, f Facts) Regime {
	for _, r := range regimes {
		if r.holds(o, f) {
			return Regime{r.name, r.by(o, f), r.why(f)}
		}
	}
	panic("plan: the last regime holds for every pair")
}

// describes says whether descriptors are compared, as of two contrasts.
func describes(o Options, f Facts) bool { return f.Similarity(o).Descriptors() }

// upTo and below hold by the agreement after a smooth fit.
func upTo(most float64) func(Options, Facts) bool {
	return func(_ Options, f Facts) bool { return f.likeness() <= most }
}

func below(bound float64) func(Options, Facts) bool {
	return func(_ Options, f Facts) bool { return f.likeness() < bound }
}

func says(text string) func(Facts) string { return func(Facts) string { return text } }

// agree says a regime of intensities with the agreement that it follows from.
func agree(text string) func(Facts) string {
	return func(f Facts) string {
		a, detail := f.Agreement, ""
		if f.likeness() > a.Correlation {
			detail = fmt.Sprintf(", and by %.2f of that in fine detail", a.Detail)
		}
		return fmt.Sprintf("after a first, smooth fit the images correlate by %.2f (0 to 1)%s: %s", a.Correlation, detail, text)
	}
}

func curve(f Facts) string {
	return fmt.Sprintf("the contrast of one image can be converted to the other's, and they correlate by %.2f (0 to 1) then: intensities are compared, and the deformation is kept smooth", f.Mapped)
}

type regularisations = func(Options, Facts) refine.Regularisation

func always(by refine.Regularisation) regularisations {
	return func(Options, Facts) refine.Regularisation { return by }
}

// sized is what suits a crop, in which noise has more of a share, and what suits a larger image.
type sized struct{ crop, large refine.Regularisation }

func bySize(by sized) regularisations {
	return func(_ Options, f Facts) refine.Regularisation {
		if f.isCrop() {
			return by.crop
		}
		return by.large
	}
}

// towards goes over from what suits an agreement of from, and less, to what suits one of to, and more.
func towards(most, least regularisations, from, to float64) regularisations {
	return func(o Options, f Facts) refine.Regularisation {
		return between(least(o, f), most(o, f), f.likeness(), from, to)
	}
}

// rough follows fine detail: between two people it gives the best overlap of labels. In a crop, where structures are a few
// voxels wide, more sharpening gains more.
func rough(o Options, f Facts) refine.Regularisation {
	switch {
	case describes(o, f): // their forces are noisier
		return refine.Regularisation{Fluid: 1.75, Elastic: 0.75, Sharpen: 0.5}
	case f.Similarity(o) == refine.MSE:
		return refine.Regularisation{Fluid: 1.75, Elastic: 0.5, Sharpen: 0.5}
	case f.isCrop():
		return refine.Regularisation{Fluid: 1.5, Elastic: 0.4, Fading: 0.5, Sharpen: 3}
	}
	return refine.Regularisation{Fluid: 1.75, Elastic: 0.385, Sharpen: 0.5}
}

// farApart goes over from what suits two people to what suits one body by the agreement before the search: a search for a part
// of a displacement leaves one body apart, too.
func farApart(o Options, f Facts) refine.Regularisation {
	return between(rough(o, f), stiff, f.Unsearched.Correlation, twoPeople, OneBody)
}

var (
	// smooth fits one body seen twice, up to noise, at the coarse resolutions.
	smooth = refine.Regularisation{Fluid: 4, Elastic: 0.5, Fading: 1, Sharpen: 0.5}
	// stiff fits one body where tissue is new, gone or speckled: what has no counterpart must not pull far.
	stiff = refine.Regularisation{Fluid: 1.5, Elastic: 1, Fading: 0.5}
	// faint is for two contrasts that have little in common: their descriptors agree in large structures alone.
	faint = refine.Regularisation{Fluid: 9, Elastic: 2.25, Fading: 1, Sharpen: 0.5}
	// grainy is for one body under noise that covers all detail.
	grainy = refine.Regularisation{Fluid: 4, Elastic: 2, Fading: 1}
	// tissue is for slices that match in the large alone: what is fine in one would be led to what resembles it in the other.
	tissue = refine.Regularisation{Fluid: 20, Elastic: 2.5, Fading: 1, Sharpen: 0.5}
	// firm holds tissue together against what the images ask for.
	firm = refine.Regularisation{Fluid: 3.5, Elastic: 1, Fading: 1, Sharpen: 0.5}
	// local fits frames of one scan, in which a part moved by itself: sharply, beside tissue that stays.
	local = refine.Regularisation{Fluid: 2.3, Elastic: 0.35, Fading: 1, Sharpen: 0.5}

	// supple fits one body that moved sharply.
	supple = sized{
		crop:  refine.Regularisation{Fluid: 3, Elastic: 0.5, Fading: 1, Sharpen: 0.5},
		large: refine.Regularisation{Fluid: 2.5, Elastic: 0.44, Fading: 1, Sharpen: 0.5},
	}
	// unchanged fits one body that hardly differs.
	unchanged = sized{
		crop:  smooth,
		large: refine.Regularisation{Fluid: 4, Elastic: 0.55, Fading: 1, Sharpen: 0.5},
	}
	// descriptors is for two contrasts: descriptors agree less sharply than intensities do.
	descriptors = sized{
		crop:  refine.Regularisation{Fluid: 3.5, Elastic: 1, Fading: 1, Sharpen: 0.5},
		large: refine.Regularisation{Fluid: 4.5, Elastic: 1.2, Fading: 1, Sharpen: 0.5},
	}
	// mapped is for two contrasts of one body where a curve maps one to the other.
	mapped = sized{
		crop:  refine.Regularisation{Fluid: 4, Elastic: 0.7, Fading: 1, Sharpen: 0.5},
		large: refine.Regularisation{Fluid: 5, Elastic: 1, Fading: 1, Sharpen: 0.5},
	}
)

// acrossContrasts goes over to faint as the contrast of one image over the other's varies more from place to place, and where
// the images lie as they were taken: little moved then, and descriptors would follow more.
func acrossContrasts(o Options, f Facts) refine.Regularisation {
	varied := between(bySize(descriptors)(o, f), faint, f.Agreement.Gain, 0.8, 1.2)
	return between(varied, faint, f.inPlace(), 0, 1)
}

// acrossPeople follows detail the more the less two contrasts agreed where the search was chosen.
func acrossPeople(o Options, f Facts) refine.Regularisation {
	return between(rough(o, f), acrossContrasts(o, f), f.Unsearched.Correlation, twoPeopleAcross, oneBodyAcross)
}

// between returns a, b or what lies between them, by where x is between from and to.
func between(a, b refine.Regularisation, x, from, to float64) refine.Regularisation {
	t := share(x, from, to)
	mix := func(p, q float64) float64 { return float64((1-t)*p) + float64(t*q) }
	return refine.Regularisation{
		Fluid: mix(a.Fluid, b.Fluid), Elastic: mix(a.Elastic, b.Elastic), Fading: mix(a.Fading, b.Fading), Sharpen: mix(a.Sharpen, b.Sharpen),
	}
}

// share says how far x has come from one value to another, which may be the lesser: 0 before the first, 1 beyond the second.
func share(x, from, to float64) float64 { return min(max((x-from)/(to-from), 0), 1) }

// IsGiven says whether the option smoothness, or a network, leaves nothing to choose.
func (f Facts) IsGiven(o Options) bool { return o.Smoothness != "auto" || f.Network }

// given is the regularisation that the option smoothness asks for.
func given(o Options, f Facts) refine.Regularisation {
	switch mm := o.Width(); {
	case mm > 0:
		return byLength(mm, f.Spacing, f.Shortest)
	case o.Smoothness != "high": // a network has deformed fine detail already
		return rough(o, f)
	case describes(o, f):
		return faint
	}
	return firm
}

// byLength is the regularisation by which tissue moves together over mm, on a grid of this voxel and so many voxels along its
// shortest axis: as smooth is, of that width.
func byLength(mm, spacing float64, shortest int) refine.Regularisation {
	fluid := min(max(mm/spacing, 0.5), float64(shortest)/4)
	return refine.Regularisation{Fluid: fluid, Elastic: max(0.35, fluid*smooth.Elastic/smooth.Fluid), Fading: 1, Sharpen: 0.5}
}

// SmoothnessBound says where a smoothness in mm could not be had; "" where it could.
func (o Options) SmoothnessBound(hadMM float64) string {
	const rounding = 0.01
	if mm := o.Width(); mm > 0 && math.Abs(hadMM-mm) > rounding*mm {
		return fmt.Sprintf("smoothness %g became %.3g mm: the least is half a voxel of the finest grid, the most a quarter of its shortest side", mm, hadMM)
	}
	return ""
}

// Coarse returns by what the coarse resolutions are fitted, and whether briefly. last says that no search follows.
func Coarse(o Options, f Facts, last bool) (by refine.Regularisation, brief bool) {
	switch {
	case last && f.IsGiven(o):
		return given(o, f), false
	case f.Large && !describes(o, f):
		return tissue, false
	case last && f.Apart && !describes(o, f):
		return farApart(o, f), false
	case last && f.arePeople(o):
		return acrossPeople(o, f), false
	case describes(o, f):
		return bySize(descriptors)(o, f), true
	}
	return smooth, true
}

// Mapped is by what the coarse resolutions are fitted where a curve maps one contrast to the other.
func Mapped(o Options, f Facts) refine.Regularisation { return bySize(mapped)(o, f) }

// Again is by what a refinement goes on, later, in a regime: without the curve.
func Again(o Options, f Facts) refine.Regularisation {
	if f.Mapped > 0 {
		return bySize(descriptors)(o, f)
	}
	return For(o, f).By
}
