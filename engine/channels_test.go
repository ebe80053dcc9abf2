package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// half returns v with noise alone on one side of the middle along z.
func half(v *volume.Volume, upper bool, seed uint64) *volume.Volume {
	rng, out := rand.New(rand.NewPCG(seed, 1)), volume.Zeros(v.Geometry)
	for i, x := range v.Data {
		out.Data[i] = x
		if z := i / (v.Size[0] * v.Size[1]); (z >= v.Size[2]/2) == upper {
			out.Data[i] = 50 + 5*float32(rng.NormFloat64())
		}
	}
	return out
}

// classes returns a map of three classes of intensity; every number is multiplied by times.
func classes(v *volume.Volume, times float32) *volume.Volume {
	out := volume.Zeros(v.Geometry)
	cuts := v.Percentiles(50, 75, 92)
	for i, x := range v.Data {
		for _, c := range cuts {
			if float64(x) > c {
				out.Data[i] += times
			}
		}
	}
	return out
}

// alongX moves points along x, by up to so many mm.
func alongX(n int, mm float64) func(x, y, z float64) [3]float64 {
	unit := math.Pi / float64(n-1)
	return func(x, y, z float64) [3]float64 {
		return [3]float64{mm * math.Sin(unit*x) * math.Sin(unit*y) * math.Sin(unit*z), 0, 0}
	}
}

// What one channel does not show another one does: with both, points come nearer to where they belong than with either,
// whatever grid and axes the channel has; the metrics say what was compared.
func TestChannels(t *testing.T) {
	long(t)
	t.Parallel()
	const n = 36
	fixed, moving, truth := testkit.Moved(n, alongX(n, 4))
	lo, hi := [3]int{6, 6, 6}, [3]int{30, 30, 30}
	e := open(t, Config{})
	options := with(func(o *Options) { o.Initial, o.Similarity, o.Refine = "none", "ncc", 30 })
	lower, upper := Pair{Fixed: half(fixed, true, 1), Moving: half(moving, true, 2)}, Pair{Fixed: half(fixed, false, 3), Moving: half(moving, false, 4)}
	together := lower
	together.Channels = []Channel{{Fixed: upper.Fixed, Moving: upper.Moving}}
	one, other := register(t, e, lower, options), register(t, e, upper, options)
	both := register(t, e, together, options)
	errors := [3]float64{}
	for k, r := range []*Result{one, other, both} {
		errors[k] = testkit.MeanError(r.Field, truth, lo, hi)
	}
	t.Logf("mean errors %.3f, voxels", errors)
	if !(errors[2] < 0.9*min(errors[0], errors[1])) {
		t.Errorf("mean errors of each and of both: %.3f", errors)
	}
	m := both.Metrics.Channels
	if len(m) != 1 || m[0].Name != "channel 2" || m[0].Similarity != "ncc" || m[0].Weight != 1 || m[0].Labels != 0 || !(m[0].After > m[0].Before) {
		t.Errorf("metrics %+v", m)
	}
	if one.Metrics.Channels != nil {
		t.Errorf("metrics of no channel: %+v", one.Metrics.Channels)
	}
	perm, flip := [3]int{2, 0, 1}, [3]bool{true, false, true}
	together.Channels = []Channel{{Fixed: testkit.Reordered(upper.Fixed, perm, flip), Moving: testkit.Reordered(upper.Moving, perm, flip)}}
	if again := register(t, e, together, options); !slices.Equal(again.Field.Data, both.Field.Data) {
		t.Error("the order of the channel's axes changes the result")
	}
}

