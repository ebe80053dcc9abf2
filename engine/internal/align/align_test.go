package align

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/guard"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// phantom is a body of blobs in space, known at every point: an image of it on any grid is exact.
type phantom struct {
	centers [][3]float64
	radii   []float64
	levels  []float64
}

func newPhantom() phantom {
	rng := rand.New(rand.NewPCG(3, 4))
	var p phantom
	for range 24 {
		p.centers = append(p.centers, [3]float64{60 * (rng.Float64() - 0.5), 50 * (rng.Float64() - 0.5), 70 * (rng.Float64() - 0.5)})
		p.radii = append(p.radii, 6+7*rng.Float64())
		p.levels = append(p.levels, 30+150*rng.Float64())
	}
	return p
}

// at is the intensity at a point: 0 outside an ellipsoid with half axes of 45, 38 and 55 mm, else 100 and blobs.
func (p phantom) at(x [3]float64) float64 {
	if math.Pow(x[0]/45, 2)+math.Pow(x[1]/38, 2)+math.Pow(x[2]/55, 2) > 1 {
		return 0
	}
	v := 100.0
	for i, c := range p.centers {
		d := volume.Distance(x, c)
		v += (p.levels[i] - v) / (1 + math.Exp(2*(d-p.radii[i])))
	}
	return v
}

// image draws the phantom on g as seen through toPhantom, its contrast changed by level (nil: as it is).
func (p phantom) image(g volume.Geometry, toPhantom volume.Affine, level func(float64) float64) *volume.Volume {
	m := toPhantom.After(g.IndexToPhysical())
	return testkit.Filled(g, func(i int) float32 {
		x := p.at(m.Apply(g.Point(i)))
		if level != nil {
			x = level(x)
		}
		return float32(x)
	})
}

// fixed is the image that the others are registered to.
func (p phantom) fixed() *volume.Volume { return p.image(fixedGrid(), volume.IdentityAffine(), nil) }

// moved draws the phantom as truth moves it, on a grid that moves along.
func (p phantom) moved(truth volume.Affine, level func(float64) float64) *volume.Volume {
	back, _ := truth.Inverse()
	return p.image(fixedGrid().CenteredAt(truth.T), back, level)
}

func grid(size [3]int, spacing [3]float64, direction [9]float64, center [3]float64) volume.Geometry {
	return volume.Geometry{Size: size, Spacing: spacing, Direction: direction}.CenteredAt(center)
}

func fixedGrid() volume.Geometry {
	return grid([3]int{40, 36, 46}, [3]float64{2.5, 2.5, 2.6}, volume.Identity, [3]float64{})
}

// otherContrast is not monotonic: dark becomes bright and the reverse, air stays.
func otherContrast(v float64) float64 {
	if v == 0 {
		return 0
	}
	return 700 - 3*v
}

// about returns the map x -> m x + t.
func about(m [9]float64, t [3]float64) volume.Affine { return volume.Affine{M: m, T: t} }

// worst is the greatest distance in mm between two maps over the corners of the phantom's inner box.
func worst(a, b volume.Affine) float64 {
	w := 0.0
	for _, x := range []float64{-28, 28} {
		for _, y := range []float64{-24, 24} {
			for _, z := range []float64{-34, 34} {
				p := [3]float64{x, y, z}
				w = max(w, volume.Distance(a.Apply(p), b.Apply(p)))
			}
		}
	}
	return w
}

