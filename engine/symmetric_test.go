package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testpair"
	"github.com/morphseek/morphseek/engine/volume"
)

// roundTrip returns how far points of the fixed image's middle lie, in its voxels, from where they were once both maps were applied: the mean and
// the 95th percentile.
func roundTrip(t *testing.T, forth, back *Result, margin int) (mean, p95 float64) {
	t.Helper()
	g := forth.Field.Geometry
	var apart []float32
	points := make([]float64, 3)
	for z := margin; z < g.Size[2]-margin; z++ {
		for y := margin; y < g.Size[1]-margin; y++ {
			for x := margin; x < g.Size[0]-margin; x++ {
				p := g.IndexToPhysical().Apply([3]float64{float64(x), float64(y), float64(z)})
				copy(points, p[:])
				for _, r := range []*Result{forth, back} {
					if err := r.TransformPoints(points); err != nil {
						t.Fatal(err)
					}
				}
				q := g.PhysicalToIndex().Apply([3]float64(points))
				d := math.Sqrt((q[0]-float64(x))*(q[0]-float64(x)) + (q[1]-float64(y))*(q[1]-float64(y)) + (q[2]-float64(z))*(q[2]-float64(z)))
				apart, mean = append(apart, float32(d)), mean+d
			}
		}
	}
	return mean / float64(len(apart)), volume.Percentiles(apart, 95)[0]
}

// Whichever image is called fixed, one map is the other's inverse; the points are no worse for it.
func TestSymmetric(t *testing.T) {
	long(t)
	fixed, moving, truth := testpair.Phantom(40, 3, false)
	turn := volume.Affine{M: [9]float64{0.98, -0.199, 0, 0.199, 0.98, 0, 0, 0, 1}, T: [3]float64{4, -3, 2}}
	turned := *moving
	turned.Direction, turned.Origin = turn.M, turn.Apply(moving.Origin)
	noisy := *moving
	noisy.Data = slices.Clone(moving.Data)
	noise := rand.New(rand.NewPCG(1, 2))
	for i := range noisy.Data {
		noisy.Data[i] += float32(noise.NormFloat64())
	}
	e := open(t, Config{})
	lo, hi := [3]int{8, 8, 8}, [3]int{32, 32, 32}
	for _, c := range []struct {
		name   string
		moving *volume.Volume
		change func(*Options)
	}{
		{"refinement", moving, func(o *Options) { o.Search = "off" }},
		{"noise in one of them, and a search", &noisy, func(o *Options) { o.Search = "on" }},
		{"two grids and an alignment", &turned, func(o *Options) { o.Initial = "affine" }},
		{"an alignment alone", &turned, func(o *Options) { o.Initial, o.Search, o.Refine = "affine", "off", 0 }},
	} {
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
			t.Errorf("%s: there and back miss by %.3f voxels, 95 %% by %.3f (before the middle %.3f and %.3f mm)", c.name, mean, p95, s.MeanMM, s.P95MM)
		}
		options.Symmetric = "off"
		one, other := register(t, e, Pair{Fixed: fixed, Moving: c.moving}, options), register(t, e, Pair{Fixed: c.moving, Moving: fixed}, options)
		meanOne, p95One := roundTrip(t, one, other, 5)
		t.Logf("%s: %.4f, 95 %% %.4f voxels; each by itself %.3f, %.3f; apart %.3f, %.3f mm", c.name, mean, p95, meanOne, p95One, s.MeanMM, s.P95MM)
		if c.moving == moving || c.moving == &noisy {
			a, b := testpair.MeanError(forth.Field, truth, lo, hi), testpair.MeanError(one.Field, truth, lo, hi)
			t.Logf("%s: error %.3f, of one way %.3f", c.name, a, b)
			if a > b+0.01 {
				t.Errorf("%s: mean error %.3f voxels, of one way %.3f", c.name, a, b)
			}
		}
		if one.Metrics.Symmetric != nil || s == nil || forth.Metrics.NJDPercent > 0 {
			t.Errorf("%s: metrics %+v, of one way %+v; folding %g %%", c.name, s, one.Metrics.Symmetric, forth.Metrics.NJDPercent)
		}
	}
}

