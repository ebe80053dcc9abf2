package engine

import (
	"context"
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// alongY moves points along y alone, by up to so many mm.
func alongY(n int, mm float64) func(x, y, z float64) [3]float64 {
	unit := math.Pi / float64(n-1)
	return func(x, y, z float64) [3]float64 {
		return [3]float64{0, mm * math.Sin(unit*x) * math.Sin(unit*y) * math.Cos(unit*z), 0}
	}
}

// moves is the largest component of a field along each axis.
func moves(r *Result) (most [3]float32) {
	for a, plane := range [3][]float32{r.Field.X, r.Field.Y, r.Field.Z} {
		for _, u := range plane {
			most[a] = max(most[a], u, -u)
		}
	}
	return most
}

// Whatever order and direction the axes of the file have, nothing moves along a locked one, to the last bit, by the
// search, the refinement and both; and what moved along the free one is found.
func TestAlong(t *testing.T) {
	long(t)
	t.Parallel()
	fixed, moving, truth := testkit.Moved(36, alongY(36, 5))
	lo, hi := [3]int{8, 8, 8}, [3]int{28, 28, 28}
	before := testkit.MeanError(nil, truth, lo, hi)
	oblique := [9]float64{0.8, -0.6, 0, 0.6, 0.8, 0, 0, 0, 1}
	for _, c := range []struct {
		name   string
		perm   [3]int
		flip   [3]bool
		turned bool
		along  string
		axis   int // of the file, that is free
		change func(*Options)
	}{
		{"search and refinement", [3]int{0, 1, 2}, [3]bool{}, false, "j", 1, func(o *Options) { o.Search = "on" }},
		{"the file's third axis, reversed", [3]int{2, 0, 1}, [3]bool{false, true, true}, false, "k", 2, nil},
		{"first axis, oblique", [3]int{1, 0, 2}, [3]bool{}, true, "i", 0, func(o *Options) { o.Search = "on" }},
		{"descriptors", [3]int{0, 1, 2}, [3]bool{}, false, "j", 1, func(o *Options) { o.Similarity = "mind" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, m := testkit.Reordered(fixed, c.perm, c.flip), testkit.Reordered(moving, c.perm, c.flip)
			if c.turned {
				turn := volume.Affine{M: oblique}
				f, m = testkit.Placed(f, turn), testkit.Placed(m, turn)
			}
			r := register(t, open(t, Config{}), Pair{Fixed: f, Moving: m}, with(func(o *Options) {
				o.Refine, o.Search, o.Preset, o.Along, o.Similarity = -1, "auto", "fast", c.along, "ncc"
				if c.change != nil {
					c.change(o)
				}
			}))
			for a, most := range moves(r) {
				if a != c.axis && most != 0 {
					t.Errorf("%g voxels along a locked axis", most)
				}
				if a == c.axis && most < 3 {
					t.Errorf("%g voxels at most along the free axis", most)
				}
			}
			if !c.turned { // testkit measures in the phantom's own space
				if after := testkit.MeanError(r.Field, truth, lo, hi); after > 0.25*before {
					t.Errorf("mean error %.2f of %.2f mm left", after, before)
				}
			}
		})
	}
}

// In plane: two axes are free.
func TestAlongTwoAxes(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(40, 4, false)
	r := register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Refine, o.Search, o.Along = 30, "on", "ij" }))
	if most := moves(r); most[2] != 0 || most[0] < 1 || most[1] < 1 {
		t.Errorf("the largest components are %v; want none along z", most)
	}
}

// Where nothing can lie beside an axis, the uncertainty is that along it.
func TestUncertaintyAlong(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Moved(40, alongY(40, 3))
	of := func(along string) float64 {
		r := register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Refine, o.Along, o.Uncertainty = 30, along, "on" }))
		return r.Metrics.Uncertainty.MeanMM
	}
	if one, all := of("j"), of("all"); !(one > 0 && one < 0.9*all) {
		t.Errorf("uncertainty %g mm along one axis, %g along all", one, all)
	}
}