func TestAlignFindsKnownTransforms(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	tilt, _ := rotation([3]float64{0.15, -0.1, 0.2})
	turned, _ := rotation([3]float64{0, 0, 40 * math.Pi / 180})
	flipped := [9]float64{-1, 0, 0, 0, 0, 1, 0, -1, 0}
	stretched := volume.Product(tilt, [9]float64{1.12, 0.03, 0, 0, 0.93, 0.04, 0, 0, 1.05})
	for _, c := range []struct {
		name      string
		method    Method
		truth     volume.Affine
		direction [9]float64
		level     func(float64) float64
		tolerance float64 // mm
	}{
		{"translation of 80 mm", Affine, about(volume.Identity, [3]float64{80, -40, 30}), volume.Identity, nil, 1.2},
		{"rigid", Rigid, about(tilt, [3]float64{10, 20, -15}), volume.Identity, nil, 1},
		{"rigid, other contrast, axes permuted in the header", Rigid, about(tilt, [3]float64{-12, 5, 8}), flipped, otherContrast, 2},
		{"affine", Affine, about(stretched, [3]float64{-20, 10, 25}), volume.Identity, nil, 1.5},
		{"affine, other contrast, axes permuted in the header", Affine, about(stretched, [3]float64{9, -14, 3}), flipped, otherContrast, 3},
		{"turned by 40 degrees", Rigid, about(turned, [3]float64{15, 0, -10}), volume.Identity, nil, 1.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			fixed := p.fixed()
			back := testkit.Must(c.truth.Inverse())(t)
			g := grid([3]int{58, 52, 46}, [3]float64{2.2, 2.4, 3}, c.direction, c.truth.T)
			moving := p.image(g, back, c.level)
			r := testkit.Must(Align(context.Background(), fixed, moving, Options{Method: c.method}))(t)
			if d := worst(r.Transform, c.truth); d > c.tolerance {
				t.Errorf("off by %.2f mm (score %.3f, confidence %.2f)", d, r.Score, r.Confidence)
			}
			if r.SameModality != (c.level == nil) {
				t.Errorf("one modality %v", r.SameModality)
			}
			if r.Confidence < 0.3 {
				t.Errorf("confidence %.2f in a true match", r.Confidence)
			}
			if c.method == Rigid && math.Abs(r.Transform.Det()-1) > 1e-6 {
				t.Errorf("determinant %g of a rigid transform", r.Transform.Det())
			}
		})
	}
}

// Two bodies alike, of which the fixed image shows one: either may be it.
func TestTwoPlacesThatFit(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	const between = 78 // mm, whole voxels: they touch, and are one body
	g := grid([3]int{78, 36, 46}, [3]float64{2.6, 2.5, 2.6}, volume.Identity, [3]float64{between / 2, 0, 0})
	moving := p.image(g, volume.IdentityAffine(), nil)
	for i, x := range p.image(g, about(volume.Identity, [3]float64{-between, 0, 0}), nil).Data {
		moving.Data[i] = max(moving.Data[i], x)
	}
	r := testkit.Must(Align(context.Background(), p.fixed(), moving, Options{Method: Rigid}))(t)
	if r.Confidence > 0.3 || math.Abs(r.RivalMM-between) > 3 {
		t.Errorf("confidence %.2f, the other place %.1f mm away; want at most 0.3, %d mm", r.Confidence, r.RivalMM, between)
	}
}

func TestSearchRotationsFindsQuarterTurn(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	quarter, _ := rotation([3]float64{0, 0, math.Pi / 2})
	truth := about(quarter, [3]float64{15, 0, -10})
	a := aligner{ctx: context.Background(), opt: Options{Method: Rigid}, fixed: p.fixed(), moving: p.moved(truth, otherContrast)}
	h := comparisonSpacing(a.fixed.Geometry, a.moving.Geometry)
	rotationSearch, _ := a.newRotationSearch(h)
	result := testkit.Must(a.searchRotations(rotationSearch, outcome{transform: volume.IdentityAffine()}, h))(t)
	found, _, err := a.reframe(result.turned, result.views, 3)
	if err != nil || worst(found.transform, truth) > 3 {
		t.Errorf("off by %.1f mm (score %.3f): %v", worst(found.transform, truth), found.score, err)
	}
}

// A body lies in any pose: the alignment finds it, in one contrast and in two, and is sure of it.
func TestPoses(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	fixed := p.fixed()
	for _, c := range []struct {
		name string
		turn [3]float64 // radians about x, y, z
	}{
		{"on its side", [3]float64{0, 0, math.Pi / 2}},
		{"face down and the other way round", [3]float64{0, 2 * math.Pi / 3, 0}},
		{"askew", [3]float64{1.1, -0.8, 1.4}},
	} {
		for kind, level := range map[string]func(float64) float64{"one contrast": nil, "two contrasts": otherContrast} {
			t.Run(c.name+", "+kind, func(t *testing.T) {
				turn, _ := rotation(c.turn)
				truth := about(turn, [3]float64{15, 0, -10})
				r, err := Align(t.Context(), fixed, p.moved(truth, level), Options{Method: Rigid})
				if err != nil || worst(r.Transform, truth) > 3 || r.Confidence < 0.5 {
					t.Errorf("off by %.1f mm, confidence %.2f: %v", worst(r.Transform, truth), r.Confidence, err)
				}
			})
		}
	}
}