// Label maps drive where the images show nothing, by the search and by the refinement; what one of them has alone is
// said.
func TestLabelChannel(t *testing.T) {
	long(t)
	t.Parallel()
	const n = 36
	fixed, moving, truth := testkit.Moved(n, alongX(n, 5))
	lo, hi := [3]int{6, 6, 6}, [3]int{30, 30, 30}
	e := open(t, Config{})
	before := testkit.MeanError(nil, truth, lo, hi)
	here, there := classes(fixed, 7), classes(moving, 7)
	here.Data[0] = 99
	noise := Pair{Fixed: half(half(fixed, true, 1), false, 2), Moving: half(half(moving, true, 3), false, 4)}
	noise.Channels = []Channel{{Name: "organs", Fixed: here, Moving: there, Labels: true}}
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"refinement", func(o *Options) { o.Search, o.Refine = "off", 30 }},
		{"search", func(o *Options) { o.Search, o.Refine = "on", 0 }},
		{"both ways", func(o *Options) { o.Search, o.Refine, o.Symmetric = "off", 30, "on" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := register(t, e, noise, with(func(o *Options) {
				o.Initial = "none"
				c.change(o)
			}))
			after := testkit.MeanError(r.Field, truth, lo, hi)
			t.Logf("%.2f -> %.2f voxels, %+v", before, after, r.Metrics.Channels)
			if !(after < 0.6*before) {
				t.Errorf("mean error %.2f voxels, %.2f before", after, before)
			}
			if m := r.Metrics.Channels; len(m) != 1 || m[0].Similarity != "labels" || m[0].Labels != 3 || !(m[0].After > m[0].Before+0.1) {
				t.Errorf("metrics %+v", m)
			}
			if text := strings.Join(r.Metrics.Warnings, "\n"); !strings.Contains(text, "one map of organs alone has drive nothing: 99.") {
				t.Errorf("warnings %q", text)
			}
		})
	}
}

// A cache does not give the result of other channels.
func TestCacheOfChannels(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Moved(32, alongX(32, 2))
	e := open(t, Config{})
	options := with(func(o *Options) { o.Cache, o.Search, o.Refine = t.TempDir(), "off", 2 })
	pair := Pair{Fixed: fixed, Moving: moving}
	for _, channels := range [][]Channel{nil, {{Fixed: fixed, Moving: moving}}, {{Fixed: fixed, Moving: moving, Weight: 2}}, {{Fixed: classes(fixed, 1), Moving: classes(moving, 1), Labels: true}}} {
		pair.Channels = channels
		keptOnce(t, e, pair, options)
	}
}

// Channels that are none are refused before the work, by their names.
func TestWrongChannels(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Moved(32, alongX(32, 2))
	e := open(t, Config{})
	away := volume.Volume{Geometry: moving.Geometry, Data: moving.Data}
	away.Origin[1] += 1e4
	whole := classes(fixed, 1)
	for _, c := range []struct {
		channel Channel
		code    fault.Code
		say     string
	}{
		{Channel{Name: "FLAIR", Fixed: fixed}, fault.EmptyVolume, "FLAIR, moving volume is missing"},
		{Channel{Fixed: fixed, Moving: &away}, fault.NoOverlap, "channel 2, moving volume lies outside the moving image"},
		{Channel{Fixed: fixed, Moving: moving, Weight: -1}, fault.InvalidArgument, "the weight of channel 2 is -1"},
		{Channel{Fixed: fixed, Moving: moving, Weight: math.NaN()}, fault.InvalidArgument, "the weight of channel 2 is NaN"},
		{Channel{Fixed: fixed, Moving: volume.Zeros(moving.Geometry)}, fault.ConstantVolume, "channel 2, moving volume is constant"},
		{Channel{Fixed: fixed, Moving: moving, Labels: true}, fault.InvalidArgument, "which is no label"},
		{Channel{Fixed: whole, Moving: volume.Zeros(moving.Geometry), Labels: true}, fault.InvalidArgument, "no label in common"},
		{Channel{Fixed: whole, Moving: classes(moving, 100), Labels: true}, fault.InvalidArgument, "no label in common"},
	} {
		_, err := e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving, Channels: []Channel{c.channel}}, DefaultOptions(), nil)
		testkit.Fails(t, err, c.code, c.say)
	}
	testkit.Refused(e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving, Channels: make([]Channel, 17)}, DefaultOptions(), nil))(t, fault.InvalidArgument)
}

// The warning of labels that one map alone has names them in the order of numbers, not of texts.
func TestLabelsOfOneMapInOrder(t *testing.T) {
	grid := testkit.Grid([3]int{4, 1, 1})
	var c aligned.Channel
	c.Fixed = &volume.Volume{Geometry: grid, Data: []float32{1, 10, 9, 100}}
	c.Moving = &volume.Volume{Geometry: grid, Data: []float32{1, 0, 0, 11}}
	n := newNotes(Options{})
	n.number(&c, "organs", []float32{1})
	if text := n.metrics.Warnings[0]; !strings.HasSuffix(text, ": 9, 10, 11, 100.") {
		t.Error(text)
	}
}
