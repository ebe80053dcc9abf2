package landmark

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

var (
	fixed = [][3]float64{
		{-19.6, -5.2, 49.9}, {19.8, -49.2, -0.2}, {-18.7, 4.5, -48.2}, {7.3, 7.1, 47.3}, {9.5, 15.3, -44.8},
		{67.6, -57.5, 33.1}, {-9.9, -26.4, -19.7}, {-20.2, 11.4, -3.3}, {44.5, -54.9, -0.1}, {-26.8, 23.3, -63.5},
	}
	moving = [][3]float64{
		{-18.5, -32.3, 45.9}, {48.4, -34.0, 7.1}, {-2.3, 6.8, -42.7}, {-2.7, -8.4, 55.9}, {13.2, 28.0, -28.1},
		{84.2, -29.2, 52.3}, {16.4, -23.4, -18.1}, {-16.7, -2.5, -0.3}, {71.1, -26.9, 13.5}, {-15.8, 23.7, -56.0},
	}
)

func pairs(n int) (out []Pair) {
	for i := range n {
		out = append(out, Pair{fixed[i], moving[i]})
	}
	return out
}

// The rigid fit is that of scipy.spatial.transform.Rotation.align_vectors, the affine one that of scipy.linalg.lstsq.
func TestFit(t *testing.T) {
	rigid := Fit(pairs(10), false)
	testkit.Close(t, "rotation", rigid.M[:], []float64{0.811049939, -0.54683512, -0.207772345, 0.472957273, 0.822002468, -0.317211853, 0.344251963, 0.159007213, 0.925314699}, 1e-8)
	testkit.Close(t, "its translation", rigid.T[:], []float64{5.166059533, -3.102967608, 7.781094679}, 1e-7)
	affine := Fit(pairs(10), true)
	testkit.Close(t, "matrix", affine.M[:], []float64{0.796155342, -0.559862845, -0.210214, 0.471890557, 0.822667349, -0.314559846, 0.344308781, 0.165195745, 0.926075856}, 1e-8)
	testkit.Close(t, "its translation", affine.T[:], []float64{5.062214574, -3.075383412, 7.865999508}, 1e-7)
}

// Few points, or points on a line or in a plane, fix no more than they can.
func TestFitOfFewPoints(t *testing.T) {
	shear := volume.Affine{M: [9]float64{1.1, 0.2, 0, 0, 0.9, 0, 0, 0, 1}, T: [3]float64{1, 2, 3}}
	of := func(points ...[3]float64) (out []Pair) {
		for _, p := range points {
			out = append(out, Pair{p, shear.Apply(p)})
		}
		return out
	}
	line := of([3]float64{0, 0, 0}, [3]float64{0, 0, 1}, [3]float64{0, 0, 5}, [3]float64{0, 0, 9})
	var plane []Pair
	for i := range 12 {
		plane = append(plane, of([3]float64{float64(i % 4), float64(i / 4), 0})...)
	}
	for _, c := range []struct {
		name       string
		pairs      []Pair
		translates bool
	}{{"one", line[:1], true}, {"two", line[:2], true}, {"a line", line, true}, {"a plane", plane, false}} {
		m := Fit(c.pairs, true)
		if translates := m.M == volume.Identity; translates != c.translates || math.Abs(m.Det()-1) > 1e-9 {
			t.Errorf("%s: %v", c.name, m)
		}
	}
}