// Few voxels match better by chance.
func TestLikely(t *testing.T) {
	for voxels, want := range map[float64]float64{5e5: 0.36, 110e3: 0.36, 88e3: 0.45, 66e3: 0.6, 1e3: 0.6, 0: 0.6} {
		if got := likely(voxels); math.Abs(got-want) > 1e-9 {
			t.Errorf("of %g voxels %g, want %g", voxels, got, want)
		}
	}
}

func TestAxisFlipped(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	tilt, _ := rotation([3]float64{0.15, -0.1, 0.2})
	half := [9]float64{-1, 0, 0, 0, -1, 0, 0, 0, 1}
	for _, c := range []struct {
		name string
		turn [9]float64
		want bool
	}{
		{"as it is", volume.Identity, false},
		{"tilted", tilt, false},
		{"half turn", half, true},
		{"half turn and tilted", volume.Product(tilt, half), true},
	} {
		for kind, level := range map[string]func(float64) float64{"one contrast": nil, "two contrasts": otherContrast} {
			t.Run(c.name+", "+kind, func(t *testing.T) {
				truth := about(c.turn, [3]float64{15, 0, -10})
				a := aligner{ctx: context.Background(), fixed: p.fixed(), moving: p.moved(truth, level)}
				rotationSearch, _ := a.newRotationSearch(6.0 / turnSpacing)
				if got := rotationSearch.axisFlipped(); got != c.want {
					t.Errorf("reversed: %v, want %v", got, c.want)
				}
			})
		}
	}
}

func TestAlignIsReproducible(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	fixed := p.fixed()
	moving := p.image(fixedGrid(), about(volume.Identity, [3]float64{6, -4, 9}), otherContrast)
	var first *Result
	for _, threads := range []int{1, 1, 3} {
		r := testkit.Must(Align(context.Background(), fixed, moving, Options{Method: Affine, Threads: threads}))(t)
		if first == nil {
			first = r
		} else if !reflect.DeepEqual(r, first) {
			t.Errorf("%d threads: %+v, before %+v", threads, *r, *first)
		}
	}
}

func TestAlignWithoutSearch(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	fixed := p.fixed()
	truth := about(volume.Identity, [3]float64{50, 0, -20})
	moving := p.moved(truth, nil)
	r, err := Align(context.Background(), fixed, moving, Options{Method: COM})
	if err != nil || worst(r.Transform, truth) > 1 {
		t.Errorf("centre of mass: %+v, %v", r, err)
	}
	near := about(volume.Identity, [3]float64{46, 3, -18})
	r, err = Align(context.Background(), fixed, moving, Options{Method: None, Initial: &near})
	if err != nil || r.Transform != near {
		t.Errorf("none must keep the caller's transform: %+v, %v", r, err)
	}
	r, err = Align(context.Background(), fixed, moving, Options{Method: Rigid, Initial: &near})
	if err != nil || worst(r.Transform, truth) > 1 {
		t.Errorf("from the caller's transform: %+v, %v", r, err)
	}
}

// noise is a volume on g without anything that two of them share.
func noise(g volume.Geometry, seed uint64) *volume.Volume {
	return testkit.Drawn(g, rand.New(rand.NewPCG(seed, 1)).Float32)
}

