package engine

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// apart is the mean distance of two fields on one grid, voxels.
func apart(a, b *field.Field) float64 {
	return testkit.MeanError(a, b, [3]int{}, a.Size)
}

// from returns the pair with the whole map of a result as where it starts, as a front end hands it over.
func from(p Pair, r *Result) Pair {
	initial := r.Initial
	mm, err := r.Field.BehindMM(initial, 1)
	if err != nil {
		panic(err)
	}
	p.Initial, p.InitialField = &initial, field.FromMM(r.Field.Geometry, mm, 1)
	return p
}

func searched(o *Options) { o.Search, o.Similarity = "on", "ncc" }

func TestContinueInParts(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(40, 4, false)
	p, e := Pair{Fixed: fixed, Moving: moving}, open(t, Config{})
	whole := register(t, e, p, with(func(o *Options) { searched(o); o.Refine = -1 }))
	part := register(t, e, p, with(searched))
	if d := apart(part.Field, whole.Field); d < 0.1 {
		t.Fatalf("the refinement moves by %.3f voxels: nothing to test", d)
	}
	refined := with(func(o *Options) { o.Refine, o.Similarity, o.Search = -1, "ncc", "auto" })
	r := register(t, e, from(p, part), refined)
	if d := apart(r.Field, whole.Field); d > 0.05 {
		t.Errorf("in two parts %.3f voxels from one run", d)
	}
	if _, ran := r.Metrics.Seconds["search"]; ran || r.Metrics.Plan.Start != "deformation" || r.Metrics.Align.Method != "none" {
		t.Errorf("search %v, start %q, alignment %q", ran, r.Metrics.Plan.Start, r.Metrics.Align.Method)
	}
	if again := register(t, e, from(p, whole), refined); apart(again.Field, whole.Field) > 0.05 {
		t.Errorf("a finished result changes by %.3f voxels", apart(again.Field, whole.Field))
	}
}

// The affine part of a deformation is found in a volume and in a slice, which has no slope along its third axis.
func TestSplitOff(t *testing.T) {
	for _, size := range [][3]int{{20, 18, 16}, {20, 18, 1}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			turn := volume.Affine{M: [9]float64{0.96, -0.2, 0, 0.2, 0.97, 0, 0, 0, 1}, T: [3]float64{3, -2, 0}}
			f := field.New(testkit.Grid(size))
			for i := range f.X {
				f.SetTarget(i, turn.Apply(f.Point(i)))
			}
			found := splitOff(f)
			for k := range 9 {
				if math.Abs(found.M[k]-turn.M[k]) > 1e-6 {
					t.Errorf("%v: the affine part is %v", size, found)
					break
				}
			}
			for i := range f.X {
				if math.Hypot(float64(f.X[i]), float64(f.Y[i])) > 1e-5 || f.Z[i] != 0 {
					t.Fatalf("%v: (%g, %g, %g) is left at voxel %d", size, f.X[i], f.Y[i], f.Z[i], i)
				}
			}
		})
	}
}

// A deformation that was given is the result where no stage is to change it, on whichever grid it comes and with or
// without an affine map apart from it.
func TestDeformationAlone(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(32, 3, false)
	p, e := Pair{Fixed: fixed, Moving: moving}, open(t, Config{})
	turn := volume.Affine{M: [9]float64{0.98, -0.1, 0, 0.1, 0.97, 0.02, 0, 0, 1.03}, T: [3]float64{2, -1, 0.5}}
	want := field.Total(turn, truth, truth.Geometry, 1)
	wide := truth.Geometry
	wide.Size, wide.Origin = [3]int{40, 40, 40}, [3]float64{-4, -4, -4}
	for name, start := range map[string]Pair{
		"two parts":           {Initial: &turn, InitialField: truth},
		"the whole":           {InitialField: want},
		"on a larger grid":    {Initial: &turn, InitialField: truth.Resample(wide, 1)},
		"with its axes apart": {Initial: &turn, InitialField: reordered(truth)},
	} {
		t.Run(name, func(t *testing.T) {
			start.Fixed, start.Moving = p.Fixed, p.Moving
			r := register(t, e, start, with(nil))
			if d := apart(r.Field, want); d > 1e-3 {
				t.Errorf("%.4f voxels from what was given", d)
			}
			for i, x := range r.Initial.M {
				if math.Abs(x-turn.M[i]) > 0.05 { // the bump has an affine part of its own
					t.Errorf("affine part %v, made with %v", r.Initial.M, turn.M)
					break
				}
			}
		})
	}
	local := register(t, e, Pair{Fixed: fixed, Moving: moving, InitialField: truth}, with(nil))
	if local.Initial != volume.IdentityAffine() {
		t.Errorf("an affine part %+v was made of a displacement that is local", local.Initial)
	}
	straight := register(t, e, Pair{Fixed: fixed, Moving: moving, InitialField: field.FromAffine(fixed.Geometry, turn)}, with(nil))
	if m := straight.Metrics; m.Plan.Start != "none" {
		t.Errorf("an affine map given as a field is taken for %q", m.Plan.Start)
	}
}

// reordered is f with its first axis running the other way and its last two exchanged.
func reordered(f *field.Field) *field.Field {
	mm := f.MM(nil, 1)
	var planes [3]*volume.Volume
	for k := range planes {
		v := testkit.Filled(f.Geometry, func(i int) float32 { return mm[3*i+k] })
		planes[k] = testkit.Reordered(v, [3]int{0, 2, 1}, [3]bool{true, false, false})
	}
	for i := range planes[0].Data {
		for k, plane := range planes {
			mm[3*i+k] = plane.Data[i]
		}
	}
	return field.FromMM(planes[0].Geometry, mm, 1)
}

