package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testpair"
)

// With no model named, the search and the refinement recover a displacement across contrasts, and say what they did.
func TestRegisterWithoutModel(t *testing.T) {
	fixed, moving, truth := testpair.Phantom(40, 4, true)
	pair := Pair{Fixed: fixed, Moving: moving}
	options := func(threads int, preset string) Options {
		return with(func(o *Options) {
			o.Search, o.Refine, o.Threads, o.Preset, o.Similarity = "auto", -1, threads, preset, "mind"
		})
	}
	e := open(t, Config{})
	r := register(t, e, pair, options(2, "fast"))
	lo, hi := [3]int{8, 8, 8}, [3]int{32, 32, 32}
	before, after := testpair.MeanError(nil, truth, lo, hi), testpair.MeanError(r.Field, truth, lo, hi)
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
		_, err := e.Register(context.Background(), pair, options(2, "default"), func(p Progress) bool { return p.Stage != stage })
		if fault.CodeOf(err) != fault.Cancelled {
			t.Errorf("cancelled in %s: error %v", stage, err)
		}
	}
}
