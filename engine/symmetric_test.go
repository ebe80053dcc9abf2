package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// roundTrip returns how far points of the fixed image's middle lie, in its voxels, from where they were once both maps
// were applied: the mean and the 95th percentile.
func roundTrip(t *testing.T, forth, back *Result, margin int) (mean, p95 float64) {
	t.Helper()
	g := forth.Field.Geometry
	var apart []float32
	points := make([]float64, 3)
	across := margin
	if g.Size[2] == 1 {
		across = 0
	}
	for z := across; z < g.Size[2]-across; z++ {
		for y := margin; y < g.Size[1]-margin; y++ {
			for x := margin; x < g.Size[0]-margin; x++ {
				at := [3]float64{float64(x), float64(y), float64(z)}
				p := g.IndexToPhysical().Apply(at)
				copy(points, p[:])
				testkit.OK(t, forth.TransformPoints(points))
				testkit.OK(t, back.TransformPoints(points))
				d := volume.Distance(g.PhysicalToIndex().Apply([3]float64(points)), at)
				apart, mean = append(apart, float32(d)), mean+d
			}
		}
	}
	return mean / float64(len(apart)), volume.Percentiles(apart, 95)[0]
}

// Whichever image is called fixed, one map is the other's inverse; the points are no worse for it.
func TestSymmetric(t *testing.T) {
	long(t)
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(32, 2.5, false)
	turn := volume.Affine{M: [9]float64{0.98, -0.199, 0, 0.199, 0.98, 0, 0, 0, 1}, T: [3]float64{4, -3, 2}}
	turned := testkit.Placed(moving, turn)
	noisy := &volume.Volume{Geometry: moving.Geometry, Data: slices.Clone(moving.Data)}
	testkit.AddNoise(1, rand.New(rand.NewPCG(1, 2)), noisy)
	e := open(t, Config{})
	lo, hi := [3]int{6, 6, 6}, [3]int{26, 26, 26}
	for _, c := range []struct {
		name   string
		moving *volume.Volume
		change func(*Options)
	}{
		{"refinement", moving, func(o *Options) { o.Search = "off" }},
		{"noise in one of them, and a search", noisy, func(o *Options) { o.Search = "on" }},
		{"two grids and an alignment", turned, func(o *Options) { o.Initial = "affine" }},
		{"an alignment alone", turned, func(o *Options) { o.Initial, o.Search, o.Refine = "affine", "off", 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			options := with(func(o *Options) {
				o.Refine, o.Search, o.Symmetric, o.Preset = -1, "auto", "on", "fast"
				if c.change != nil {
					c.change(o)
				}
			})
			forth := register(t, e, Pair{Fixed: fixed, Moving: c.moving}, options)
			back := register(t, e, Pair{Fixed: c.moving, Moving: fixed}, options)
			mean, p95 := roundTrip(t, forth, back, 5)
			s := forth.Metrics.Symmetric
			if mean > 0.05 || p95 > 0.05 || math.IsNaN(mean) {
				t.Errorf("there and back miss by %.3f voxels, 95 %% by %.3f (before the middle %.3f and %.3f mm)", mean, p95, s.MeanMM, s.P95MM)
			}
			if s == nil || forth.Metrics.NJDPercent > 0 {
				t.Errorf("metrics %+v; folding %g %%", s, forth.Metrics.NJDPercent)
			}
			if c.moving != turned {
				options.Symmetric = "off"
				one := register(t, e, Pair{Fixed: fixed, Moving: c.moving}, options)
				a, b := testkit.MeanError(forth.Field, truth, lo, hi), testkit.MeanError(one.Field, truth, lo, hi)
				if a > b+0.01 || one.Metrics.Symmetric != nil {
					t.Errorf("mean error %.3f voxels, of one way %.3f, with the metrics %+v", a, b, one.Metrics.Symmetric)
				}
			}
		})
	}
}