// Nothing that the stages find may be further from the images than what was given.
func TestGivenDeformationIsACandidate(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 4, false)
	e := open(t, Config{})
	exact := Pair{Fixed: fixed, Moving: moving, InitialField: truth}
	r := register(t, e, exact, with(func(o *Options) { searched(o); o.Refine = 5 }))
	if d := apart(r.Field, truth); d > 1e-3 {
		t.Errorf("the true deformation was left for one %.3f voxels away", d)
	}
	said := strings.Join(r.Metrics.Plan.Reasons, "\n")
	for _, what := range []string{"a search brought", "a refinement brought"} {
		if !strings.Contains(said, what) {
			t.Errorf("nothing says that %s nothing closer: %s", what, said)
		}
	}
	wrong := field.New(truth.Geometry)
	for i, x := range truth.Data {
		wrong.Data[i] = -0.5 * x
	}
	r = register(t, e, Pair{Fixed: fixed, Moving: moving, InitialField: wrong}, with(func(o *Options) { searched(o); o.Refine = -1 }))
	if before, after := apart(wrong, truth), apart(r.Field, truth); after > 0.5*before {
		t.Errorf("from a wrong start of %.2f voxels %.2f are left", before, after)
	}
}

func TestBadInitialField(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(24, 2, false)
	e := open(t, Config{})
	clone := func(change func(*field.Field)) *field.Field {
		f := field.Over(truth.Geometry, append([]float32(nil), truth.Data...))
		change(f)
		return f
	}
	singular := volume.Affine{M: [9]float64{1, 0, 0, 0, 1, 0}}
	for _, c := range []struct {
		name    string
		field   *field.Field
		initial *volume.Affine
		code    fault.Code
		says    string
	}{
		{"NaN", clone(func(f *field.Field) { f.Data[7] = float32(math.NaN()) }), nil, fault.SingularTransform, "NaN"},
		{"infinite", clone(func(f *field.Field) { f.Data[7] = float32(math.Inf(-1)) }), nil, fault.SingularTransform, "infinite"},
		{"beyond all", clone(func(f *field.Field) { f.Data[7] = 5e29 }), nil, fault.SingularTransform, "beyond 1e+09 mm"},
		{"elsewhere", clone(func(f *field.Field) { f.Origin[1] = 20 }), nil, fault.GridMismatch, "17 %"},
		{"far away", clone(func(f *field.Field) { f.Origin[1] = 1e4 }), nil, fault.GridMismatch, "another space"},
		{"short", clone(func(f *field.Field) { f.Data = f.Data[:5] }), nil, fault.GridMismatch, "5 numbers"},
		{"a slice", field.New(volume.Geometry{Size: [3]int{24, 24, 1}, Spacing: truth.Spacing, Direction: volume.Identity}), nil, fault.ThinVolume, "initial field"},
		{"spacing", clone(func(f *field.Field) { f.Spacing[0] = 0 }), nil, fault.InvalidSpacing, "initial field"},
		{"singular", truth, &singular, fault.SingularTransform, "singular"},
		{"beyond all, moved", truth, &volume.Affine{M: volume.Identity, T: [3]float64{1e155}}, fault.SingularTransform, "beyond 1e+09"},
	} {
		_, err := e.Register(context.Background(), Pair{Fixed: fixed, Moving: moving, Initial: c.initial, InitialField: c.field}, with(nil), nil)
		testkit.Fails(t, err, c.code, c.says)
	}

	folded := clone(func(f *field.Field) { f.X[12*24*24+12*24+12] += 6 })
	p := Pair{Fixed: fixed, Moving: moving, InitialField: folded}
	r := register(t, e, p, with(func(o *Options) { o.Initial = "rigid" }))
	if said := strings.Join(r.Metrics.Warnings, "\n"); r.Metrics.NJDPercent != 0 || !strings.Contains(said, "folds over itself") || !strings.Contains(said, "initial had no effect") {
		t.Errorf("folds %g %%, warnings %s", r.Metrics.NJDPercent, said)
	}
	if folded.X[12*24*24+12*24+12] != truth.X[12*24*24+12*24+12]+6 {
		t.Error("the caller's field was written to")
	}
	mess := clone(func(f *field.Field) {
		for i := range f.Data {
			f.Data[i] = 40 * float32(math.Sin(float64(i*i)))
		}
	})
	r = register(t, e, Pair{Fixed: fixed, Moving: moving, InitialField: mess}, with(nil))
	if said := strings.Join(r.Metrics.Warnings, "\n"); !strings.Contains(said, "as no body does") {
		t.Errorf("a mess passes with %q", said)
	}
}

// A network's policy begins at the deformation: two steps from where one led are three.
func TestNetworkBeginsAtTheDeformation(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	size := [3]int{20, 16, 16}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 2)}
	steps := func(n int) Options { return with(func(o *Options) { withTiny(o); o.Steps = n }) }
	three, one := register(t, e, p, steps(3)), register(t, e, p, steps(1))
	two := register(t, e, from(p, one), steps(2))
	if d, moved := apart(two.Field, three.Field), apart(one.Field, three.Field); d > 0.02 || moved < 5*d {
		t.Errorf("one step and two lie %.4f voxels from three; one alone %.4f", d, moved)
	}
}

func TestCacheKnowsTheDeformation(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(20, 2, false)
	e := open(t, Config{})
	opt := with(func(o *Options) { o.Cache = t.TempDir() })
	other := field.New(truth.Geometry)
	for i, x := range truth.Data {
		other.Data[i] = 0.5 * x
	}
	for _, start := range []*field.Field{nil, truth, other} {
		keptOnce(t, e, Pair{Fixed: fixed, Moving: moving, InitialField: start}, opt)
	}
}
