package bodies

import (
	"math"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

var grid = volume.Geometry{Size: [3]int{20, 16, 14}, Spacing: [3]float64{1, 1.5, 2}, Origin: [3]float64{-4, 8, 2}, Direction: [9]float64{0, -1, 0, 1, 0, 0, 0, 0, 1}}

// labelled is a label map with label at the voxels that in says.
func labelled(g volume.Geometry, in func(x, y, z int) float32) *volume.Volume {
	return testkit.Filled(g, func(i int) float32 { return in(i%g.Size[0], i/g.Size[0]%g.Size[1], i/(g.Size[0]*g.Size[1])) })
}

func block(x, y, z int) float32 {
	if x >= 6 && x < 12 && y >= 5 && y < 10 && z >= 4 && z < 9 {
		return 7
	}
	return 0
}

func turned(angle float64) volume.Affine {
	return volume.Affine{M: testkit.Turn(angle), T: [3]float64{1, -2, 0.5}}
}

// A body that moves rigidly already stays to the last digits of a float32, whatever the tissue around it does; the rim
// goes over to that.
func TestARigidMotionStays(t *testing.T) {
	v := field.FromAffine(grid, turned(0.1))
	before := field.FromAffine(grid, turned(0.1))
	for i := range v.X { // the rest of the image stays
		if block(i%20, i/20%16, i/(20*16)) == 0 {
			v.X[i], v.Y[i], v.Z[i] = 0, 0, 0
		}
	}
	On(grid, labelled(grid, block), 1).Make(v, nil, volume.IdentityAffine())
	at := func(x, y, z int) int { return (z*16+y)*20 + x }
	for i := range v.X {
		if block(i%20, i/20%16, i/(20*16)) != 0 && math.Abs(float64(v.X[i]-before.X[i])) > 1e-5 {
			t.Fatalf("voxel %d of the body moves %g where it moved %g", i, v.X[i], before.X[i])
		}
	}
	share := func(x int) float64 { return float64(v.Z[at(x, 7, 6)] / before.Z[at(x, 7, 6)]) }
	if one, two, far := share(12), share(13), share(19); !(one < 1 && one > two && two > 0 && far == 0) {
		t.Errorf("the rim's shares are %g, %g and %g", one, two, far)
	}
}

// The motion is the nearest by least squares: of a body that was stretched about its centre, none.
func TestAStretchIsTakenBack(t *testing.T) {
	stretch := volume.IdentityAffine()
	centre := grid.IndexToPhysical().Apply([3]float64{8.5, 7, 6})
	for a := range 3 {
		stretch.M[4*a], stretch.T[a] = 1.2, -0.2*centre[a]
	}
	v := field.FromAffine(grid, stretch)
	b := On(grid, labelled(grid, block), 1)
	b.Make(v, nil, volume.IdentityAffine())
	for i := range v.X {
		if block(i%20, i/20%16, i/(20*16)) != 0 && volume.Norm(v.Vector(i)) > 1e-5 {
			t.Fatalf("voxel %d still moves by %g, %g, %g", i, v.X[i], v.Y[i], v.Z[i])
		}
	}
	b.Unfold(v, 0.01, 1)
	if s := v.Stats(1); s.JacobianMin < 0.01 {
		t.Errorf("the rim folds: %g", s.JacobianMin)
	}
}

// Behind an initial transform that scales, and after a start that bends, the whole map is rigid.
func TestTheWholeMapIsRigid(t *testing.T) {
	initial := turned(0.3)
	for i := range initial.M {
		initial.M[i] *= 1.1
	}
	start := field.New(grid)
	for i := range start.X {
		start.X[i], start.Z[i] = float32(0.5*math.Sin(float64(i/20%16)/4)), float32(0.4*math.Cos(float64(i%20)/5))
	}
	b, v := On(grid, labelled(grid, block), 1), field.New(grid)
	for range 12 {
		b.Make(v, start, initial)
	}
	toMM := grid.IndexToPhysical()
	leads := func(x, y, z int) [3]float64 {
		p := v.Target((z*16+y)*20 + x)
		u := start.At(p)
		return initial.Apply(toMM.Apply([3]float64{p[0] + u[0], p[1] + u[1], p[2] + u[2]}))
	}
	p, q := leads(6, 5, 4), leads(11, 9, 8)
	if got, want := volume.Distance(p, q), math.Sqrt(25+36+64); math.Abs(got-want) > 1e-3 {
		t.Errorf("the diagonal of the body is %g mm, was %g", got, want)
	}
}

// Bodies of one voxel or one row, and two that touch, make no numbers that are none; a body that a coarse grid misses
// is left out.
func TestSmallBodies(t *testing.T) {
	labels := labelled(grid, func(x, y, z int) float32 {
		switch {
		case x == 3 && y == 3 && z == 3:
			return 1
		case y == 8 && z == 8:
			return 2
		case y == 9 && z == 8 && x > 4:
			return 3
		}
		return 0
	})
	b, v := On(grid, labels, 2), field.FromAffine(grid, turned(0.2))
	b.Make(v, nil, turned(-0.4))
	b.Unfold(v, 0.01, 2)
	for i, u := range v.Data {
		if !volume.IsFinite(u) {
			t.Fatalf("component %d is %g", i, u)
		}
	}
	coarse := grid.Blocks([3]int{5, 5, 5})
	small := On(coarse, labelled(grid, func(x, y, z int) float32 {
		if x == 3 && y == 3 && z == 3 {
			return 1
		}
		return 0
	}), 1)
	u := field.FromAffine(coarse, turned(0.2))
	before := slices.Clone(u.Data)
	small.Make(u, nil, volume.IdentityAffine())
	if !slices.Equal(u.Data, before) {
		t.Error("a body that no voxel shows moves some")
	}
	var none *Bodies
	none.Make(u, nil, volume.IdentityAffine())
	if got := labels.Labels(); len(got) != 3 || got[0] != 1 || got[2] != 3 {
		t.Errorf("the labels are %v", got)
	}
}