// The same holds for slices, whose planes are turned against each other or tilted.
func TestSymmetricSlices(t *testing.T) {
	t.Parallel()
	e, rng := open(t, Config{}), rand.New(rand.NewPCG(7, 8))
	options := with(func(o *Options) {
		o.Initial, o.Refine, o.Symmetric, o.Similarity, o.Smoothness = "rigid", 10, "on", "ncc", "low"
	})
	for _, c := range []struct {
		name  string
		pair  func(turned, plain *volume.Volume) (fixed, moving *volume.Volume)
		angle float64
		tilt  float64
		given bool
	}{
		{"turned", func(turned, plain *volume.Volume) (fixed, moving *volume.Volume) { return plain, turned }, 0.25, 0, false},
		{"turned the other way", func(turned, plain *volume.Volume) (fixed, moving *volume.Volume) { return turned, plain }, -0.2, 0, false},
		{"tilted, from a transform", func(turned, plain *volume.Volume) (fixed, moving *volume.Volume) { return plain, turned }, 0.1, 0.2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fixed, moving, _ := testkit.Slice(48, 3, false)
			testkit.AddNoise(3, rng, moving)
			turn := volume.Affine{M: testkit.Turn(c.angle), T: [3]float64{2, -3, 2}}
			sin, cos := math.Sincos(c.tilt)
			turn = volume.Affine{M: [9]float64{1, 0, 0, 0, cos, -sin, 0, sin, cos}}.After(turn)
			there, back := Pair{}, Pair{}
			there.Fixed, there.Moving = c.pair(testkit.Placed(moving, turn), fixed)
			back.Fixed, back.Moving = there.Moving, there.Fixed
			if c.given {
				inverse, _ := turn.Inverse()
				there.Initial, back.Initial = &turn, &inverse
			}
			forth, home := register(t, e, there, options), register(t, e, back, options)
			if mean, p95 := roundTrip(t, forth, home, 6); !(mean < 0.03 && p95 < 0.1) {
				t.Errorf("there and back miss by %.3f voxels, 95 %% by %.3f", mean, p95)
			}
		})
	}
}

// From a given transform, and with masks, the exchanged pair starts from its inverse.
func TestSymmetricFromATransform(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(32, 3, false)
	shift := volume.Affine{M: volume.Identity, T: [3]float64{30, -20, 10}}
	moving.Origin = shift.T
	mask := &volume.Volume{Geometry: fixed.Geometry, Data: slices.Repeat([]float32{1}, fixed.Voxels())}
	back, _ := shift.Inverse()
	e := open(t, Config{})
	options := with(func(o *Options) { o.Refine, o.Symmetric = 20, "on" })
	a := register(t, e, Pair{Fixed: fixed, Moving: moving, Initial: &shift, FixedMask: mask}, options)
	b := register(t, e, Pair{Fixed: moving, Moving: fixed, Initial: &back, MovingMask: mask}, options)
	if mean, p95 := roundTrip(t, a, b, 5); mean > 0.05 || p95 > 0.05 {
		t.Errorf("there and back miss by %.3f voxels, 95 %% by %.3f", mean, p95)
	}
}

// An affine displacement field is the transform that it describes, and both ways start from it.
func TestSymmetricFromAnAffineField(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(28, 2, false)
	shift := volume.Affine{M: volume.Identity, T: [3]float64{12, -3, 0}}
	moving.Origin = shift.T
	e := open(t, Config{})
	options := with(func(o *Options) { o.Refine, o.Symmetric = 20, "on" })
	want := register(t, e, Pair{Fixed: fixed, Moving: moving, Initial: &shift}, options)
	got := register(t, e, Pair{Fixed: fixed, Moving: moving, InitialField: field.FromAffine(fixed.Geometry, shift)}, options)
	testkit.Close(t, "where it leads as a field and as a matrix, voxels", got.Field.Data, want.Field.Data, 1e-3)
	if m := got.Metrics.Symmetric; math.Abs(m.MeanMM-want.Metrics.Symmetric.MeanMM) > 1e-3 {
		t.Errorf("the two ways are %.3f mm apart, from the matrix %.3f mm", m.MeanMM, want.Metrics.Symmetric.MeanMM)
	}
}

