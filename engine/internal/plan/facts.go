// Package plan chooses what a registration does from what was measured in its pair. Everything here is a pure function of
// numbers: testdata/facts.json holds those of many pairs, and a test replays the choices on them. RATIONALE.md has the figures
// behind the thresholds.
package plan

import (
	"math"
	"reflect"
	"strconv"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/refine"
)

// Options are the caller's options that the plan reads.
type Options struct {
	Preset     string // "fast", "default" or "best"
	Similarity string // "auto" or a refine.Similarity
	Smoothness string // "auto", "low", "high" or a number of mm
	Refine     int    // iterations at the finest resolution; -1 leaves them to the preset
}

// Facts are what was measured in a pair. Each stage adds what it measures.
type Facts struct {
	Voxels   int  `json:"voxels"`   // of the fixed image; a slice counts as a cube of its side
	Slices   bool `json:"slices"`   // the images are slices
	Network  bool `json:"network"`  // a network deforms the pair
	Channels bool `json:"channels"` // there are further images or label maps

	SameModality bool    `json:"same_modality"` // the intensities correspond, by the alignment
	Score        float64 `json:"score"`         // of the alignment, 0..1
	From         float64 `json:"from"`          // squared local correlation by the headers alone, where no alignment brought the images closer; else 0

	Agreement  refine.Agreement `json:"agreement"`  // after a smooth fit
	Unsearched refine.Agreement `json:"unsearched"` // the same where the search was chosen, or not
	Searched   float64          `json:"searched"`   // share of the search's displacement that counts
	Strain     float64          `json:"strain"`     // of the initial transform
	Bend       float64          `json:"bend"`       // standard deviation of the logarithm of the smooth fit's Jacobian determinant; 0: not measured
	Large      bool             `json:"large"`      // slices match in the large alone: fine detail has no counterpart
	Varies     bool             `json:"varies"`     // the contrast of one image over the other's varies from place to place
	Still      bool             `json:"still"`      // nothing moved by itself, by the smooth fit
	Apart      bool             `json:"apart"`      // the images agree little right after the search
	Mapped     float64          `json:"mapped"`     // agreement of the images once a curve maps one contrast to the other; 0 where none does

	Spacing  float64 `json:"spacing_mm"` // of the refinement's finest grid
	Shortest int     `json:"shortest"`   // voxels of that grid along its shortest axis
}

// Numbers returns the facts by name, those that are 0 or false left out.
func (f Facts) Numbers() map[string]float64 {
	all := map[string]float64{}
	each("", reflect.ValueOf(&f).Elem(), func(name string, v reflect.Value) {
		x := 0.0
		switch v.Kind() {
		case reflect.Bool:
			if v.Bool() {
				x = 1
			}
		case reflect.Int:
			x = float64(v.Int())
		default:
			x = v.Float()
		}
		if x != 0 {
			all[name] = x
		}
	})
	return all
}

// each visits the numbers of a struct by their names in JSON; those of a struct that it holds have the name of that before theirs.
func each(before string, s reflect.Value, visit func(name string, v reflect.Value)) {
	for i := range s.NumField() {
		name := before + s.Type().Field(i).Tag.Get("json")
		if v := s.Field(i); v.Kind() == reflect.Struct {
			each(name+"_", v, visit)
		} else {
			visit(name, v)
		}
	}
}

// Crop is how many voxels a volume has, at least, that is more than a crop around one structure.
const Crop = 1 << 19

// isCrop says whether the fixed image is a crop around one structure.
func (f Facts) isCrop() bool { return f.Voxels < Crop }

// Agreement (the squared local correlation at half the resolution after a smooth fit) of two scans of one modality. In the
// gaps between the three kinds one regime goes over into the next.
const (
	twoPeople = 0.82  // up to here, two people
	OneBody   = 0.835 // from here on one body, ...
	unlike    = 0.87  // ... up to here with tissue that is new, gone or speckled
	alike     = 0.90  // from here on, one body up to noise
)

// noisy is the share of the agreement left at the finest resolution below which noise, not two people's anatomy, keeps the
// images from agreeing.
const noisy = 0.4

// isNoisy tells one body under noise from two people: both agree little at half the resolution.
func isNoisy(a refine.Agreement) bool { return a.Detail > 0 && a.Detail < noisy }

