package engine

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// halfOf is the middle half of a slice of n voxels a side.
func halfOf(n int) (lo, hi [3]int) { return [3]int{n / 4, n / 4, 0}, [3]int{n - n/4, n - n/4, 1} }

// A known motion within a slice is found, with one contrast and with two, and nothing leaves the plane.
func TestSliceMotionIsFound(t *testing.T) {
	t.Parallel()
	const n = 160
	for _, c := range []struct {
		name  string
		other bool
	}{{"one contrast", false}, {"two contrasts", true}} {
		t.Run(c.name, func(t *testing.T) {
			fixed, moving, truth := testkit.Slice(n, 6, c.other)
			r := register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving}, DefaultOptions())
			lo, hi := halfOf(n)
			before, after := testkit.MeanError(nil, truth, lo, hi), testkit.MeanError(r.Field, truth, lo, hi)
			if !(after < 0.45*before) { // the slice is flat over wide areas
				t.Errorf("the error falls from %.3f to %.3f voxels", before, after)
			}
			if i := slices.IndexFunc(r.Field.Z, func(z float32) bool { return z != 0 }); i >= 0 {
				t.Errorf("voxel %d leaves the plane by %g", i, r.Field.Z[i])
			}
			if r.Metrics.NJDPercent != 0 || r.Metrics.Verdict.Grade == Failed {
				t.Errorf("%g %% folded, %v", r.Metrics.NJDPercent, r.Metrics.Verdict)
			}
		})
	}
}

// stood returns v with its axes in another order and its place in space turned.
func stood(v *volume.Volume, perm [3]int, flip [3]bool, turn [9]float64) *volume.Volume {
	return testkit.Placed(testkit.Reordered(v, perm, flip), volume.Affine{M: turn, T: [3]float64{40, -7, 12}})
}

// Wherever two slices lie, and along whatever axes they are stored, points move alike.
func TestSlicesLieAnywhere(t *testing.T) {
	t.Parallel()
	const n = 96
	fixed, moving, _ := testkit.Slice(n, 4, false)
	points := []float64{30, 40, 0, 60, 33, 0, 48, 70, 0}
	e, opt := open(t, Config{}), with(func(o *Options) { o.Initial, o.Refine = "rigid", 20 })
	plain := register(t, e, Pair{Fixed: fixed, Moving: moving}, opt)
	want := slices.Clone(points)
	testkit.OK(t, plain.TransformPoints(want))
	sin, cos := math.Sincos(0.2)
	coronal := [9]float64{1, 0, 0, 0, 0, 1, 0, 1, 0}
	tilted := [9]float64{1, 0, 0, 0, cos, -sin, 0, sin, cos}
	for _, c := range []struct {
		name   string
		perm   [3]int
		flip   [3]bool
		turn   [9]float64
		within float64 // mm
	}{
		{"as it is", [3]int{0, 1, 2}, [3]bool{}, volume.Identity, 1e-3},
		{"thickness first", [3]int{2, 0, 1}, [3]bool{true, false, false}, volume.Identity, 1e-3},
		{"thickness between", [3]int{1, 2, 0}, [3]bool{false, false, true}, volume.Identity, 1e-3},
		{"coronal", [3]int{0, 1, 2}, [3]bool{false, true, false}, coronal, 1e-3},
		{"tilted", [3]int{0, 1, 2}, [3]bool{}, tilted, 1e-3},
	} {
		t.Run(c.name, func(t *testing.T) {
			place := volume.Affine{M: c.turn, T: [3]float64{40, -7, 12}}
			f, m := stood(fixed, c.perm, c.flip, c.turn), stood(moving, c.perm, c.flip, c.turn)
			r := register(t, e, Pair{Fixed: f, Moving: m}, opt)
			if r.Field.Geometry != f.Geometry || r.Warped.Geometry != f.Geometry || r.Moving != m.Geometry {
				t.Error("the result is not on the grids that were given")
			}
			got := make([]float64, 0, len(points))
			for k := 0; k < len(points); k += 3 {
				p := place.Apply([3]float64(points[k:]))
				got = append(got, p[:]...)
			}
			testkit.OK(t, r.TransformPoints(got))
			back := inverted(place)
			for k := 0; k < len(points); k += 3 {
				p := back.Apply([3]float64(got[k:]))
				for a := range 3 {
					if math.Abs(p[a]-want[k+a]) > c.within {
						t.Errorf("a point goes to %.4f, want %.4f", p, want[k:k+3])
						break
					}
				}
			}
			warped := r.Field.Warp(m, volume.Linear, 0, 1)
			for i, x := range r.Warped.Data {
				if math.Abs(float64(x-warped.Data[i])) > 1e-2 {
					t.Errorf("voxel %d of the warped image is %g, and by the field %g", i, x, warped.Data[i])
					break
				}
			}
		})
	}
}

// A slice is turned by any angle within its plane.
func TestSliceTurns(t *testing.T) {
	t.Parallel()
	const n = 96
	_, moving, _ := testkit.Slice(n, 0, false)
	for i := range moving.Data {
		if i%n > 60 && i/n > 40 { // a disc looks alike from every side
			moving.Data[i] = 0
		}
	}
	c := moving.Center()
	turn := volume.Affine{M: testkit.Turn(2.2)}
	at := turn.Apply(c)
	turn.T = [3]float64{c[0] - at[0] + 3, c[1] - at[1] - 5, 0}
	fixed := moving.Resample(moving.Geometry, turn, volume.Linear, 0, 1)
	r := register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Initial = "rigid" }))
	if apart := r.Initial.After(inverted(turn)); apart.Turn() > 2 || math.Hypot(apart.Apply(c)[0]-c[0], apart.Apply(c)[1]-c[1]) > 1 {
		t.Errorf("found %v, want %v", r.Initial, turn)
	}
}