// Behind an initial transform the deformation keeps to the axes, to rounding; the initial transform does not.
func TestAlongBehindAnInitialTransform(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Moved(40, alongY(40, 4))
	shift := volume.Affine{M: volume.Identity, T: [3]float64{3, 0, -2}}
	moving.Origin = shift.T
	r := register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving, Initial: &shift}, with(func(o *Options) { o.Refine, o.Along = 30, "j" }))
	behind := testkit.Must(r.Field.BehindMM(r.Initial, 1))(t)
	var most [3]float64
	for i, d := range behind {
		most[i%3] = max(most[i%3], math.Abs(float64(d)))
	}
	if most[0] > 1e-5 || most[2] > 1e-5 || most[1] < 2 {
		t.Errorf("the deformation moves %v mm; want y alone", most)
	}
}

func TestAlongIsRefused(t *testing.T) {
	fixed, moving, _ := testkit.Phantom(24, 1, false)
	e := open(t, Config{})
	for _, c := range []struct {
		say    string
		change func(*Options)
	}{
		{`along is "x"; it must be one of all, i, j, k, ij, ik, jk`, func(o *Options) { o.Along = "x" }},
		{`along is "ji"`, func(o *Options) { o.Along = "ji" }},
		{"a network's displacement keeps to no axis", func(o *Options) { o.Model, o.Along = tiny, "j" }},
	} {
		_, err := e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving}, with(c.change), nil)
		testkit.Fails(t, err, fault.InvalidArgument, c.say)
	}
}

// ball is 1 within a ball.
func ball(x, y, z float64, at [3]float64, radius float64) float64 {
	d := volume.Distance([3]float64{x, y, z}, at)
	t := min(max((radius+10-d)/10, 0), 1) // to none within 10 mm
	return t * t * (3 - 2*t)
}

// withBodies is a pair in which two balls move each as one body, one turned and both shifted, and the rest deforms; and
// the balls' labels.
func withBodies(n int) (p Pair, truth func(x, y, z float64) [3]float64, motions map[float32]volume.Affine) {
	centres := [2][3]float64{{0.35 * float64(n), 0.45 * float64(n), 0.5 * float64(n)}, {0.68 * float64(n), 0.6 * float64(n), 0.45 * float64(n)}}
	const radius = 7
	turn := volume.Affine{M: testkit.Turn(0.12)}
	about := func(a volume.Affine, c, shift [3]float64) volume.Affine {
		at := a.Apply(c)
		for k := range 3 {
			a.T[k] = c[k] - at[k] + shift[k]
		}
		return a
	}
	motions = map[float32]volume.Affine{1: about(turn, centres[0], [3]float64{2, -1.5, 1}), 2: about(volume.IdentityAffine(), centres[1], [3]float64{-1, 2, -1.5})}
	rest := alongY(n, 2)
	truth = func(x, y, z float64) [3]float64 {
		u := rest(x, y, z)
		u[0], u[2] = 0.5*u[1], -0.4*u[1]
		for k, c := range centres {
			w, to := ball(x, y, z, c, radius), motions[float32(k+1)].Apply([3]float64{x, y, z})
			for a, from := range [3]float64{x, y, z} {
				u[a] += w * (to[a] - from - u[a])
			}
		}
		return u
	}
	p.Fixed, p.Moving, _ = testkit.Moved(n, truth)
	grain := func(x, y, z float64) float32 { // structure everywhere
		return float32(9 * (math.Sin(0.61*x+0.32*y) + math.Sin(0.57*y-0.41*z+1) + math.Sin(0.66*z+0.37*x+2)))
	}
	p.Rigid = volume.Zeros(p.Fixed.Geometry)
	for i := range p.Rigid.Data {
		x, y, z := float64(i%n), float64(i/n%n), float64(i/(n*n))
		u := truth(x, y, z)
		p.Fixed.Data[i] += grain(x+u[0], y+u[1], z+u[2])
		p.Moving.Data[i] += grain(x, y, z)
		for k, c := range centres {
			if ball(x, y, z, c, radius) == 1 {
				p.Rigid.Data[i] = float32(k + 1)
			}
		}
	}
	return p, truth, motions
}

