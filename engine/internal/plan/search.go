package plan

import "math"

// effort is what a preset spends on the search and on the refinement.
var effort = map[string]struct{ passes, trees, iterations, voxels int }{
	"fast":    {1, 1, 30, 1 << 20},
	"default": {2, 4, 30, 6 << 20},
	"best":    {2, 4, 80, 16 << 20},
}

// Voxels is how many voxels the refinement's finest grid has at most, whatever the pair.
func (o Options) Voxels() int { return effort[o.Preset].voxels }

// Iterations resolves the option refine. After a network only an explicit number refines: the label-free similarities are less
// than what a network trained with labels knows. On a small volume iterations are cheap, and twice as many gain a little.
func (f Facts) Iterations(o Options) int {
	switch {
	case o.Refine >= 0:
		return o.Refine
	case f.Network:
		return 0
	case f.isCrop():
		return 2 * effort[o.Preset].iterations
	}
	return effort[o.Preset].iterations
}

// FitIterations are the iterations of the fit that the search asks for, whether or not a refinement follows.
func (f Facts) FitIterations(o Options) int {
	if n := f.Iterations(o); n > 0 {
		return n
	}
	return effort[o.Preset].iterations
}

// Search is how a discrete search looks for large displacements.
type Search struct {
	Share         float64 // of the displacement that counts, 0..1; 0: no search
	Passes, Trees int     // over the levels, and over how many trees
	Stiffness     float64
	Why           string // for the user
}

// need is a row of the table.
type need struct {
	holds func(Options, Facts) bool
	share func(Facts) float64
	why   string
}

// needs say how much of the displacement that the search finds counts, none where a smooth fit has found the match. The first
// that holds is taken.
var needs = []need{
	{func(_ Options, f Facts) bool { return f.Large }, none,
		"fine detail of the slices has no counterpart: no search for large displacements"},
	{func(_ Options, f Facts) bool { return f.Frames() }, whole,
		"the images lie and match as frames of one scan: the search looks for what moved by itself"},
	{func(o Options, f Facts) bool { return describes(o, f) && f.Agreement.Correlation >= sharesContrast }, none,
		"a first, smooth fit brought the images together: no search for large displacements"},
	{func(o Options, f Facts) bool { return describes(o, f) && f.inPlace() == 1 }, none,
		"the images, of different contrasts, lie as they were taken: no search for large displacements"},
	{describes, func(f Facts) float64 { return 1 - f.inPlace() },
		"the images, of different contrasts, match little after a first, smooth fit: a search looks farther"},
	{func(_ Options, f Facts) bool { return !f.SameModality }, whole,
		"the images seem to be of two modalities: a search looks farther"},
	{func(_ Options, f Facts) bool { return f.likeness() >= OneBody || isNoisy(f.Agreement) }, none,
		"the images match after a first, smooth fit: no search for large displacements"},
	{func(_ Options, f Facts) bool { return unaligned(f) == 0 }, none,
		"the images match well already: no search for large displacements"},
	{func(_ Options, f Facts) bool { return f.Slices && disagreeing(f) == 0 }, none,
		"the slices match after a first, smooth fit: no search for large displacements"},
	{func(_ Options, f Facts) bool { return f.Slices }, func(f Facts) float64 { return unaligned(f) * disagreeing(f) }, farther},
	{func(_ Options, f Facts) bool { return f.likeness() <= twoPeople }, unaligned, farther},
	// two people or one body
	{func(Options, Facts) bool { return true }, func(f Facts) float64 {
		return unaligned(f) * ((OneBody - f.likeness()) / (OneBody - twoPeople))
	}, farther},
}

const farther = "the images do not match well after the initial alignment: a search looks farther"

func whole(Facts) float64 { return 1 }

func none(Facts) float64 { return 0 }

// sharesContrast is the agreement above which two contrasts are taken to be of one body: a smooth fit found the match, and a
// search would only find others like it.
const sharesContrast = 0.5

// unaligned is how much of the search counts by the score of the alignment within one modality: well aligned, large
// displacements are noise. In between it counts in part, so that a pair on another grid is treated alike.
func unaligned(f Facts) float64 {
	const poorly, well = 0.66, 0.70
	return share(f.Score, well, poorly)
}

// disagreeing is how much of the search of slices counts by their agreement after a smooth fit: below apart they lie apart,
// above agree it only adds noise.
func disagreeing(f Facts) float64 {
	const apart, agree = 0.70, 0.73
	return share(f.Agreement.Correlation, agree, apart)
}

// SearchFor returns the search of a pair.
func SearchFor(o Options, f Facts) Search {
	for _, n := range needs {
		if n.holds(o, f) {
			s := SearchAsked(o, f)
			s.Share, s.Why = n.share(f), n.why
			return s
		}
	}
	panic("plan: the last need holds for every pair")
}

// SearchAsked is the search that the caller asks for, whatever the pair. In a crop few levels run, between frames little moved,
// and one pass is as good.
func SearchAsked(o Options, f Facts) Search {
	by := effort[o.Preset]
	s := Search{Share: 1, Passes: by.passes, Trees: by.trees, Stiffness: stiffness(o, f)}
	if f.isCrop() || f.Frames() {
		s.Passes = 1
	}
	return s
}

// stiffness is how stiff the search is, by the width of a refinement that is given or else of the likeliest kind: strain
// goes with its square. Descriptors ask for more: their costs hardly tell neighbours apart.
func stiffness(o Options, f Facts) float64 {
	fluid := rough(o, f).Fluid
	switch {
	case f.IsGiven(o):
		fluid = given(o, f).Fluid
	case f.arePeople(o):
		fluid = acrossPeople(o, f).Fluid
	case describes(o, f):
		fluid = bySize(descriptors)(o, f).Fluid
	}
	switch {
	case f.Similarity(o).Descriptors():
		return 9 * math.Pow(fluid/4.5, 2)
	case f.isCrop():
		return math.Pow(fluid/1.5, 2)
	}
	return 0.1 * math.Pow(fluid/1.75, 2)
}