// Exchanged sides are told from a turn, a stretch and an error of the points; few points and points in a plane are
// taken as they are.
func TestMirrored(t *testing.T) {
	turn := Fit(pairs(10), false)
	of := func(points [][3]float64, side, thick, noise float64) (out []Pair) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, p := range points {
			p[2] *= thick
			to := turn.Apply([3]float64{1.1 * side * p[0], p[1], 0.95 * p[2]})
			if thick == 0 {
				to = [3]float64{side*p[0] + 5, p[1] - 2, 0}
			}
			for a := range to {
				to[a] += noise * rng.NormFloat64()
			}
			out = append(out, Pair{p, to})
		}
		return out
	}
	for _, c := range []struct {
		name  string
		pairs []Pair
		flat  bool
		want  bool
	}{
		{"as they are", of(fixed, 1, 1, 3), false, false},
		{"mirrored", of(fixed, -1, 1, 3), false, true},
		{"four, mirrored", of(fixed[:4], -1, 1, 0), false, false},
		{"in a plane of space, which a half turn lays over its mirror image", of(fixed, -1, 0, 0), false, false},
		{"nearly in a plane", of(fixed, 1, 0.02, 3), false, false},
		{"in a slice, as they are", of(fixed, 1, 0, 1), true, false},
		{"in a slice, mirrored", of(fixed, -1, 0, 1), true, true},
		{"all at one point", make([]Pair, 8), false, false},
	} {
		if got := Mirrored(c.pairs, c.flat, 1); got != c.want {
			t.Errorf("%s: mirrored %t", c.name, got)
		}
	}
}

// One wrong pair is found whatever the others' noise, and sound ones stay.
func TestContradictory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for trial := range 20 {
		sound := pairs(10)
		for i := range sound {
			for a := range 3 {
				sound[i].Moving[a] += 2 * rng.NormFloat64()
			}
		}
		if wrong := Contradictory(sound, 1); wrong != nil {
			t.Errorf("trial %d: sound pairs %v left out", trial, wrong)
		}
		i := trial % len(sound)
		sound[i].Moving[trial%3] += 90
		if wrong := Contradictory(sound, 1); !slices.Equal(wrong, []int{i}) {
			t.Errorf("trial %d: %v left out, not %d", trial, wrong, i)
		}
	}
	if wrong := Contradictory(pairs(4), 1); wrong != nil {
		t.Errorf("of four pairs none can be told to be wrong, and %v is", wrong)
	}
}

// The displacement is that of scikit-learn's GaussianProcessRegressor with a Matern kernel (nu 1.5), of the likeliest
// length and variance among the same.
func TestPull(t *testing.T) {
	d := [][3]float64{
		{-1.88, 1.98, -2.5}, {1.9, 0.67, 0.01}, {-1.8, 1.99, 2.41}, {0.73, 1.97, -2.36}, {0.94, 1.86, 2.24},
		{3.97, 0.27, -1.66}, {-0.98, 1.58, 0.98}, {-1.94, 1.92, 0.16}, {3.59, 0.39, 0.0}, {-2.48, 1.67, 3.18},
	}
	p, _ := NewPull(t.Context(), fixed, d, 1, 160, 1)
	if p == nil || p.Reach() != 160 {
		t.Fatalf("%+v", p)
	}
	for x, want := range map[[3]float64][3]float64{
		{0, 0, 0}: {-0.28979649, 1.782026, 0.00415709}, {20, -10, 15}: {1.17226876, 1.47378369, -0.79323354}, {-40, 30, 5}: {-2.50092552, 2.04865276, 0.00270637},
	} {
		got := p.At(x)
		testkit.Close(t, "displacement", got[:], want[:], 1e-6)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if p, _ := NewPull(done, fixed, d, 1, 160, 1); p != nil {
		t.Error("a cancelled search went on")
	}
	g := volume.Geometry{Size: [3]int{2, 1, 2}, Spacing: [3]float64{20, 1, 5}, Origin: [3]float64{-40, 30, 5}, Direction: volume.Identity}
	sampled, at := p.Sample(g, 2), p.At([3]float64{-20, 30, 10})
	for a := range 3 {
		if math.Abs(float64(sampled[9+a])-at[a]) > 1e-6 {
			t.Errorf("sampled %v, want %v", sampled[9:], at)
		}
	}
}

// What the error of the points explains moves nothing; nor does one point that is off by more shift the whole.
func TestPullOfNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pulled := 0
	for range 50 {
		d := make([][3]float64, len(fixed))
		for i := range d {
			for a := range 3 {
				d[i][a] = rng.NormFloat64() / math.Sqrt(3)
			}
		}
		if p, _ := NewPull(t.Context(), fixed, d, 1, 160, 1); p != nil {
			pulled++
		}
	}
	if pulled > 5 {
		t.Errorf("%d of 50 times noise was followed", pulled)
	}
}