// Volumes that lie between the voxels of the comparison, in some orientation or in all, are no defect of ours.
func TestAlignOfLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	askew := superFibonacci(31, 100)
	for _, c := range []struct {
		name          string
		fixed, moving volume.Geometry
	}{
		{"eight voxels", grid([3]int{2, 2, 2}, [3]float64{1, 1, 1}, askew, [3]float64{}), grid([3]int{2, 2, 2}, [3]float64{1, 1, 1}, volume.Identity, [3]float64{})},
		{"two slices askew", grid([3]int{64, 64, 2}, [3]float64{1, 1, 1}, askew, [3]float64{}), grid([3]int{64, 64, 2}, [3]float64{1, 1, 1}, askew, [3]float64{})},
		{"a rod", grid([3]int{100, 4, 4}, [3]float64{1, 1, 1}, askew, [3]float64{}), grid([3]int{16, 16, 16}, [3]float64{1, 1, 1}, askew, [3]float64{})},
		{"a detail and coarse voxels", grid([3]int{16, 16, 16}, [3]float64{0.5, 0.5, 0.5}, askew, [3]float64{}), grid([3]int{4, 4, 4}, [3]float64{8, 8, 8}, volume.Identity, [3]float64{})},
	} {
		_, err := Align(context.Background(), noise(c.fixed, 0), noise(c.moving, 1), Options{Method: Affine, Threads: 1})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	// A grid has a voxel at the centre of the volume, however thin that is and in every orientation.
	v := noise(grid([3]int{10, 10, 2}, [3]float64{1, 1, 1}, volume.Identity, [3]float64{}), 1)
	a := &aligner{fixed: v, moving: v}
	for i := range 60 {
		if _, err := a.describe(6.5+float64(i)/20, superFibonacci(i, 60)); err != nil {
			t.Error(err)
		}
	}
}

// One voxel that differs from a constant image is little to go by, and no defect of ours.
func TestAlignOfOneVoxel(t *testing.T) {
	t.Parallel()
	g := grid([3]int{32, 32, 32}, [3]float64{1, 1, 1}, volume.Identity, [3]float64{})
	one := &volume.Volume{Geometry: g, Data: slices.Repeat([]float32{3}, g.Voxels())}
	one.Data[(16*32+16)*32+16] = 9
	for _, pair := range [][2]*volume.Volume{{one, noise(g, 1)}, {noise(g, 1), one}, {one, one}} {
		if _, err := Align(context.Background(), pair[0], pair[1], Options{Method: Affine, Threads: 1}); err != nil {
			t.Error(err)
		}
	}
}

// A crop that was sampled coarser than the other image is compared at nearly the voxels of the finer one.
func TestComparisonSpacing(t *testing.T) {
	crop := func(spacing float64) volume.Geometry {
		n := func(mm float64) int { return int(math.Round(mm / spacing)) }
		return grid([3]int{n(40), n(50), n(40)}, [3]float64{spacing, spacing, spacing}, volume.Identity, [3]float64{})
	}
	head := func(spacing float64) volume.Geometry {
		n := int(200 / spacing)
		return grid([3]int{n, n, n}, [3]float64{spacing, spacing, spacing}, volume.Identity, [3]float64{})
	}
	for _, c := range []struct {
		name          string
		fixed, moving volume.Geometry
		want          float64
	}{
		{"crops", crop(1), crop(1), 1},
		{"fixed crop coarser", crop(2), crop(1), math.Cbrt(80e3 / 50e3)},
		{"moving crop coarser", crop(1), crop(2), math.Cbrt(80e3 / 50e3)},
		{"moving crop finer", crop(1), crop(0.5), 1},
		{"both coarse", crop(2), crop(2), 2},
		{"heads", head(1), head(1), math.Cbrt(8e6 / 500e3)},
		{"fixed head coarser", head(4), head(1), 4},
	} {
		if got := comparisonSpacing(c.fixed, c.moving); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %g mm, want %g", c.name, got, c.want)
		}
	}
}

