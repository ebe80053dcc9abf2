package referee

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// scaled returns factor times u.
func scaled(u *field.Field, factor float32) *field.Field {
	out := field.New(u.Geometry)
	for i, x := range u.Data {
		out.Data[i] = factor * x
	}
	return out
}

func shifted(mm float64) volume.Affine {
	return volume.Affine{M: volume.Identity, T: [3]float64{mm}}
}

// Candidates are ordered as the truth orders them, whatever the contrasts and the slices.
func TestOrdersAsTheTruth(t *testing.T) {
	t.Parallel()
	every3rd := func(v *volume.Volume) *volume.Volume {
		return v.Resample(v.Blocks([3]int{1, 1, 3}), volume.IdentityAffine(), volume.Linear, 0, 1)
	}
	for _, c := range []struct {
		name  string
		other bool
		thick bool
	}{{"one contrast", false, false}, {"two contrasts", true, false}, {"thick slices", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			fixed, moving, truth := testkit.Phantom(48, 4, c.other)
			if c.thick {
				fixed, moving = every3rd(fixed), every3rd(moving)
			}
			r := New(aligned.Pair{Fixed: fixed, Moving: moving}, 0)
			identity := volume.IdentityAffine()
			states := []State{r.Look(identity, truth), r.Look(identity, scaled(truth, 0.5)), r.Look(identity, nil), r.Look(shifted(-5), nil)}
			for i := range states[:3] {
				m := r.Compare(states[i+1], states[i])
				if m.Distance <= 0 || m.Correlation <= 0 || m.T <= 0 {
					t.Errorf("state %d is no better than the one after it: %+v", i, m)
				}
				back := r.Compare(states[i], states[i+1])
				if d := m.Distance + back.Distance; d > 1e-9 || d < -1e-9 {
					t.Errorf("%g the one way and %g the other", m.Distance, back.Distance)
				}
			}
		})
	}
}

// Noise that half a voxel's interpolation would smooth away is no reason to move.
func TestBlurIsNoGain(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(40, 0, false)
	rng := rand.New(rand.NewPCG(1, 2))
	testkit.AddNoise(30, rng, fixed)
	testkit.AddNoise(30, rng, moving)
	r := New(aligned.Pair{Fixed: fixed, Moving: moving}, 0)
	m := r.Compare(r.Look(volume.IdentityAffine(), nil), r.Look(shifted(0.5), nil))
	if m.Distance+2*m.Correlation > 0.02 {
		t.Errorf("half a voxel away the images seem to be closer: %+v", m)
	}
}

// A border of one value is in no body: its edge must not hold images together that belong elsewhere.
func TestConstantBorderIsUnknown(t *testing.T) {
	t.Parallel()
	const n = 48
	fixed, moving, _ := testkit.Phantom(n, 0, false)
	sector := func(v *volume.Volume) { // what a probe sees
		for i := range v.Data {
			x, y := i%n-n/2, i/n%n
			if 2*x > y || -2*x > y {
				v.Data[i] = 0
			}
			v.Data[i] += 1
		}
	}
	apart := moving.Resample(moving.Geometry, shifted(-4), volume.Linear, 0, 1)
	sector(fixed)
	sector(apart)
	r := New(aligned.Pair{Fixed: fixed, Moving: apart}, 0)
	if m := r.Compare(r.Look(volume.IdentityAffine(), nil), r.Look(shifted(4), nil)); m.Distance <= 0 || m.Common > 0.9 {
		t.Errorf("the sector's edge holds the images where they are: %+v", m)
	}
}

func TestSameBitsForAnyThreads(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 3, true)
	look := func(threads int) (State, Margin) {
		r := New(aligned.Pair{Fixed: fixed, Moving: moving}, threads)
		a, b := r.Look(volume.IdentityAffine(), nil), r.Look(volume.IdentityAffine(), truth)
		return b, r.Compare(a, b)
	}
	s1, m1 := look(1)
	s3, m3 := look(3)
	if m1 != m3 || !slices.Equal(s1.distance, s3.distance) || !slices.Equal(s1.correlation, s3.correlation) {
		t.Errorf("%+v by one thread, %+v by three", m1, m3)
	}
}