// Two people's images agree less in fine detail than at half the resolution, by Agreement.Detail; those of one body of which one
// is corrupted, or whose contrast differs by a curve, agree about as much, and a fit of volumes bends little. An alignment
// without scales and a fit that bends less still tell of one body as well.
const (
	peopleDetail, bodyDetail = 0.80, 0.82
	rigidDetail              = 0.10       // what is added to the detail of a pair that neither grew nor bends
	grown, sameSize          = 0.05, 0.03 // strain of the initial transform
	bent, straight           = 0.16, 0.12
	mostBent, leastBent      = 0.19, 0.16 // of volumes that detail may take for one body
	oneBodyAgreement         = 0.85
)

// likeness is the agreement that tells one body from two people: the correlation, raised where the detail tells of one body.
func (f Facts) likeness() float64 {
	a := f.Agreement
	if a.Detail == 0 || a.Correlation >= oneBodyAgreement {
		return a.Correlation
	}
	rigid := 0.0
	if f.Bend > 0 {
		rigid = min(share(f.Strain, grown, sameSize), share(f.Bend, bent, straight))
	}
	body := share(a.Detail+float64(rigidDetail*rigid), peopleDetail, bodyDetail)
	if !f.Slices {
		body = min(body, share(f.Bend, mostBent, leastBent))
	}
	return a.Correlation + float64(body*(oneBodyAgreement-a.Correlation))
}

// IsAlike says whether a smooth fit left nothing but motion, and that of a small part.
func (f Facts) IsAlike(o Options) bool {
	return f.Similarity(o) == refine.NCC && f.Agreement.Correlation >= alike
}

// Alike says whether an agreement is that of one body up to noise.
func Alike(agreement float64) bool { return agreement >= alike }

// IsOneBody says whether the images are of one body, by a smooth fit.
func (f Facts) IsOneBody(o Options) bool {
	a := f.Agreement
	if f.Similarity(o).Descriptors() {
		return a.Correlation >= sharesContrast
	}
	return f.Similarity(o) == refine.NCC && (a.Correlation >= alike || isNoisy(a))
}

// ErrorFactor is by how much the error of points exceeds what the fixed voxel and the final agreement tell: a point of one
// person has no exact counterpart in another, and a curve between two contrasts leaves less agreement than the fit has.
func (f Facts) ErrorFactor(o Options) float64 {
	const people, mapped = 2, 0.5
	a := f.Agreement
	switch {
	case f.Mapped > 0:
		return mapped
	case f.Similarity(o) != refine.NCC || a.Correlation == 0 || isNoisy(a):
		return 1
	}
	return 1 + float64((people-1)*share(f.likeness(), alike, twoPeople))
}

// frames is the correlation by the headers from which on two images are frames of one scan, if no alignment brings them closer.
const frames = 0.87

// Frames says whether the images lie and match as frames of one scan.
func (f Facts) Frames() bool { return f.From >= frames && !f.Still }

// Correlation by the headers alone, of images that no alignment brings closer: up to the first, two contrasts may lie apart;
// from the second on they lie as they were taken.
const mayLieApart, liesRight = 0.395, 0.415

// inPlace is how far two contrasts are known to lie as they were taken, 0..1.
func (f Facts) inPlace() float64 { return share(f.From, mayLieApart, liesRight) }

// LiesRight says by a pair's numbers whether its headers laid it right.
func LiesRight(numbers map[string]float64) bool { return numbers["from"] >= liesRight }

// leastScore is the score of the alignment below which two images are not compared by their intensities, even if these seemed
// to correspond.
const leastScore = 0.35

// IntensitiesCompare says whether the intensities of two images correspond, and match well enough where they were aligned to be
// trusted in that.
func IntensitiesCompare(sameModality bool, score float64) bool {
	return sameModality && score >= leastScore
}

// Similarity resolves the option similarity.
func (f Facts) Similarity(o Options) refine.Similarity {
	switch {
	case o.Similarity != "auto":
		return refine.Similarity(o.Similarity)
	case IntensitiesCompare(f.SameModality, f.Score) && !f.Varies:
		return refine.NCC
	}
	return refine.MIND
}

// Of two scans whose intensities seemed to correspond, these tell that they do not: the share of local correlation that is
// negative; or a smaller share, where they align well and the contrast of one over the other's varies from place to place. The
// more it varies, the less need they align.
const (
	mostNegative = 0.10
	someNegative = 0.005
	mostGain     = 0.20
	wellAligned  = 0.645
	lessAligned  = 0.3 // for each unit of gain above mostGain
)

