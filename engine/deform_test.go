package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// With no model named, the search and the refinement recover a displacement across contrasts, and say what they did.
func TestRegisterWithoutModel(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 4, true)
	pair := Pair{Fixed: fixed, Moving: moving}
	options := func(threads int, preset string) Options {
		return with(func(o *Options) {
			o.Search, o.Refine, o.Threads, o.Preset, o.Similarity = "auto", -1, threads, preset, "mind"
		})
	}
	e := open(t, Config{})
	r := register(t, e, pair, options(2, "fast"))
	lo, hi := [3]int{8, 8, 8}, [3]int{32, 32, 32}
	before, after := testkit.MeanError(nil, truth, lo, hi), testkit.MeanError(r.Field, truth, lo, hi)
	if after > 0.25*before {
		t.Errorf("mean error %.2f of %.2f voxels left", after, before)
	}
	m := r.Metrics
	if m.NJDPercent != 0 {
		t.Errorf("NJD %g %%", m.NJDPercent)
	}
	if m.Seconds["search"] <= 0 || m.Seconds["refine"] <= 0 || m.Refine.Similarity != "mind" || len(m.Refine.Levels) == 0 {
		t.Errorf("metrics %+v do not tell of the search and the refinement", m)
	}
	if again := register(t, e, pair, options(3, "fast")); !slices.Equal(r.Field.Data, again.Field.Data) {
		t.Error("the field depends on the number of threads")
	}

	for _, stage := range []string{"search", "refine"} {
		t.Run(stage, func(t *testing.T) {
			_, err := e.Register(context.Background(), pair, options(2, "default"), func(p Progress) bool { return p.Stage != stage })
			testkit.Fails(t, err, fault.Cancelled)
		})
	}
}

// The shading of two coils changes a result little: both images are compared without it.
func TestShading(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 3, true)
	shaded := func(v *volume.Volume, axis int, by float64) *volume.Volume {
		return testkit.Filled(v.Geometry, func(i int) float32 {
			away := float64(v.Index(i)[axis]) / float64(v.Size[axis])
			return v.Data[i] * float32(math.Exp(by*away*away))
		})
	}
	e := open(t, Config{})
	var errors []float64
	for _, by := range []float64{0, 1} {
		r := register(t, e, Pair{Fixed: shaded(fixed, 0, by), Moving: shaded(moving, 1, -by)}, with(func(o *Options) { o.Refine = -1 }))
		errors = append(errors, testkit.MeanError(r.Field, truth, [3]int{8, 8, 8}, [3]int{32, 32, 32}))
	}
	if errors[1] > 1.6*errors[0] {
		t.Errorf("mean error %.2f voxels, %.2f without shading", errors[1], errors[0])
	}
}

// What the search finds is judged where no refinement follows, too: between an image and itself under noise there is
// nothing to find.
func TestSearchAloneIsJudged(t *testing.T) {
	t.Parallel()
	fixed, same, _ := testkit.Phantom(40, 0, false)
	testkit.AddNoise(30, rand.New(rand.NewPCG(1, 2)), fixed, same)
	still, moved, _ := testkit.Phantom(40, 4, false)
	e := open(t, Config{})
	for _, c := range []struct {
		name  string
		pair  Pair
		moved bool
	}{
		{"noise alone", Pair{Fixed: fixed, Moving: same}, false},
		{"a motion", Pair{Fixed: still, Moving: moved}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := register(t, e, c.pair, with(func(o *Options) { o.Search, o.Refine = "on", 0 }))
			m, reasons := r.Metrics, strings.Join(r.Metrics.Plan.Reasons, " ")
			dropped := strings.Contains(reasons, "brought the images no closer")
			if moved := m.DisplacementMax > 0.01; moved != c.moved || dropped == c.moved || m.Plan.Search > 0 != c.moved {
				t.Errorf("moved by up to %.2f mm, gain %.3f, search %g, %q", m.DisplacementMax, m.Referee.Gain, m.Plan.Search, reasons)
			}
		})
	}
}

// Where the images are too small for any of its levels, the search does not count as one that ran.
func TestTooSmallForTheSearch(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	for _, c := range []struct {
		side     int
		searched float64
	}{{14, 0}, {16, 0}, {40, 1}} {
		t.Run(fmt.Sprintf("%d voxels", c.side), func(t *testing.T) {
			fixed, moving, _ := testkit.Phantom(c.side, 2, false)
			for _, refine := range []int{0, 4} {
				m := register(t, e, Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Search, o.Refine = "on", refine })).Metrics
				said := strings.Contains(strings.Join(m.Plan.Reasons, " "), "too small for the search")
				if m.Plan.Search != c.searched || said != (c.searched == 0) {
					t.Errorf("%d voxels a side, refine %d: search %g, %q", c.side, refine, m.Plan.Search, m.Plan.Reasons)
				}
			}
		})
	}
}