// Masks, landmarks, a start that bends, rigid regions, channels and every option of the shape work within the plane.
func TestSliceTakesWhatVolumesTake(t *testing.T) {
	t.Parallel()
	const n = 96
	fixed, moving, truth := testkit.Slice(n, 4, false)
	mask, regions := volume.Zeros(fixed.Geometry), volume.Zeros(fixed.Geometry)
	for i := range mask.Data {
		mask.Data[i] = 1
		if x, y := i%n-n/2, i/n-n/2; x*x+y*y < 100 {
			regions.Data[i] = 1
		}
	}
	marks := []Landmark{}
	for _, i := range []int{30 + 30*n, 60 + 40*n, 40 + 65*n} {
		p := [3]float64{float64(i % n), float64(i / n), 0}
		marks = append(marks, Landmark{Fixed: p, Moving: [3]float64{p[0] + float64(truth.X[i]), p[1] + float64(truth.Y[i]), 0}})
	}
	beside := &volume.Volume{Geometry: fixed.Geometry, Data: fixed.Data}
	beside.Origin[2] += 0.1
	lo, hi := halfOf(n)
	before := testkit.MeanError(nil, truth, lo, hi)
	for _, c := range []struct {
		name   string
		pair   Pair
		change func(*Options)
	}{
		{"mask", Pair{FixedMask: mask}, nil},
		{"rigid regions", Pair{Rigid: regions}, nil},
		{"landmarks", Pair{Landmarks: marks}, func(o *Options) { o.LandmarkError = 1 }},
		{"a start", Pair{InitialField: truth}, nil},
		{"a channel", Pair{Channels: []Channel{{Fixed: fixed, Moving: moving}}}, nil},
		{"a channel beside the plane", Pair{Channels: []Channel{{Fixed: beside, Moving: moving}}}, nil},
		{"symmetric", Pair{}, func(o *Options) { o.Symmetric = "on" }},
		{"uncertainty", Pair{}, func(o *Options) { o.Uncertainty = "on" }},
		{"search", Pair{}, func(o *Options) { o.Search = "on" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.pair.Fixed, c.pair.Moving = fixed, moving
			o := DefaultOptions()
			if o.Threads = 2; c.change != nil {
				c.change(&o)
			}
			r := register(t, open(t, Config{}), c.pair, o)
			if after := testkit.MeanError(r.Field, truth, lo, hi); !(after < 0.75*before) {
				t.Errorf("the error goes from %.3f to %.3f voxels", before, after)
			}
			if _, residual, err := r.Inverse(); err != nil || residual > 0.05 {
				t.Errorf("the inverse misses by %g mm, %v", residual, err)
			}
		})
	}
}

func TestSlicesThatAreRefused(t *testing.T) {
	fixed, moving, _ := testkit.Slice(32, 1, false)
	whole, _, _ := testkit.Phantom(16, 0, false)
	turned := stood(moving, [3]int{0, 1, 2}, [3]bool{}, [9]float64{1, 0, 0, 0, 0, -1, 0, 1, 0})
	across := &volume.Volume{Geometry: turned.CenteredAt(fixed.Center()), Data: turned.Data}
	out := volume.Affine{M: [9]float64{1, 0, 0, 0, 0, -1, 0, 1, 0}}
	onVolume := field.New(whole.Geometry)
	for _, c := range []struct {
		name string
		pair Pair
		o    Options
		code fault.Code
		says string
	}{
		{"into a volume", Pair{Fixed: fixed, Moving: whole}, with(nil), fault.ThinVolume, "cut the one that shows the same"},
		{"of a volume", Pair{Fixed: whole, Moving: moving}, with(nil), fault.ThinVolume, "moving image is one slice"},
		{"across", Pair{Fixed: fixed, Moving: turned}, with(nil), fault.GridMismatch, "90 degrees apart"},
		{"turned out", Pair{Fixed: fixed, Moving: moving, Initial: &out}, with(nil), fault.SingularTransform, "out of the plane"},
		{"a volume beside it", Pair{Fixed: fixed, Moving: moving, Channels: []Channel{{Name: "T2", Fixed: whole, Moving: moving}}}, with(nil), fault.ThinVolume, "T2"},
		{"a channel across", Pair{Fixed: fixed, Moving: moving, Channels: []Channel{{Name: "T2", Fixed: across, Moving: moving}}}, with(nil), fault.GridMismatch, "T2, fixed, lies in a plane that is 90 degrees"},
		{"a network", Pair{Fixed: fixed, Moving: moving}, with(withTiny), fault.InvalidArgument, "for volumes"},
		{"a volume's field", Pair{Fixed: fixed, Moving: moving, InitialField: onVolume}, with(nil), fault.GridMismatch, "field"},
		{"along the thickness", Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Along = "k" }), fault.InvalidArgument, "thickness"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.o.Model == tiny {
				c.o.Model = tiny
			}
			_, err := open(t, Config{}).Register(context.Background(), c.pair, c.o, nil)
			testkit.Fails(t, err, c.code, c.says)
		})
	}
}