// spine is a row of like discs under noise, 12 mm apart, that lies shifted along z.
func spine(seed uint64, shift float64) *volume.Volume {
	const period, sharpness, noise = 12, 2, 10
	v := volume.Zeros(testkit.Grid([3]int{32, 32, 56}))
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range v.Data {
		at := v.Index(i)
		x, y, z := float64(at[0]-16), float64(at[1]-16), float64(at[2])-shift
		along := math.Abs(math.Mod(z+10*period, period) - period/2)
		value := 100 / (1 + math.Exp(sharpness*max(math.Hypot(x, 1.3*y)-9, along-period/3)))
		v.Data[i] = float32(value + float64(noise*rng.NormFloat64()))
	}
	return v
}

// Two ways that end at two discs have no middle: it would be a place that neither found. Whether the alignment or the
// deformation led them there, the result is one of both, and the verdict says so.
func TestSymmetricOfTwoPlaces(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	for _, c := range []struct {
		name   string
		pair   Pair
		change func(*Options)
	}{
		{"alignments", Pair{Fixed: spine(4, 0), Moving: spine(5, 6)}, func(o *Options) { o.Initial = "rigid" }},
		{"deformations", Pair{Fixed: spine(11, 0), Moving: spine(13, 6)}, func(o *Options) { o.Search, o.Refine, o.Similarity = "on", -1, "mind" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := register(t, e, c.pair, with(func(o *Options) { c.change(o); o.Symmetric = "on" }))
			m := r.Metrics
			if m.Symmetric == nil || m.Symmetric.MeanMM < 8 || m.Symmetric.MeanMM > 15 {
				t.Fatalf("the ways end %+v apart, and the discs are 12 mm apart: choose other noise for this test", m.Symmetric)
			}
			one := register(t, e, c.pair, with(c.change))
			testkit.Close(t, "the result and that of the forward way, voxels", r.Field.Data, one.Field.Data, 0.01)
			if !slices.Contains(m.Verdict.Reasons, noMiddle) || !slices.Contains(m.Warnings, noMiddle) || m.Verdict.Grade == Good {
				t.Errorf("warnings %q, verdict %+v", m.Warnings, m.Verdict)
			}
		})
	}
}

// The uncertainty of a symmetric result is that of its own transform, not of the forward way's alignment.
func TestSymmetricUncertainty(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(40, 3, false)
	testkit.AddNoise(20, rand.New(rand.NewPCG(2, 2)), fixed, moving)
	e := open(t, Config{})
	r := register(t, e, Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) {
		o.Initial, o.Symmetric, o.Uncertainty = "affine", "on", "on"
	}))
	bent := testkit.Must(r.Field.BehindMM(r.Initial, 1))(t)
	deform := field.FromMM(fixed.Geometry, bent, 1)
	same := register(t, e, Pair{Fixed: fixed, Moving: moving, Initial: &r.Initial, InitialField: deform},
		with(func(o *Options) { o.Uncertainty = "on" }))
	testkit.Close(t, "the uncertainty and that of the same transform given by itself, mm", r.Uncertainty.Data, same.Uncertainty.Data, 0.05)
	if got, want := r.Metrics.Align, same.Metrics.Align; math.Abs(got.Turn-r.Initial.Turn()) > 1e-6 || got.Overlap != want.Overlap {
		t.Errorf("align says %.3f degrees and an overlap of %g; its matrix turns by %.3f degrees, and the images overlap by %g",
			got.Turn, got.Overlap, r.Initial.Turn(), want.Overlap)
	}
}

func TestSymmetricIsCancelledAndRefused(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(32, 2, false)
	e := open(t, Config{})
	last := ""
	options := with(func(o *Options) { o.Refine, o.Symmetric = 20, "on" })
	_, err := e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving}, options, func(p Progress) bool {
		last = p.Stage
		return p.Stage != "reverse"
	})
	if fault.CodeOf(err) != fault.Cancelled || last != "reverse" {
		t.Errorf("cancelled in %q: %v", last, err)
	}
	for _, change := range map[string]func(*Options){"network": withTiny, "one axis": func(o *Options) { o.Along = "i" }} {
		_, err := e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Symmetric = "on"; change(o) }), nil)
		testkit.Fails(t, err, fault.InvalidArgument, "leave symmetric off")
	}
}