// From a given transform, and with masks, the exchanged pair starts from its inverse.
func TestSymmetricFromATransform(t *testing.T) {
	fixed, moving, _ := testpair.Phantom(40, 3, false)
	shift := volume.IdentityAffine()
	shift.T = [3]float64{30, -20, 10}
	moving.Origin = shift.T
	mask := volume.Zeros(fixed.Geometry)
	for i := range mask.Data {
		mask.Data[i] = 1
	}
	back, _ := shift.Inverse()
	e := open(t, Config{})
	options := with(func(o *Options) { o.Refine, o.Symmetric = 20, "on" })
	a := register(t, e, Pair{Fixed: fixed, Moving: moving, Initial: &shift, FixedMask: mask}, options)
	b := register(t, e, Pair{Fixed: moving, Moving: fixed, Initial: &back, MovingMask: mask}, options)
	if mean, p95 := roundTrip(t, a, b, 5); mean > 0.05 || p95 > 0.05 {
		t.Errorf("there and back miss by %.3f voxels, 95 %% by %.3f", mean, p95)
	}
}

func TestSymmetricIsCancelledAndRefused(t *testing.T) {
	fixed, moving, _ := testpair.Phantom(32, 2, false)
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
	for _, change := range []func(*Options){withTiny, func(o *Options) { o.Along = "i" }} {
		_, err := e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Symmetric = "on"; change(o) }), nil)
		if fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "leave symmetric off") {
			t.Errorf("got %v", err)
		}
	}
}

// The middles of two affine maps, taken from either side, are each other's inverse; maps that lie half a turn apart have none.
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
	if _, err := middleAffine(rigid, volume.IdentityAffine()); fault.CodeOf(err) != fault.SingularTransform {
		t.Errorf("two opposite places have a middle: %v", err)
	}
}

// A shift and a turn have their halves half-way; a deformation's points are the middles of where they lie in both images; and from both sides it
// is one space.
func TestHalfway(t *testing.T) {
	fixed, moving, _ := testpair.Phantom(32, 3, false)
	sin, cos := math.Sincos(0.2)
	turn := volume.Affine{M: [9]float64{cos, -sin, 0, sin, cos, 0, 0, 0, 1}, T: [3]float64{20, -10, 4}}
	e := open(t, Config{})
	rigid := register(t, e, Pair{Fixed: fixed, Moving: moving, Initial: &turn}, with(nil))
	toFixed, toMoving, err := rigid.Halfway()
	if err != nil {
		t.Fatal(err)
	}
	root, _ := turn.Root()
	p := []float64{11, 17, 9}
	want := root.Apply([3]float64(p))
	for _, m := range []*Transform{toMoving} {
		if err := m.TransformPoints(p); err != nil {
			t.Fatal(err)
		}
	}
	if math.Hypot(p[0]-want[0], p[1]-want[1]) > 1e-4 || math.Abs(p[2]-want[2]) > 1e-4 {
		t.Errorf("half of a turn leads to %v, want %v", p, want)
	}
	if err := toFixed.TransformPoints(p); err != nil {
		t.Fatal(err)
	}
	if math.Abs(p[0]-11)+math.Abs(p[1]-17)+math.Abs(p[2]-9) > 1e-3 {
		t.Errorf("back in the fixed space it lies at %v", p)
	}

	options := with(func(o *Options) { o.Refine, o.Symmetric = 20, "on" })
	forth, back := register(t, e, Pair{Fixed: fixed, Moving: moving}, options), register(t, e, Pair{Fixed: moving, Moving: fixed}, options)
	f, m, err := forth.Halfway()
	if err != nil {
		t.Fatal(err)
	}
	m2, f2, err := back.Halfway()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		one, two *Transform
	}{{"fixed", f, f2}, {"moving", m, m2}} {
		for _, at := range [][3]float64{{15, 15, 15}, {9, 20, 12}, {22, 11, 18}} {
			p, q := at[:], []float64{at[0], at[1], at[2]}
			p = append([]float64{}, p...)
			if err := c.one.TransformPoints(p); err != nil {
				t.Fatal(err)
			}
			if err := c.two.TransformPoints(q); err != nil {
				t.Fatal(err)
			}
			if d := math.Hypot(math.Hypot(p[0]-q[0], p[1]-q[1]), p[2]-q[2]); d > 0.03 {
				t.Errorf("to the %s image from half-way: %v and, exchanged, %v", c.name, p, q)
			}
		}
	}
	x := []float64{14, 16, 15}
	y := append([]float64{}, x...)
	if err := forth.TransformPoints(y); err != nil {
		t.Fatal(err)
	}
	mid := []float64{(x[0] + y[0]) / 2, (x[1] + y[1]) / 2, (x[2] + y[2]) / 2}
	if err := f.TransformPoints(mid); err != nil {
		t.Fatal(err)
	}
	if d := math.Hypot(math.Hypot(mid[0]-x[0], mid[1]-x[1]), mid[2]-x[2]); d > 0.02 {
		t.Errorf("the middle of %v and %v comes from %v", x, y, mid)
	}
}