func TestWorkingGridsAreBounded(t *testing.T) {
	askew := superFibonacci(31, 100)
	for _, c := range []struct {
		name    string
		size    [3]int
		spacing [3]float64
		same    bool
	}{
		{"head", [3]int{240, 240, 160}, [3]float64{1, 1, 1.2}, true},
		{"torso", [3]int{512, 512, 700}, [3]float64{0.9, 0.9, 1}, true},
		{"thick slices", [3]int{512, 512, 24}, [3]float64{0.45, 0.45, 6}, true},
		{"three slices", [3]int{256, 256, 3}, [3]float64{1.4, 1.4, 8}, true},
		{"plate", [3]int{2000, 2000, 8}, [3]float64{1, 1, 1}, false},
		{"rod", [3]int{6000, 12, 12}, [3]float64{1, 1, 1}, false},
		{"sheet", [3]int{300, 300, 2}, [3]float64{1, 1, 0.001}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			turned, upright := grid(c.size, c.spacing, askew, [3]float64{}), grid(c.size, c.spacing, volume.Identity, [3]float64{})
			a := &aligner{fixed: &volume.Volume{Geometry: turned}, moving: &volume.Volume{Geometry: upright}}
			h := affordable(a.spacing(), turned, upright, askew)
			if own := comparisonSpacing(turned, upright); (h == own) != c.same {
				t.Errorf("voxels of %g mm, unbounded of %g", h, own)
			}
			coarse, longest := a.rotationGrid(h)
			if c.same && coarse != turnSpacing*h {
				t.Errorf("rotations at %g mm where the comparison has %g", coarse, h)
			}
			lattice := boundingGrid(turned, coarse, volume.Identity).Size
			if n := (lattice[0] + longest) * (lattice[1] + longest) * (lattice[2] + longest); n > mostVoxels {
				t.Errorf("the search over rotations has %d voxels", n)
			}
			for _, g := range []volume.Geometry{boundingGrid(turned, h, volume.Identity), boundingGrid(upright, h, askew)} {
				if g.Voxels() > mostVoxels {
					t.Errorf("%d voxels", g.Voxels())
				}
			}
		})
	}
}

// The scales of a caller's transform are where the alignment starts, not a strain to undo.
func TestScaledInitialIsKept(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	truth := about([9]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}, [3]float64{3, -2, 1})
	fixed := p.fixed()
	for _, scale := range []float64{0.02, 0.5, 4} {
		t.Run(fmt.Sprintf("times %g", scale), func(t *testing.T) {
			// A point x of the phantom lies at scale x in the moving image.
			g := fixedGrid()
			for a := range 3 {
				g.Spacing[a] *= scale
				g.Origin[a] *= scale
			}
			moving := p.image(g, about([9]float64{1 / scale, 0, 0, 0, 1 / scale, 0, 0, 0, 1 / scale}, [3]float64{-3, 2, -1}), nil)
			initial := about([9]float64{scale, 0, 0, 0, scale, 0, 0, 0, scale}, [3]float64{})
			for _, method := range []Method{None, Rigid, Affine} {
				r := testkit.Must(Align(context.Background(), fixed, moving, Options{Method: method, Initial: &initial}))(t)
				if method == None {
					if r.Transform != initial {
						t.Errorf("scale %g, none: %v", scale, r.Transform)
					}
					continue
				}
				back := about(initial.M, [3]float64{})
				for a := range 3 {
					back.M[4*a] = 1 / scale
				}
				if w := worst(back.After(r.Transform), truth); w > 1 || !r.SameModality {
					t.Errorf("scale %g, %s: %g mm off, same modality %v", scale, method, w, r.SameModality)
				}
			}
		})
	}
}

func TestAlignErrors(t *testing.T) {
	p := newPhantom()
	g := grid([3]int{20, 20, 20}, [3]float64{5, 5, 5}, volume.Identity, [3]float64{})
	v := p.image(g, volume.IdentityAffine(), nil)
	far := about(volume.Identity, [3]float64{150, 0, 0})
	singular := volume.Affine{}
	empty, other := volume.Zeros(g), volume.Zeros(g.CenteredAt([3]float64{1, 0, 0}))
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	halfway, stop := context.WithCancel(context.Background())
	for _, c := range []struct {
		name string
		ctx  context.Context
		opt  Options
		want fault.Code
		says string
	}{
		{"method", nil, Options{Method: "similarity"}, fault.InvalidArgument, "similarity"},
		{"no overlap", nil, Options{Method: Affine, Initial: &far}, fault.NoOverlap, "50.0 mm"},
		{"singular", nil, Options{Method: None, Initial: &singular}, fault.SingularTransform, "inverted"},
		{"empty mask", nil, Options{Method: COM, FixedMask: empty}, fault.EmptyMask, "fixed mask"},
		{"mask elsewhere", nil, Options{Method: COM, MovingMask: other}, fault.GridMismatch, "moving mask"},
		{"context", cancelled, Options{Method: Affine}, fault.Cancelled, ""},
		{"half way", halfway, Options{Method: Affine, Progress: func(f float64) {
			if f > 0.3 {
				stop()
			}
		}}, fault.Cancelled, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := c.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			_, err := Align(ctx, v, v, c.opt)
			if ctx.Err() != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%v does not say what cancelled it", err)
			}
			testkit.Fails(t, err, c.want, c.says)
		})
	}
}

