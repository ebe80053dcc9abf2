package engine

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// Frames of one scan match by their headers, whatever small transform is given. Images that match because of the
// transform are any other pair.
func TestGivenTransformMakesNoFrames(t *testing.T) {
	t.Parallel()
	identity, shift := volume.IdentityAffine(), volume.Affine{M: volume.Identity, T: [3]float64{0.3, -0.2, 0}}
	fixed, moving, _ := testkit.Moved(48, func(x, y, z float64) [3]float64 { // two parts that moved apart
		bump := func(cx float64) float64 { return 4 * math.Exp(-((x-cx)*(x-cx)+(y-24)*(y-24)+(z-24)*(z-24))/70) }
		return [3]float64{0, bump(14) - bump(34), 0}
	})
	turn := volume.Affine{M: [9]float64{0.96, -0.28, 0, 0.28, 0.96, 0, 0, 0, 1}, T: [3]float64{4, -3, 2}}
	turned := testkit.Placed(moving, turn)
	e := open(t, Config{})
	options := with(func(o *Options) { o.Initial, o.Search, o.Refine, o.Similarity = "affine", "auto", -1, "ncc" })
	for _, c := range []struct {
		name   string
		pair   Pair
		frames bool
	}{
		{"by their headers", Pair{Fixed: fixed, Moving: moving}, true},
		{"by the transform given", Pair{Fixed: fixed, Moving: turned, Initial: &turn}, false},
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

// A smoothness in mm is that many mm, whatever the shape of the voxels, up to a quarter of the shortest side of what the
// image shows, which the plan says.
func TestSmoothnessInMMOfThickSlices(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(48, 2, false)
	thick := volume.Geometry{Size: [3]int{48, 48, 8}, Spacing: [3]float64{1, 1, 6}, Direction: volume.Identity}
	sliced := func(v *volume.Volume) *volume.Volume {
		return v.Resample(thick, volume.IdentityAffine(), volume.Linear, 0, 1)
	}
	e := open(t, Config{})
	for _, c := range []struct {
		name string
		pair Pair
	}{
		{"cubes", Pair{Fixed: fixed, Moving: moving}},
		{"thick slices", Pair{Fixed: sliced(fixed), Moving: sliced(moving)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, mm := range []float64{2, 6, 10, 40} {
				r := register(t, e, c.pair, with(func(o *Options) { o.Refine, o.Similarity, o.Smoothness = 1, "ncc", fmt.Sprint(mm) }))
				got, want := r.Metrics.Plan.SmoothnessMM, min(mm, 10.6)
				if math.Abs(got-want) > 0.1*want {
					t.Errorf("%g mm became %.2f mm", mm, got)
				}
				if told := strings.Contains(strings.Join(r.Metrics.Plan.Reasons, " "), "smoothness 40"); told != (mm == 40) {
					t.Errorf("%s, %g mm: %q", c.name, mm, r.Metrics.Plan.Reasons)
				}
			}
		})
	}
}
