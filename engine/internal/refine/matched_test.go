package refine

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// A curve that rises and falls is found again under a motion that was found in part, and lets intensities find what
// descriptors leave.
func TestMatched(t *testing.T) {
	t.Parallel()
	const n = 48
	lo, hi := [3]int{8, 8, 8}, [3]int{40, 40, 40}
	by := Regularisation{Fluid: 3, Elastic: 0.7, Fading: 1}
	fixed, moving, truth := testkit.Phantom(n, 2.5, true)
	begun := func(moving *volume.Volume, threads int) (*Refinement, Agreement) {
		r := New(pairOf(fixed, moving), nil, Options{Similarity: MIND, Iterations: 30, Voxels: 1 << 20, Threads: threads})
		a := testkit.Must(r.Coarse(context.Background(), by, true))(t)
		return r, a
	}
	r, descriptors := begun(moving, 1)
	_, back := r.curves()
	from, to := scaled(moving), scaled(fixed)
	for x := 50.0; x < 95; x++ { // few voxels have more
		want := to(80 + 60*math.Cos(x/25)) // testkit's map
		if got := float64(back.at(float32(from(x)))); math.Abs(got-want) > 0.15 {
			t.Errorf("the curve leads from %g to %.2f, want %.2f", x, got, want)
		}
	}
	matched, m, err := r.Matched(context.Background(), by)
	testkit.OK(t, err)
	if m.Correlation < 0.8 || m.Apart > 0.05 || m.Before.Gain > 0.65*descriptors.Gain {
		t.Errorf("a curve maps one contrast to the other: %+v, and descriptors had %+v", m, descriptors)
	}
	errors := [2]float64{}
	for k, r := range []*Refinement{r, matched} {
		u, levels, err := r.Fine(context.Background(), by)
		if err != nil || len(levels) < 2 {
			t.Fatal(levels, err)
		}
		errors[k] = testkit.MeanError(u, truth, lo, hi)
	}
	t.Logf("mean error %.2f voxels by descriptors, %.2f by intensities", errors[0], errors[1])
	if errors[1] > 0.9*errors[0] {
		t.Errorf("descriptors end %.2f voxels off, intensities %.2f", errors[0], errors[1])
	}
	again, _ := begun(moving, 3)
	if _, other, err := again.Matched(context.Background(), by); err != nil || other != m {
		t.Errorf("%+v by one thread, %+v by three, %v", m, other, err)
	}
	unlike, _ := begun(testkit.Drawn(moving.Geometry, rand.New(rand.NewPCG(1, 2)).Float32), 1)
	if _, m, err := unlike.Matched(context.Background(), by); err != nil || m.Correlation > 0.4 {
		t.Errorf("no curve leads to noise: %+v, %v", m, err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := r.Matched(cancelled, by); err == nil {
		t.Error("a cancelled match came to an end")
	}
}

// scaled returns how the refinement scales a volume's intensities.
func scaled(v *volume.Volume) func(x float64) float64 {
	lo, hi := v.Range()
	return func(x float64) float64 { return (x - float64(lo)) / float64(hi-lo) }
}
