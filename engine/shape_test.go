package engine

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testpair"
	"github.com/morphseek/morphseek/engine/volume"
)

// alongY moves points along y alone, by up to so many mm.
func alongY(n int, mm float64) func(x, y, z float64) [3]float64 {
	unit := math.Pi / float64(n-1)
	return func(x, y, z float64) [3]float64 {
		return [3]float64{0, mm * math.Sin(unit*x) * math.Sin(unit*y) * math.Cos(unit*z), 0}
	}
}

// moves is the largest component of a field along each axis.
func moves(r *Result) (most [3]float32) {
	for a, plane := range [3][]float32{r.Field.X, r.Field.Y, r.Field.Z} {
		for _, u := range plane {
			most[a] = max(most[a], u, -u)
		}
	}
	return most
}

// Whatever order and direction the axes of the file have, nothing moves along a locked one, to the last bit, by the search, the refinement and
// both; and what moved along the free one is found.
func TestAlong(t *testing.T) {
	fixed, moving, truth := testpair.Moved(48, alongY(48, 5))
	lo, hi := [3]int{10, 10, 10}, [3]int{38, 38, 38}
	before := testpair.MeanError(nil, truth, lo, hi)
	oblique := [9]float64{0.8, -0.6, 0, 0.6, 0.8, 0, 0, 0, 1}
	for _, c := range []struct {
		name   string
		perm   [3]int
		flip   [3]bool
		turned bool
		along  string
		axis   int // of the file, that is free
		change func(*Options)
	}{
		{"search and refinement", [3]int{0, 1, 2}, [3]bool{}, false, "j", 1, func(o *Options) { o.Search = "on" }},
		{"the file's third axis, reversed", [3]int{2, 0, 1}, [3]bool{false, true, true}, false, "k", 2, nil},
		{"first axis, oblique", [3]int{1, 0, 2}, [3]bool{}, true, "i", 0, func(o *Options) { o.Search = "on" }},
		{"descriptors", [3]int{0, 1, 2}, [3]bool{}, false, "j", 1, func(o *Options) { o.Similarity = "mind" }},
	} {
		f, m := testpair.Reordered(fixed, c.perm, c.flip), testpair.Reordered(moving, c.perm, c.flip)
		if c.turned {
			for _, v := range []*volume.Volume{f, m} {
				turn := volume.Affine{M: oblique}
				v.Direction = turn.After(volume.Affine{M: v.Direction}).M
				v.Origin = turn.Apply(v.Origin)
			}
		}
		r := register(t, open(t, Config{}), Pair{Fixed: f, Moving: m}, with(func(o *Options) {
			o.Refine, o.Search, o.Preset, o.Along, o.Similarity = -1, "auto", "fast", c.along, "ncc"
			if c.change != nil {
				c.change(o)
			}
		}))
		for a, most := range moves(r) {
			if a != c.axis && most != 0 {
				t.Errorf("%s: %g voxels along a locked axis", c.name, most)
			}
			if a == c.axis && most < 3 {
				t.Errorf("%s: %g voxels at most along the free axis", c.name, most)
			}
		}
		if !c.turned { // testpair measures in the phantom's own space
			if after := testpair.MeanError(r.Field, truth, lo, hi); after > 0.25*before {
				t.Errorf("%s: mean error %.2f of %.2f mm left", c.name, after, before)
			}
		}
	}
}

// In plane: two axes are free.
func TestAlongTwoAxes(t *testing.T) {
	fixed, moving, _ := testpair.Phantom(40, 4, false)
	r := register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Refine, o.Search, o.Along = 30, "on", "ij" }))
	if most := moves(r); most[2] != 0 || most[0] < 1 || most[1] < 1 {
		t.Errorf("the largest components are %v; want none along z", most)
	}
}

// Where nothing can lie beside an axis, the uncertainty is that along it.
func TestUncertaintyAlong(t *testing.T) {
	fixed, moving, _ := testpair.Moved(40, alongY(40, 3))
	of := func(along string) float64 {
		r := register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Refine, o.Along, o.Uncertainty = 30, along, "on" }))
		return r.Metrics.Uncertainty.MeanMM
	}
	if one, all := of("j"), of("all"); !(one > 0 && one < 0.9*all) {
		t.Errorf("uncertainty %g mm along one axis, %g along all", one, all)
	}
}

// Behind an initial transform the deformation keeps to the axes, to rounding; the initial transform does not.
func TestAlongBehindAnInitialTransform(t *testing.T) {
	fixed, moving, _ := testpair.Moved(40, alongY(40, 4))
	shift := volume.IdentityAffine()
	shift.T = [3]float64{3, 0, -2}
	moving.Origin = shift.T
	r := register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving, Initial: &shift}, with(func(o *Options) { o.Refine, o.Along = 30, "j" }))
	behind, err := r.Field.BehindMM(r.Initial, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	var most [3]float64
	for i, d := range behind {
		most[i%3] = max(most[i%3], math.Abs(float64(d)))
	}
	if most[0] > 1e-5 || most[2] > 1e-5 || most[1] < 2 {
		t.Errorf("the deformation moves %v mm; want y alone", most)
	}
}

func TestAlongIsRefused(t *testing.T) {
	fixed, moving, _ := testpair.Phantom(24, 1, false)
	e := open(t, Config{})
	for _, c := range []struct {
		say    string
		change func(*Options)
	}{
		{`along is "x"; it must be one of all, i, j, k, ij, ik, jk`, func(o *Options) { o.Along = "x" }},
		{`along is "ji"`, func(o *Options) { o.Along = "ji" }},
		{"a network's displacement keeps to no axis", func(o *Options) { o.Model, o.Along = tiny, "j" }},
	} {
		_, err := e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving}, with(c.change), nil)
		if fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), c.say) {
			t.Errorf("want %q, got %v", c.say, err)
		}
	}
}