func TestSampleByVectorsMatchesLoop(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const dx, dy, dz = lanes, 3 * lanes, 9 * lanes
	cell := make([]float32, dx+dy+dz+lanes)
	var fixed [lanes]float32
	for i := range cell {
		cell[i] = float32(rng.NormFloat64())
	}
	for c := range bodyLane {
		fixed[c] = float32(rng.NormFloat64())
	}
	f := [3]float32{0.2, 0.7, 0.4}
	for _, components := range []int{lanes - 4, lanes - 3} {
		got, want := guard.Slice(t, make([]sample, 1)), make([]sample, 1)
		var counted [8]uint32
		for i := range components - 8 {
			counted[i] = math.MaxUint32
		}
		if !got[0].vector(cell, dx, dy, dz, f, &fixed, &counted) {
			t.Skip("no vectors on this processor")
		}
		want[0].loop(cell, dx, dy, dz, f, &fixed, &counted)
		if !slices.Equal(got, want) {
			t.Errorf("%d components: got %v, want %v", components, got, want)
		}
	}
}

func TestSumsByVectorsMatchesLoop(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	got, want := guard.Slice(t, make([]sums, 1)), make([]sums, 1)
	for range 50 {
		var part [3][4]float32
		for j := range part {
			for i := range part[j] {
				part[j][i] = float32(rng.NormFloat64())
			}
		}
		q := [3]float32{float32(rng.NormFloat64()), float32(rng.NormFloat64()), float32(rng.NormFloat64())}
		if !got[0].vector(&part, &q) {
			t.Skip("no vectors on this processor")
		}
		want[0].add(&part, &q)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestImageOnItselfStays: neither the soft rim of a body nor the end of a field of view may pull an image away from
// itself.
func TestImageOnItselfStays(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	for name, g := range map[string]volume.Geometry{
		"whole body":  fixedGrid(),
		"crop inside": grid([3]int{24, 22, 26}, [3]float64{2, 2, 2}, volume.Identity, [3]float64{4, -3, 2}),
		"half a body": grid([3]int{40, 36, 23}, [3]float64{2.5, 2.5, 2.6}, volume.Identity, [3]float64{0, 0, 30}),
	} {
		v := p.image(g, volume.IdentityAffine(), nil)
		r := testkit.Must(Align(context.Background(), v, v, Options{Method: Affine}))(t)
		if d := worst(r.Transform, volume.IdentityAffine()); d > 0.02 || r.Score < 0.999 {
			t.Errorf("%s: moved by %.3f mm, score %.4f", name, d, r.Score)
		}
	}
}

// TestMaskOfOneImage: to what a mask of a small structure selects, the other image is full of places that fit alike.
func TestMaskOfOneImage(t *testing.T) {
	t.Parallel()
	const n, shift = 40, 3.0
	g := grid([3]int{n, n, n}, [3]float64{1, 1, 1}, volume.Identity, [3]float64{})
	common, own := noise(g, 1), noise(g, 2)
	size, s := g.Size, [3]float64{1.5, 1.5, 1.5}
	for _, v := range []*volume.Volume{common, own} {
		filter.Gaussian(size, s, 1, 0, filter.From(size, slices.Clone(v.Data)), filter.To(size, v.Data))
	}
	truth := about(volume.Identity, [3]float64{shift, -shift, 0})
	moving := common.Resample(g, about(volume.Identity, [3]float64{-shift, shift, 0}), volume.Linear, 0, 0)
	for i := range moving.Data {
		moving.Data[i] += own.Data[i] // half of what it shows
	}
	ball := func(x, y float64) *volume.Volume {
		toPhysical := g.IndexToPhysical()
		return testkit.Filled(g, func(i int) float32 {
			if volume.Distance(toPhysical.Apply(g.Point(i)), [3]float64{x, y, 0}) < 6 {
				return 1
			}
			return 0
		})
	}
	for name, opt := range map[string]Options{
		"fixed": {FixedMask: ball(0, 0)}, "moving": {MovingMask: ball(shift, -shift)},
	} {
		t.Run(name, func(t *testing.T) {
			opt.Method = Affine
			r := testkit.Must(Align(context.Background(), common, moving, opt))(t)
			center := [3]float64{}
			if d := volume.Distance(r.Transform.Apply(center), truth.Apply(center)); d > 2 {
				t.Errorf("the middle of the mask is %.1f mm off", d)
			}
		})
	}
}

// TestScansOnOneScale: two CT are of one modality, however differently their values are distributed.
func TestScansOnOneScale(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	scan := func(air float64) func(float64) float64 { // which blobs are lung or gas
		return func(v float64) float64 {
			switch {
			case v == 0:
				return -1000
			case v > 105 && v < air:
				return -850
			}
			return v - 60
		}
	}
	shifted := func(level func(float64) float64, by float64) *volume.Volume {
		v := p.image(fixedGrid(), volume.IdentityAffine(), level)
		for i := range v.Data {
			v.Data[i] += float32(by)
		}
		return v
	}
	for _, c := range []struct {
		name string
		by   float64
		same bool
	}{{"Hounsfield units", 0, true}, {"some other scale", 2000, false}} {
		r := testkit.Must(Align(context.Background(), shifted(scan(0), c.by), shifted(scan(160), c.by), Options{Method: Affine}))(t)
		if r.SameModality != c.same {
			t.Errorf("%s: one modality %v", c.name, r.SameModality)
		}
	}
}

func TestGradientOfScore(t *testing.T) {
	p := newPhantom()
	a := aligner{ctx: context.Background(), fixed: p.fixed(), moving: p.image(fixedGrid(), volume.IdentityAffine(), otherContrast)}
	v := testkit.Must(a.describe(4, volume.Identity))(t)
	o := a.objective(v, v.smoothed(2, 0), 4000)
	m := [9]float64{1.15, 0.02, -0.03, 0.01, 1.05, 0.02, -0.02, 0.03, 1.1}
	c := o.centred(about(m, [3]float64{1.3, -2.1, 0.7}))
	_, gradM, gradT := o.score(c)
	for i := range 12 {
		shifted := func(step float64) float64 {
			d := c
			if i < 9 {
				d.M[i] += step
			} else {
				d.T[i-9] += step
			}
			s, _, _ := o.score(d)
			return s
		}
		step, got := 0.05, append(gradM[:], gradT[:]...)[i]
		if i < 9 {
			step /= o.radius()
		}
		want := (shifted(step) - shifted(-step)) / (2 * step)
		if math.Abs(got-want)*step > 2e-2*math.Abs(want)*step+2e-5 {
			t.Errorf("parameter %d: gradient %g, finite difference %g", i, got, want)
		}
	}
}

// TestStrain compares with closed forms, and the gradient with central differences.
func TestStrain(t *testing.T) {
	r, _ := rotation([3]float64{0.3, -0.5, 0.2})
	stretch := [9]float64{2, 0, 0, 0, 0.5, 0, 0, 0, 1}
	log2 := math.Log(2) * math.Log(2)
	for name, c := range map[string]struct {
		m    [9]float64
		want float64
	}{
		"identity":          {volume.Identity, 0},
		"rotation":          {r, 0},
		"stretch":           {stretch, 2 * log2},
		"rotated stretch":   {volume.Product(r, stretch), 2 * log2},
		"stretch elsewhere": {volume.Product(stretch, r), 2 * log2},
		"mirror":            {[9]float64{-1, 0, 0, 0, 1, 0, 0, 0, 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, grad := strain(c.m)
			if math.Abs(got-c.want) > 1e-9 {
				t.Errorf("strain %v, want %v", got, c.want)
			}
			for i := range c.m {
				const h = 1e-5
				up, down := c.m, c.m
				up[i] += h
				down[i] -= h
				a, _ := strain(up)
				b, _ := strain(down)
				if d := (a - b) / (2 * h); math.Abs(d-grad[i]) > 1e-4 {
					t.Errorf("derivative %d: %v, by differences %v", i, grad[i], d)
				}
			}
		})
	}
}