// Apart, two images have nothing to be compared by.
func TestNothingInCommon(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(24, 0, false)
	r := New(aligned.Pair{Fixed: fixed, Moving: moving}, 0)
	if m := r.Compare(r.Look(volume.IdentityAffine(), nil), r.Look(shifted(500), nil)); m.Common != 0 || m.Distance != 0 {
		t.Errorf("%+v", m)
	}
}

// The grid is thinned to voxels as nearly cubes as they can be, about the fixed image's centre.
func TestThinned(t *testing.T) {
	g := volume.Geometry{Size: [3]int{256, 256, 20}, Spacing: [3]float64{1, 1, 8}, Direction: volume.Identity}
	got := thinned(g, most[3])
	if got.Voxels() > most[3] || got.Size[2] != 20 || got.Spacing[0] > 2*got.Spacing[1] || got.Spacing[1] > 2*got.Spacing[0] {
		t.Errorf("%v voxels of %v mm", got.Size, got.Spacing)
	}
	small := testkit.Grid([3]int{30, 30, 30})
	if thinned(small, most[3]) != small {
		t.Errorf("a small grid became %+v", thinned(small, most[3]))
	}
}

// A stack of few planes that are close together keeps voxels of its own: images show themselves.
func TestFewPlanesStay(t *testing.T) {
	for _, c := range []struct {
		size    [3]int
		spacing [3]float64
	}{{[3]int{2048, 2048, 2}, [3]float64{1, 1, 1}}, {[3]int{640, 640, 2}, [3]float64{1, 1, 0.25}}, {[3]int{3100, 3100, 3}, [3]float64{1, 1, 1}}} {
		g := volume.Geometry{Size: c.size, Spacing: c.spacing, Direction: volume.Identity}
		got := thinned(g, most[3])
		if at := g.PhysicalToIndex().Apply(got.Origin); got.Voxels() > most[3] || at[2] > float64(c.size[2]-1) {
			t.Errorf("%v: %v voxels from %v", c.size, got.Size, at)
		}
	}
}

// Channels vote where the first image tells nothing.
func TestChannelsVoteAlone(t *testing.T) {
	fixed, moving, truth := testkit.Phantom(32, 4, false)
	flat := volume.Zeros(fixed.Geometry)
	r := New(aligned.Pair{Fixed: flat, Moving: flat, Channels: []aligned.Channel{{Pair: aligned.Pair{Fixed: fixed, Moving: moving}, Weight: 2}}}, 1)
	alone := New(aligned.Pair{Fixed: fixed, Moving: moving}, 1)
	look := func(r *Referee) Margin {
		return r.Compare(r.Look(volume.IdentityAffine(), nil), r.Look(volume.IdentityAffine(), truth))
	}
	got, want := look(r), look(alone)
	if !(got.Distance > 0) || math.Abs(got.Distance-want.Distance) > 1e-9 || math.Abs(got.Correlation-want.Correlation) > 1e-9 {
		t.Errorf("%+v, want the channel's %+v", got, want)
	}
}

// Evidence: large where the images fit sharply, none where they have nothing to do with each other.
func TestEvidence(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(48, 4, true)
	rng := rand.New(rand.NewPCG(3, 4))
	noise := testkit.Drawn(moving.Geometry, rng.NormFloat64)
	identity := volume.IdentityAffine()
	right, reach := New(aligned.Pair{Fixed: fixed, Moving: moving}, 0).Evidence(identity, truth)
	near, _ := New(aligned.Pair{Fixed: fixed, Moving: moving}, 0).Evidence(identity, nil)
	none, _ := New(aligned.Pair{Fixed: fixed, Moving: noise}, 0).Evidence(identity, nil)
	if reach < 3 || reach > 48 {
		t.Errorf("moved by %g mm", reach)
	}
	if !(right > near && near > 0.05) || none > 0.05 || none < -0.05 {
		t.Errorf("evidence of the truth %.3f, near it %.3f, of noise %.3f", right, near, none)
	}
}