// Agreement of two contrasts where the search was chosen, in more than a crop: up to the first they are of two people, from the
// second on of one body. One body whose contrast is reversed in places agrees as little, and has more negative correlation.
const (
	twoPeopleAcross = 0.36
	oneBodyAcross   = 0.42
	mostReversed    = 0.25
)

// arePeople says whether two contrasts are of two people.
func (f Facts) arePeople(o Options) bool {
	a := f.Unsearched
	return describes(o, f) && !f.isCrop() && !f.Slices && !f.SameModality &&
		a.Correlation > 0 && a.Correlation < oneBodyAcross && a.Negative < mostReversed
}

// ContrastVaries tells of two scans that passed as one modality whether they are of two. Between two people, too, the contrast
// varies from place to place, but they do not align as well.
func (f Facts) ContrastVaries(o Options) bool {
	if o.Similarity != "auto" || f.Network || f.Similarity(o) != refine.NCC {
		return false
	}
	a := f.Agreement
	aligned := f.Score > wellAligned-float64(lessAligned*(a.Gain-mostGain))
	return a.Correlation < alike && (a.Negative > mostNegative || a.Negative > someNegative && a.Gain > mostGain && aligned)
}

// fine is so many pixels that what is fine may have no counterpart, and leastFine the agreement after a smooth fit below
// which it has none.
const (
	fine      = 4 * aligned.SlicePixels
	leastFine = 0.5
)

// MatchesInTheLarge says whether slices match in large structures alone, as neighbouring sections of tissue do under a
// microscope: one cell is not in two of them.
func (f Facts) MatchesInTheLarge(o Options) bool {
	return f.Slices && !f.Network && !f.IsGiven(o) && f.Similarity(o) == refine.NCC &&
		math.Pow(float64(f.Voxels), 2.0/3) > fine && f.Agreement.Correlation < leastFine
}

// Finest is how many voxels the refinement's finest grid has at most.
func (f Facts) Finest(o Options) int {
	if f.Large {
		return min(o.Voxels(), aligned.SlicePixels)
	}
	return o.Voxels()
}

// stillApart is the agreement right after a search below which two scans of one modality are taken to be of two people without
// another look.
const stillApart = 0.70

// StillApart says whether an agreement right after a search is that of two people.
func StillApart(agreement float64) bool { return agreement < stillApart }

// MostTelling is the agreement of the channel that shows most of what the others may not: two people's images of thick slices
// agree as one body's do. One that noise keeps from agreeing tells nothing, unless all are so.
func MostTelling(first refine.Agreement, channels []refine.Agreement) refine.Agreement {
	most := first
	for _, a := range channels {
		switch {
		case isNoisy(a) && !isNoisy(most):
		case isNoisy(most) && !isNoisy(a), a.Correlation < most.Correlation:
			most = a
		}
	}
	return most
}

// The bounds of a curve from one contrast to the other (RATIONALE.md, One contrast mapped to the other).
const (
	leastMapped   = 0.70 // agreement of the images once the contrast is mapped
	leftUnmapped  = 0.65 // share of the contrast's variation that the mapping may leave
	mostUnmapped  = 0.85 // variation from which on no curve is made
	mostElsewhere = 0.10 // share of the voxels that intensities may lead elsewhere than descriptors
)

// varies is the variation of the contrast from which on two scans of one body that pass as one modality may have two.
const varies = 0.2

// MayMap says whether a curve from one contrast to the other is worth looking for: between two contrasts, and where one
// body's scans pass as of one.
func (f Facts) MayMap(o Options) bool {
	a := f.Agreement
	if f.Channels || o.Similarity != "auto" || f.IsGiven(o) || a.Gain >= mostUnmapped {
		return false
	}
	return f.Similarity(o).Descriptors() || f.likeness() >= OneBody && a.Gain >= varies
}

// IsMapped says whether a curve maps the contrast of one image to the other's, by the agreement of descriptors and by that of
// intensities.
func (f Facts) IsMapped(m refine.Match) bool {
	gain := f.Agreement.Gain
	return gain < mostUnmapped && m.Correlation >= leastMapped && m.Before.Gain <= leftUnmapped*gain && m.Apart <= mostElsewhere
}

// Width returns the option smoothness as mm; 0 where it is a word.
func (o Options) Width() (mm float64) {
	if mm, err := strconv.ParseFloat(o.Smoothness, 64); err == nil {
		return mm
	}
	return 0
}