// strain is the largest entry of J'J - I over the voxels of a label whose neighbours are of it, J being the Jacobian of
// the whole map in space, and how far the region's points are from where a motion takes them, mm: the mean.
func strainOf(r *Result, labels *volume.Volume, label float32, motion volume.Affine) (strain, apart float64) {
	g := r.Field.Geometry
	toMM := g.IndexToPhysical()
	count := 0.0
	leads := func(i int) [3]float64 { return toMM.Apply(r.Field.Target(i)) }
	stride := g.Strides()
	for i, v := range labels.Data {
		if v != label {
			continue
		}
		got := leads(i)
		apart += volume.Distance(motion.Apply(toMM.Apply(g.Point(i))), got)
		count++
		var columns [3][3]float64
		whole := true
		for a := range 3 {
			if whole = whole && labels.Data[i+stride[a]] == label; whole {
				columns[a] = volume.Sub(leads(i+stride[a]), got)
			}
		}
		for a := range 3 {
			for b := range 3 {
				dot := volume.Dot(columns[a], columns[b]) / (g.Spacing[a] * g.Spacing[b])
				if a == b {
					dot--
				}
				if whole {
					strain = max(strain, math.Abs(dot))
				}
			}
		}
	}
	return strain, apart / count
}

// errorOf is the mean distance, mm, of the field from the truth outside the bodies, in the middle of the image.
func errorOf(r *Result, truth func(x, y, z float64) [3]float64, labels *volume.Volume) float64 {
	n, sum, count := r.Field.Size[0], 0.0, 0.0
	for i, label := range labels.Data {
		x, y, z := i%n, i/n%n, i/(n*n)
		if label != 0 || min(x, y, z) < 10 || max(x, y, z) >= n-10 {
			continue
		}
		u := truth(float64(x), float64(y), float64(z))
		dx, dy, dz := float64(r.Field.X[i])-u[0], float64(r.Field.Y[i])-u[1], float64(r.Field.Z[i])-u[2]
		sum += math.Sqrt(dx*dx + dy*dy + dz*dz)
		count++
	}
	return sum / count
}

// Two bodies keep their shape to the last digit of a float32, by whatever stages, also behind an initial transform that
// scales; their motion is found, and the rest of the image matches about as well as without them.
func TestRigidRegions(t *testing.T) {
	long(t)
	t.Parallel()
	p, truth, motions := withBodies(56)
	free := p
	free.Rigid = nil
	e := open(t, Config{})
	scaled := volume.IdentityAffine()
	for k := range 3 {
		scaled.M[4*k], scaled.T[k] = 1.05, -0.05*27.5
	}
	for _, c := range []struct {
		name    string
		initial *volume.Affine
		change  func(*Options)
	}{
		{"refinement", nil, func(o *Options) { o.Search = "off" }},
		{"search and refinement", nil, func(o *Options) { o.Search = "on" }},
		{"search alone", nil, func(o *Options) { o.Search, o.Refine = "on", 0 }},
		{"behind a scale of 5 %", &scaled, func(o *Options) { o.Search = "off" }},
		{"a scale of 5 % alone", &scaled, func(o *Options) { o.Search, o.Refine = "off", 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			options := with(func(o *Options) { o.Refine, o.Similarity = -1, "ncc"; c.change(o) })
			p.Initial, free.Initial = c.initial, c.initial
			r, without := register(t, e, p, options), register(t, e, free, options)
			for label, motion := range motions {
				strain, apart := strainOf(r, p.Rigid, label, motion)
				bent, far := strainOf(without, p.Rigid, label, motion)
				t.Logf("%s, body %g: strain %.2g (without %.2g), %.3f mm from its motion (without %.3f)", c.name, label, strain, bent, apart, far)
				if strain > 3e-6 {
					t.Errorf("body %g is strained by %g", label, strain)
				}
				if options.Refine != 0 && apart > 0.15 {
					t.Errorf("body %g lies %.3f mm from where it moved", label, apart)
				}
			}
			a, b := errorOf(r, truth, p.Rigid), errorOf(without, truth, p.Rigid)
			t.Logf("the rest %.3f mm, without %.3f; Jacobian %.3f, without %.3f", a, b, r.Metrics.JacobianMin, without.Metrics.JacobianMin)
			if a > b+0.05 {
				t.Errorf("the rest of the image is off by %.3f mm, without the bodies by %.3f", a, b)
			}
			if r.Metrics.NJDPercent > 0 {
				t.Errorf("it folds in %g %%", r.Metrics.NJDPercent)
			}
		})
	}
}

