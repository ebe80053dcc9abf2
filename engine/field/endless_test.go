package field_test

import (
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// shifted returns the affine last after a displacement of mm at every voxel of g.
func shifted(g volume.Geometry, last volume.Affine, mm [3]float64) *field.Field {
	last.T = last.Apply(mm)
	return field.FromAffine(g, last)
}

func TestMargin(t *testing.T) {
	g := volume.Geometry{Size: [3]int{320, 40, 4}, Spacing: [3]float64{1, 2, 3}, Origin: [3]float64{5, 6, 7}, Direction: volume.Identity}
	scale := rotated(g, 0.2, 1.3)
	for name, c := range map[string]struct {
		last volume.Affine
		mm   [3]float64
		want [3][2]int
	}{
		"the affine map alone":    {scale, [3]float64{}, [3][2]int{}},
		"a thousandth of a voxel": {scale, [3]float64{0.0009, 0, 0}, [3][2]int{}},
		"to the right: twice as wide there": {
			volume.IdentityAffine(), [3]float64{5, 0, 0}, [3][2]int{{5, 10}, {3, 3}, {2, 2}},
		},
		"along z, before a rotation and a scale": {scale, [3]float64{0, 0, -2.5}, [3][2]int{{3, 3}, {2, 2}, {2, 1}}},
		"no wider than a sixteenth or 8 voxels":  {scale, [3]float64{-90, 0, 0}, [3][2]int{{20, 20}, {8, 8}, {4, 4}}},
	} {
		e := testkit.Must(shifted(g, c.last, c.mm).Endless(c.last))(t)
		if got := e.Margin(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	testkit.Refused(field.New(g).Endless(volume.Affine{}))(t, fault.SingularTransform)
}

// bent returns a field that moves its border, and the affine map it ends with.
func bent() (*field.Field, volume.Affine) {
	g := volume.Geometry{Size: [3]int{24, 20, 18}, Spacing: [3]float64{1, 1.5, 2}, Origin: [3]float64{-9, 4, 30}, Direction: [9]float64{0, -1, 0, 0.8, 0, -0.6, 0.6, 0, 0.8}}
	last := rotated(g, 0.3, 1.1)
	return field.Compose(nil, field.FromAffine(g, last), waves(g, 1.5), 1), last
}

// The fading, by hand: half way through the margin half of what the border has besides the affine map is left.
func TestBeyondTheGrid(t *testing.T) {
	f, last := bent()
	e := testkit.Must(f.Endless(last))(t)
	at := func(x, y, z float64) [3]float64 { return f.IndexToPhysical().Apply([3]float64{x, y, z}) }
	phi := func(p [3]float64) [3]float64 { e.TransformPoints(p[:]); return p }
	wide := float64(e.Margin()[0][1])
	border, here := at(23, 7, 5), at(23+wide/2, 7, 5)
	moved, without, far := phi(border), last.Apply(border), last.Apply(here)
	want := make([]float64, 3)
	for a := range want {
		want[a] = far[a] + (moved[a]-without[a])/2
	}
	got := phi(here)
	testkit.Close(t, "half way", got[:], want, 1e-5)
	if d := math.Hypot(moved[0]-without[0], moved[1]-without[1]); d < 0.3 {
		t.Errorf("the border hardly moves: %g mm", d)
	}
	for _, p := range [][3]float64{at(23+wide, 7, 5), at(-200, 7, 5), at(5, 5, 400), at(90, -90, 90)} {
		got, want := phi(p), last.Apply(p)
		testkit.Close(t, "beyond the margin", got[:], want[:], 1e-9)
	}
	inside, same := at(7.3, 8.1, 6.2), at(7.3, 8.1, 6.2)
	f.TransformPoints(same[:])
	if phi(inside) != same {
		t.Error("a point inside is not what the field makes of it")
	}
}

func TestInverseBeyondTheGrid(t *testing.T) {
	t.Parallel()
	f, last := bent()
	e := testkit.Must(f.Endless(last))(t)
	to := f.Geometry // three times as large, around the grid
	for a := range to.Size {
		to.Size[a] *= 3
	}
	to = to.CenteredAt(last.Apply(f.Center()))
	inverse, residual := e.Inverse(to, 2)
	if !(residual <= 1e-3) {
		t.Errorf("residual %g mm", residual)
	}
	var got, want []float64
	for i := range to.Voxels() {
		x := [3]float64{float64(i % to.Size[0]), float64(i / to.Size[0] % to.Size[1]), float64(i / (to.Size[0] * to.Size[1]))}
		p, y := to.IndexToPhysical().Apply(inverse.Target(i)), to.IndexToPhysical().Apply(x)
		got, want = append(got, p[:]...), append(want, y[:]...)
	}
	e.TransformPoints(got)
	testkit.Close(t, "there and back", got, want, 2e-3)
}
