package aligned

import (
	"math"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// shells is a ball of radius inner with texture in a shell of radius outer, in air; at mm from the centre of g.
func shells(g volume.Geometry, inner, outer, at, air float64) *volume.Volume {
	v := volume.Zeros(g)
	m := g.IndexToPhysical()
	for i := range v.Data {
		p := m.Apply(g.Point(i))
		switch r := volume.Norm([3]float64{p[0] - at, p[1], p[2]}); {
		case r < inner:
			v.Data[i] = float32(60 + 20*math.Sin(p[0]) + 10*math.Cos(p[1]))
		case r < outer:
			v.Data[i] = 90
		default:
			v.Data[i] = float32(air * math.Abs(math.Sin(float64(i))))
		}
	}
	return v
}

// reversed is v with dark and bright exchanged.
func reversed(v *volume.Volume) *volume.Volume {
	return testkit.Filled(v.Geometry, func(i int) float32 { return 100 - v.Data[i] })
}

func TestCutOut(t *testing.T) {
	g := cube(40, 2)
	head, brain := shells(g, 20, 30, 0, 0), shells(g, 20, 20, 0, 0)
	unknown := shells(g, 20, 20, 0, 0)
	for i, x := range unknown.Data {
		if x == 0 {
			unknown.Data[i] = float32(math.NaN())
		}
	}
	moved := volume.Affine{M: volume.Identity, T: [3]float64{300, 0, 0}}
	far := shells(g, 20, 30, 0, 0)
	far.Geometry.Origin[0] += 300
	for _, c := range []struct {
		name          string
		fixed, moving *volume.Volume
		initial       volume.Affine
		cut           string
	}{
		{"a brain and a head", brain, head, volume.IdentityAffine(), "fixed"},
		{"a head and a brain", head, brain, volume.IdentityAffine(), "moving"},
		{"a brain in lossy zeros", shells(g, 20, 20, 0, 0.5), head, volume.IdentityAffine(), "fixed"},
		{"a brain in NaN", unknown, head, volume.IdentityAffine(), "fixed"},
		{"a head that the initial transform brings there", brain, far, moved, "fixed"},
		{"two heads", head, shells(g, 20, 30, 2, 0), volume.IdentityAffine(), ""},
		{"two brains, one of them larger", brain, shells(g, 20.5, 20.5, 0, 0), volume.IdentityAffine(), ""},
		{"two brains that lie apart", brain, shells(g, 20, 20, 10, 0), volume.IdentityAffine(), ""},
		{"a brain and a head in noise", brain, shells(g, 20, 30, 0, 8), volume.IdentityAffine(), "fixed"},
		{"a head and the same in noisy air", head, shells(g, 20, 30, 0, 8), volume.IdentityAffine(), ""},
		{"two without a border", shells(g, 90, 90, 0, 0), shells(g, 90, 90, 0, 0), volume.IdentityAffine(), ""},
		{"a body and one whose air is bright", brain, reversed(brain), volume.IdentityAffine(), ""},
		{"nothing in common", brain, far, volume.IdentityAffine(), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fixed, moving := Pair{Fixed: c.fixed, Moving: c.moving, Initial: c.initial}.CutOut(2)
			for _, side := range []struct {
				name        string
				image, mask *volume.Volume
			}{{"fixed", c.fixed, fixed}, {"moving", c.moving, moving}} {
				if got := side.mask != nil; got != (c.cut == side.name) {
					t.Fatalf("the %s image was cut out: %v, want %v", side.name, got, !got)
				}
				if side.mask == nil {
					continue
				}
				m, wrong := side.image.IndexToPhysical(), 0
				for i, x := range side.mask.Data {
					p := m.Apply(side.image.Point(i))
					if in := volume.Norm(p) < 20; in != (x != 0) {
						wrong++
					}
				}
				if most := 40; wrong > most { // a dark voxel of the brain's surface is no border
					t.Errorf("%d voxels of the mask are not those of the brain, want at most %d", wrong, most)
				}
			}
		})
	}
}

// Holes are unknown; what is not finite around a body, or beside its dark border, is that border.
func TestKnown(t *testing.T) {
	v := volume.Zeros(volume.Geometry{Size: [3]int{9, 9, 9}, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity})
	body := func(at [3]int) bool { return min(at[0], at[1], at[2]) >= 2 && max(at[0], at[1], at[2]) <= 6 }
	mask := volume.Zeros(v.Geometry)
	for i := range v.Data {
		if at := v.Index(i); body(at) {
			v.Data[i], mask.Data[i] = float32(100+i%5), 1
		}
	}
	with := func(lost ...[3]int) *volume.Volume {
		w := &volume.Volume{Geometry: v.Geometry, Data: slices.Clone(v.Data)}
		for _, p := range lost {
			w.Data[(p[2]*9+p[1])*9+p[0]] = float32(math.NaN())
		}
		return w
	}
	hole := [3]int{4, 4, 4}
	if Known(v, mask) != mask || Known(with([3]int{0, 0, 0}, [3]int{2, 4, 4}), nil) != nil {
		t.Error("a mask without holes")
	}
	for name, m := range map[string]*volume.Volume{"no mask": nil, "a mask": mask} {
		got := Known(with(hole, [3]int{0, 3, 3}), m)
		for i, x := range got.Data {
			want := float32(1)
			if m != nil {
				want = m.Data[i]
			}
			if v.Index(i) == hole {
				want = 0
			}
			if x != want {
				t.Errorf("%s: voxel %v is %g", name, v.Index(i), x)
			}
		}
	}
	only := volume.Zeros(v.Geometry)
	only.Data[(4*9+4)*9+4] = 1
	if Known(with(hole), only) != only {
		t.Error("a mask of a hole alone selects nothing")
	}
}
