package engine

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// The policy's uncertainty is the standard deviation of the fields that the step graph gives for the draws of
// network.Sample, run here all at once and measured in two passes.
func TestUncertaintyOfThePolicy(t *testing.T) {
	library := testkit.ONNXRuntime(t)
	const samples, tau, seed = 5, 0.7, 9
	g := volume.Geometry{Size: [3]int{16, 8, 12}, Spacing: [3]float64{1.5, 1, 2}, Direction: volume.Identity}
	p := Pair{Fixed: &volume.Volume{Geometry: g, Data: blob(g.Size, 0).Data}, Moving: &volume.Volume{Geometry: g, Data: blob(g.Size, 2).Data}}
	opt := with(func(o *Options) {
		o.Model, o.Steps, o.Tau, o.Seed, o.Trajectories, o.Uncertainty = tiny, 1, tau, seed, samples, "on"
	})
	r := register(t, open(t, Config{RuntimeLibrary: library}), p, opt)
	if m := r.Metrics.Uncertainty; m == nil || m.Source != "policy" || m.Samples != samples {
		t.Fatalf("metrics %+v", m)
	}

	m := testkit.Must(network.Load(tiny, ""))(t)
	sessions := network.NewSessions(library)
	t.Cleanup(sessions.Close)
	runner, _, err := sessions.Get(m, "cpu", 1)
	testkit.OK(t, err)
	feed := problem{opt: Options{Threads: 1}, net: &net{Model: m}}
	input := func(v *volume.Volume) []float32 {
		return feed.input(v, v.Percentiles(m.Intensity.Low, m.Intensity.High), m.Grid(g), volume.IdentityAffine()).Data
	}
	grid := m.Manifest.Grid(g)
	s := network.NewStep(m.Manifest, [3]int{grid.Size[2], grid.Size[1], grid.Size[0]}, 1, samples+1)
	s.Fixed, s.Moving = input(p.Fixed), input(p.Moving)
	s.Previous, s.Tau = make([]float32, 3*grid.Voxels()), tau
	network.Sample(s.Epsilon, samples+1, seed, 0)
	testkit.OK(t, runner.Run(context.Background(), s))
	want := volume.Zeros(grid)
	n := grid.Voxels()
	for i := range n {
		variance := 0.0
		for plane := range 3 {
			mm := grid.Spacing[2-plane]
			mean := 0.0
			at := func(j int) float64 { return mm * float64(s.U[(3*j+plane)*n+i]) }
			for j := range samples {
				mean += at(j+1) / samples
			}
			for j := range samples {
				variance += (at(j+1) - mean) * (at(j+1) - mean) / (samples - 1)
			}
		}
		want.Data[i] = float32(math.Sqrt(variance))
	}
	want = want.Resample(g, volume.IdentityAffine(), volume.Linear, -1, 1)
	testkit.Close(t, "uncertainty, mm", r.Uncertainty.Data, want.Data, 1e-4)
	if least := slices.Min(want.Data); least <= 0 {
		t.Errorf("nothing to compare: %g", least)
	}

	opt.Steps, opt.Trajectories = 2, 1 // every trajectory goes on from its own field
	more := register(t, open(t, Config{RuntimeLibrary: library}), p, opt)
	if u := more.Metrics.Uncertainty; u.Samples != policySamples || u.MeanMM <= r.Metrics.Uncertainty.MeanMM {
		t.Errorf("%+v after two steps, %+v after one", u, r.Metrics.Uncertainty)
	}
	opt.Uncertainty = "off"
	if plain := register(t, open(t, Config{RuntimeLibrary: library}), p, opt); !slices.Equal(plain.Field.Data, more.Field.Data) {
		t.Error("asking for the uncertainty changes the result")
	}
}

func TestUncertaintyOfTheSearch(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(32, 2, false)
	mask := volume.Zeros(fixed.Geometry)
	for i := range mask.Data {
		if i%32 >= 16 {
			mask.Data[i] = 1
		}
	}
	p := Pair{Fixed: fixed, Moving: moving, FixedMask: mask}
	e := open(t, Config{})
	opt := with(func(o *Options) { o.Search, o.Refine, o.Uncertainty = "on", 2, "on" })
	var stages []string
	r := testkit.Must(e.Register(context.Background(), p, opt, stagesOf(&stages)))(t)
	if want := []string{"align", "search", "refine", "uncertainty", "finish"}; !slices.Equal(stages, want) {
		t.Errorf("stages %v", stages)
	}
	if !r.Uncertainty.SameGrid(fixed.Geometry) || len(r.Uncertainty.Data) != fixed.Voxels() || slices.Min(r.Uncertainty.Data) <= 0 {
		t.Fatalf("uncertainty on %v, least %g", r.Uncertainty.Size, slices.Min(r.Uncertainty.Data))
	}
	var inside []float64
	mean := 0.0
	for i, v := range r.Uncertainty.Data {
		if mask.Data[i] != 0 {
			inside = append(inside, float64(v))
			mean += float64(v)
		}
	}
	slices.Sort(inside)
	m := r.Metrics.Uncertainty
	p95 := inside[len(inside)*95/100]
	if m.Source != "search" || math.Abs(m.MeanMM-mean/float64(len(inside))) > 1e-6 || math.Abs(m.P95MM-p95) > 0.01*p95 {
		t.Errorf("metrics %+v, in the mask the mean is %g, the percentile %g", m, mean/float64(len(inside)), p95)
	}

	path := filepath.Join(t.TempDir(), "a.morphseek")
	testkit.OK(t, r.Save(path))
	if again, err := LoadResult(path); err != nil || !slices.Equal(again.Uncertainty.Data, r.Uncertainty.Data) || *again.Metrics.Uncertainty != *m {
		t.Errorf("not saved and loaded: %v", err)
	}
	opt.Uncertainty = "off"
	if plain := register(t, e, p, opt); plain.Uncertainty != nil || plain.Metrics.Uncertainty != nil || !slices.Equal(plain.Field.Data, r.Field.Data) {
		t.Error("without the option there is an uncertainty, or another result")
	}
}

// The costs tell of any result: an affine alone is surer of itself where it is right.
func TestUncertaintyOfAnAffine(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(32, 4, false)
	mean := func(moving *volume.Volume) float64 {
		opt := with(func(o *Options) { o.Initial, o.Search, o.Refine, o.Uncertainty = "none", "off", 0, "on" })
		return register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving}, opt).Metrics.Uncertainty.MeanMM
	}
	if right, wrong := mean(fixed), mean(moving); !(right > 0 && right < wrong) {
		t.Errorf("uncertainty %g mm of the truth, %g mm of a wrong result", right, wrong)
	}
}