func TestRigidRegionsAreRefused(t *testing.T) {
	fixed, moving, _ := testkit.Phantom(24, 1, false)
	e := open(t, Config{})
	labels := func(change func(v *volume.Volume)) *volume.Volume {
		v := volume.Zeros(fixed.Geometry)
		v.Data[5000] = 1
		change(v)
		return v
	}
	for _, c := range []struct {
		say    string
		code   fault.Code
		rigid  *volume.Volume
		change func(*Options)
	}{
		{"rigid regions are empty", fault.EmptyMask, labels(func(v *volume.Volume) { v.Data[5000] = 0 }), nil},
		{"the label map of rigid regions is not on the grid of the fixed volume", fault.GridMismatch, labels(func(v *volume.Volume) { v.Origin[0] = 3 }), nil},
		{"a voxel of 0.5; give a label map", fault.InvalidArgument, labels(func(v *volume.Volume) { v.Data[0] = 0.5 }), nil},
		{"a voxel of NaN", fault.InvalidArgument, labels(func(v *volume.Volume) { v.Data[0] = float32(math.NaN()) }), nil},
		{"more than 1000; is it a label map?", fault.InvalidArgument, labels(func(v *volume.Volume) {
			for i := range v.Data {
				v.Data[i] = float32(i)
			}
		}), nil},
		{"leave model at none", fault.InvalidArgument, labels(func(*volume.Volume) {}), withTiny},
		{"along at all", fault.InvalidArgument, labels(func(*volume.Volume) {}), func(o *Options) { o.Along = "j" }},
	} {
		_, err := e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving, Rigid: c.rigid}, with(c.change), nil)
		testkit.Fails(t, err, c.code, c.say)
	}
}

// The order of the file's axes, threads and the cache do not change what rigid regions give; other regions are another
// registration.
func TestRigidRegionsInAnotherOrder(t *testing.T) {
	t.Parallel()
	p, _, _ := withBodies(40)
	e := open(t, Config{})
	options := with(func(o *Options) { o.Refine, o.Similarity, o.Cache = 20, "ncc", t.TempDir() })
	r := register(t, e, p, options)
	perm, flip := [3]int{2, 0, 1}, [3]bool{true, false, true}
	other := Pair{Fixed: testkit.Reordered(p.Fixed, perm, flip), Moving: testkit.Reordered(p.Moving, perm, flip), Rigid: testkit.Reordered(p.Rigid, perm, flip)}
	options.Threads = 1
	s := register(t, e, other, options)
	if d := testkit.MeanError(r.Field, s.Field.Resample(r.Field.Geometry, 1), [3]int{}, [3]int{40, 40, 40}); d > 1e-3 {
		t.Errorf("another order of the axes changes the field by %g voxels", d)
	}
	if again := register(t, e, p, options); !again.Metrics.Cached {
		t.Error("the same regions are computed again")
	}
	p.Rigid.Data[0] = 3
	keptOnce(t, e, p, options)
}