// The middles of two affine maps, taken from either side, are each other's inverse; maps that lie half a turn apart
// have none.
func TestMiddleAffine(t *testing.T) {
	turn := func(angle, shift float64) volume.Affine {
		sin, cos := math.Sincos(angle)
		return volume.Affine{M: [9]float64{1.1 * cos, -sin, 0, 1.1 * sin, cos, 0, 0, 0, 0.9}, T: [3]float64{shift, 5, -shift}}
	}
	forth := turn(2.8, 40)
	near, _ := turn(2.9, 42).Inverse()
	m, err := middleAffine(forth, near)
	w, err2 := middleAffine(near, forth)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	both := w.After(m)
	for i, x := range both.M {
		if math.Abs(x-volume.Identity[i]) > 1e-9 || math.Abs(both.T[i/3]) > 1e-6 {
			t.Fatalf("the middles are not each other's inverse: %v", both)
		}
	}
	if m.T[0] <= 40 || m.T[0] >= 42 {
		t.Errorf("the middle of shifts by 40 and 42 mm is %g", m.T[0])
	}
	rigid := volume.Affine{M: [9]float64{-1, 0, 0, 0, -1, 0, 0, 0, 1}}
	testkit.Refused(middleAffine(rigid, volume.IdentityAffine()))(t, fault.SingularTransform)
}

// A shift and a turn have their halves half-way; a deformation's points are the middles of where they lie in both
// images; and from both sides it is one space.
func TestHalfway(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(32, 3, false)
	turn := volume.Affine{M: testkit.Turn(0.2), T: [3]float64{20, -10, 4}}
	e := open(t, Config{})
	rigid := register(t, e, Pair{Fixed: fixed, Moving: moving, Initial: &turn}, with(nil))
	toFixed, toMoving, err := rigid.Halfway()
	testkit.OK(t, err)
	root, _ := turn.Root()
	p := []float64{11, 17, 9}
	want := root.Apply([3]float64(p))
	testkit.OK(t, toMoving.TransformPoints(p))
	if volume.Distance([3]float64(p), want) > 1e-4 {
		t.Errorf("half of a turn leads to %v, want %v", p, want)
	}
	testkit.OK(t, toFixed.TransformPoints(p))
	if math.Abs(p[0]-11)+math.Abs(p[1]-17)+math.Abs(p[2]-9) > 1e-3 {
		t.Errorf("back in the fixed space it lies at %v", p)
	}

	options := with(func(o *Options) { o.Refine, o.Symmetric = 20, "on" })
	forth, back := register(t, e, Pair{Fixed: fixed, Moving: moving}, options), register(t, e, Pair{Fixed: moving, Moving: fixed}, options)
	f, m, err := forth.Halfway()
	testkit.OK(t, err)
	m2, f2, err := back.Halfway()
	testkit.OK(t, err)
	for _, c := range []struct {
		name     string
		one, two *Transform
	}{{"fixed", f, f2}, {"moving", m, m2}} {
		t.Run(c.name, func(t *testing.T) {
			for _, at := range [][3]float64{{15, 15, 15}, {9, 20, 12}, {22, 11, 18}} {
				p, q := slices.Clone(at[:]), slices.Clone(at[:])
				testkit.OK(t, c.one.TransformPoints(p))
				testkit.OK(t, c.two.TransformPoints(q))
				if volume.Distance([3]float64(p), [3]float64(q)) > 0.03 {
					t.Errorf("to the %s image from half-way: %v and, exchanged, %v", c.name, p, q)
				}
			}
		})
	}
	x := []float64{14, 16, 15}
	y := slices.Clone(x)
	testkit.OK(t, forth.TransformPoints(y))
	mid := []float64{(x[0] + y[0]) / 2, (x[1] + y[1]) / 2, (x[2] + y[2]) / 2}
	testkit.OK(t, f.TransformPoints(mid))
	if volume.Distance([3]float64(mid), [3]float64(x)) > 0.02 {
		t.Errorf("the middle of %v and %v comes from %v", x, y, mid)
	}
}
