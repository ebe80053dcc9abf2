package engine

import (
	"math"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/internal/testpair"
	"github.com/morphseek/morphseek/engine/volume"
)

// What the plan chooses from what was measured: kinds of pairs as they came out, and the order between them.
func TestPlan(t *testing.T) {
	const large = 4 * crop
	for _, c := range []struct {
		name       string
		similarity refine.Similarity
		voxels     int
		a          refine.Agreement
		frames     bool
		want       refine.Regularisation
	}{
		{"two people's heads", refine.NCC, large, refine.Agreement{Correlation: 0.72}, false, rough(refine.NCC, large)},
		{"two people's crops", refine.NCC, crop / 10, refine.Agreement{Correlation: 0.80}, false, rough(refine.NCC, crop/10)},
		{"a tumour before and after", refine.NCC, large, refine.Agreement{Correlation: 0.84}, false, stiff},
		{"one head seen twice", refine.NCC, large, refine.Agreement{Correlation: 1}, false, smooth},
		{"a beating heart", refine.NCC, large, refine.Agreement{Correlation: 0.94}, true, local},
		{"before and after surgery", refine.NCC, large, refine.Agreement{Correlation: 0.84}, true, stiff},
		{"two contrasts", refine.MIND, large, refine.Agreement{Correlation: 0.6}, false, acrossContrasts(large)},
		{"two contrasts that agree little", refine.MIND, large, refine.Agreement{Correlation: 0.2}, false, acrossContrasts(large)},
	} {
		got, why := regularisation(c.similarity, c.voxels, c.a, c.frames)
		if got != c.want || why == "" {
			t.Errorf("%s: %+v because %q, want %+v", c.name, got, why, c.want)
		}
	}
	// No step anywhere: the same pair on another grid, which agrees by a thousandth more, is regularised alike.
	for _, voxels := range []int{crop / 10, large} {
		last, _ := regularisation(refine.NCC, voxels, refine.Agreement{}, false)
		for c := 0.0; c <= 1; c += 0.001 {
			now, _ := regularisation(refine.NCC, voxels, refine.Agreement{Correlation: c}, false)
			if d := now.Elastic - last.Elastic; d > 0.07 || d < -0.07 {
				t.Errorf("at %.3f the elastic Gaussian goes from %g to %g", c, last.Elastic, now.Elastic)
			}
			last = now
		}
	}
}

func TestSearchFor(t *testing.T) {
	same, other := AlignMetrics{SameModality: true, Score: 0.5}, AlignMetrics{Score: 0.5}
	well := AlignMetrics{SameModality: true, Score: 0.75}
	for _, c := range []struct {
		name       string
		similarity refine.Similarity
		align      AlignMetrics
		agreement  float64
		flat       bool
		share      float64
	}{
		{"two people's abdomens", refine.NCC, same, 0.6, false, 1},
		{"two people's heads", refine.NCC, well, 0.7, false, 0},
		{"one body", refine.NCC, same, 0.9, false, 0},
		{"two contrasts of one body", refine.MIND, other, 0.6, false, 0},
		{"MR and CT of two people", refine.MIND, other, 0.3, false, 1},
		{"slices of two people's abdomens", refine.NCC, same, 0.6, true, 1},
		{"slices of two people's heads", refine.NCC, same, 0.75, true, 0},
	} {
		if share, why := searchFor(c.similarity, c.align, refine.Agreement{Correlation: c.agreement}, c.flat); share != c.share || why == "" {
			t.Errorf("%s: share %g because %q, want %g", c.name, share, why, c.share)
		}
	}
}