// A pair is closer as it is than mirrored; with one image mirrored it is the other way round, along that axis, and the
// reflection undoes it.
func TestReflection(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprintf("another contrast %v", other), func(t *testing.T) {
			fixed, moving, _ := testkit.Phantom(48, 4, other)
			identity := volume.IdentityAffine()
			if gain, axis, _ := New(aligned.Pair{Fixed: fixed, Moving: moving}, 0).Reflection(identity); gain > -0.05 {
				t.Errorf("two contrasts %v: %+.3f along axis %d for a pair that is right", other, gain, axis)
			}
			for axis := range 3 {
				mirrored := moving.Reversed(axis)
				mirrored.Origin[axis] += 8
				gain, found, at := New(aligned.Pair{Fixed: fixed, Moving: mirrored}, 0).Reflection(identity)
				if gain < 0.05 || found != axis {
					t.Errorf("two contrasts %v: %+.3f along axis %d for an image mirrored along axis %d", other, gain, found, axis)
				}
				// Reversed about the middle of the grid and moved by 8 mm, the images lie on each other.
				middle := fixed.IndexToPhysical().Apply([3]float64{23.5, 23.5, 23.5})
				want := middle
				want[axis] += 8
				got := at.Apply(middle)
				for a := range 3 {
					if d := got[a] - want[a]; d > 6 || d < -6 {
						t.Errorf("two contrasts %v, axis %d: the middle %v comes to lie at %v, want %v", other, axis, middle, got, want)
					}
				}
			}
		})
	}
}

// What shows nothing is no mirror image of anything.
func TestReflectionOfNothing(t *testing.T) {
	g := testkit.Grid([3]int{20, 18, 16})
	flat := volume.Zeros(g)
	if gain, _, _ := New(aligned.Pair{Fixed: flat, Moving: flat}, 0).Reflection(volume.IdentityAffine()); gain > -1 {
		t.Errorf("a gain of %g", gain)
	}
}

// What a small field of view can cover of the fixed image, however the map into its space scales.
func TestCovered(t *testing.T) {
	fixed, moving, _ := testkit.Phantom(40, 0, false)
	for i := range fixed.Data { // no border of one dark value, which shows nothing
		at := fixed.Index(i)
		texture := float32(20 * (at[0] % 2))
		fixed.Data[i] += texture
		moving.Data[i] += texture
	}
	box := volume.Geometry{Size: [3]int{20, 20, 20}, Spacing: [3]float64{1, 1, 1}, Origin: [3]float64{10, 10, 10}, Direction: volume.Identity}
	double := volume.Affine{M: [9]float64{0: 2, 4: 2, 8: 2}}
	for _, c := range []struct {
		name   string
		moving *volume.Volume
		by     volume.Affine
		want   float64
	}{
		{"the same field of view", moving, volume.IdentityAffine(), 1},
		{"half along each axis", moving.Resample(box, volume.IdentityAffine(), volume.Linear, 0, 1), volume.IdentityAffine(), 0.125},
		{"a moving space of twice the length", moving, double, 0.125},
	} {
		r := New(aligned.Pair{Fixed: fixed, Moving: c.moving}, 1)
		if got := r.Covered(c.by); math.Abs(got-c.want) > 0.02 {
			t.Errorf("%s: %.3f, want %.3f", c.name, got, c.want)
		}
	}
}

// A section's moves are as long whether it is thinned to its grid or was averaged to it before.
func TestVoxelOfASection(t *testing.T) {
	for _, c := range []struct {
		name string
		size [3]int
		want float64
	}{
		{"a section, thinned", [3]int{1600, 1600, 1}, 6.5},
		{"a section", [3]int{200, 200, 1}, 1},
		{"a volume, thinned", [3]int{120, 120, 120}, 2},
	} {
		g := testkit.Grid(c.size)
		if got := voxel(thinned(g, most[g.Axes()])); math.Abs(got-c.want) > 0.1 {
			t.Errorf("%s: %g mm, want about %g", c.name, got, c.want)
		}
	}
}