func TestIsMapped(t *testing.T) {
	match := func(before, after, correlation, apart float64) refine.Match {
		return refine.Match{Before: refine.Agreement{Gain: before}, Agreement: refine.Agreement{Correlation: correlation, Gain: after}, Apart: apart}
	}
	for _, c := range []struct {
		name string
		gain float64 // by descriptors
		m    refine.Match
		want bool
	}{
		{"a head in two contrasts", 0.59, match(0.19, 0.13, 0.92, 0), true},
		{"a crop under noise", 0.38, match(0.23, 0.23, 0.75, 0.05), true},
		{"MR and CT of one phantom", 1.22, match(0.21, 0.20, 0.89, 0.15), false},
		{"of its part", 1.29, match(0.20, 0.17, 0.90, 0.08), false},
		{"T1 and FLAIR beside a tumour", 0.25, match(0.30, 0.26, 0.82, 0.01), false},
		{"MR and CT of two people", 0.75, match(0.89, 0.86, 0.42, 0.22), false},
		{"two of a cord's contrasts", 0.43, match(0.25, 0.25, 0.42, 0.43), false},
	} {
		if got := isMapped(refine.Agreement{Gain: c.gain}, c.m); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestContrastDiffers(t *testing.T) {
	for _, c := range []struct {
		name  string
		score float64
		a     refine.Agreement
		want  bool
	}{
		{"two people's CT, contrast medium in one", 0.53, refine.Agreement{Correlation: 0.6, Gain: 0.3}, false},
		{"two people's heads", 0.77, refine.Agreement{Correlation: 0.7, Gain: 0.22}, false},
		{"T1 and FLAIR of a head", 0.67, refine.Agreement{Correlation: 0.65, Gain: 0.3}, true},
		{"contrast inverted in places", 0.5, refine.Agreement{Correlation: 0.5, Negative: 0.3, Gain: 0.1}, true},
		{"one body", 0.9, refine.Agreement{Correlation: 0.95, Gain: 0.3}, false},
	} {
		if got := contrastDiffers(AlignMetrics{Score: c.score}, c.a); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestWorthwhile(t *testing.T) {
	for _, c := range []struct {
		name string
		m    referee.Margin
		want bool
	}{
		{"aligned already", referee.Margin{Distance: 0.03, Correlation: 0.01}, false},
		{"a beating heart", referee.Margin{Distance: 0.8, Correlation: 0.05}, true},
		{"two contrasts under noise", referee.Margin{Distance: 0.06, Correlation: 0.04}, true},
		{"apart", referee.Margin{Distance: -0.2, Correlation: -0.1}, false},
	} {
		if got := worthwhile(c.m); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestStaysAt(t *testing.T) {
	for _, c := range []struct {
		name string
		m    referee.Margin
		want bool
	}{
		{"aligned already", referee.Margin{Distance: -0.2, Common: 1}, true},
		{"apart", referee.Margin{Distance: 0.4, Correlation: 0.1, Common: 0.8, T: 20}, false},
		{"apart, in a small crop", referee.Margin{Distance: 0.34, Correlation: 0.14, Common: 1, T: 7.2}, false},
		{"better here, worse there", referee.Margin{Distance: 0.07, Correlation: 0.1, Common: 0.6, T: 1.6}, true},
		{"nothing in common at first", referee.Margin{Common: 0.05}, false},
	} {
		if why := staysAt(c.m, false); (why != "") != c.want {
			t.Errorf("%s: stays because %q, want %v", c.name, why, c.want)
		}
	}
}

// An alignment of one modality that gains unevenly is taken: speckle, which is another in every frame, does that.
func TestUnevenGainOfOneModality(t *testing.T) {
	m := referee.Margin{Distance: 0.09, Correlation: 0.1, Common: 0.9, T: 3.6}
	if why := staysAt(m, true); why != "" {
		t.Error(why)
	}
	if staysAt(m, false) == "" {
		t.Error("two contrasts whose alignment gains unevenly are moved")
	}
}

// Smoothness: low is rougher than high, and a number of mm is that of the Gaussian, within bounds.
func TestSmoothnessAsked(t *testing.T) {
	for _, s := range []refine.Similarity{refine.NCC, refine.MSE, refine.MIND} {
		low, high := byWord("low", s, crop), byWord("high", s, crop)
		if low.Fluid >= high.Fluid || low.Elastic >= high.Elastic {
			t.Errorf("%s: low %+v, high %+v", s, low, high)
		}
		if a, b := searchStiffness(s, crop, low), searchStiffness(s, crop, high); a >= b {
			t.Errorf("%s: the search is as stiff as %g by low and %g by high", s, a, b)
		}
	}
	for _, c := range []struct {
		mm, spacing float64
		shortest    int
		fluid       float64
	}{{6, 2, 100, 3}, {0.1, 2, 100, 0.5}, {100, 1, 40, 10}} {
		if got := byLength(c.mm, c.spacing, c.shortest).Fluid; got != c.fluid {
			t.Errorf("%g mm on %g mm voxels: %g voxels, want %g", c.mm, c.spacing, got, c.fluid)
		}
	}
}

// Frames of one scan match by their headers, whatever small transform is given. Images that match because of the transform are any other pair.
func TestGivenTransformMakesNoFrames(t *testing.T) {
	identity, shift := volume.IdentityAffine(), volume.Affine{M: volume.Identity, T: [3]float64{0.3, -0.2, 0}}
	fixed, moving, _ := testpair.Moved(48, func(x, y, z float64) [3]float64 { // two parts that moved apart
		bump := func(cx float64) float64 { return 4 * math.Exp(-((x-cx)*(x-cx)+(y-24)*(y-24)+(z-24)*(z-24))/70) }
		return [3]float64{0, bump(14) - bump(34), 0}
	})
	turn := volume.Affine{M: [9]float64{0.96, -0.28, 0, 0.28, 0.96, 0, 0, 0, 1}, T: [3]float64{4, -3, 2}}
	turned := *moving
	turned.Direction, turned.Origin = turn.M, turn.Apply(moving.Origin)
	e := open(t, Config{})
	options := with(func(o *Options) { o.Initial, o.Search, o.Refine, o.Similarity = "affine", "auto", -1, "ncc" })
	for _, c := range []struct {
		name   string
		pair   Pair
		frames bool
	}{
		{"by their headers", Pair{Fixed: fixed, Moving: moving}, true},
		{"by the transform given", Pair{Fixed: fixed, Moving: &turned, Initial: &turn}, false},
		{"by the headers and the identity", Pair{Fixed: fixed, Moving: moving, Initial: &identity}, true},
		{"by the headers and a small shift", Pair{Fixed: fixed, Moving: moving, Initial: &shift}, true},
	} {
		r := register(t, e, c.pair, options)
		frames := strings.Contains(strings.Join(r.Metrics.Plan.Reasons, "; "), "frames of one scan")
		if frames != c.frames {
			t.Errorf("%s: frames of one scan: %v, want %v; start %q, %v", c.name, frames, c.frames, r.Metrics.Plan.Start, r.Metrics.Plan.Reasons)
		}
	}
}
