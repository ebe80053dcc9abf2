package align

import (
	"context"
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// lattice is a cube of points whose matches come from to.
func lattice(to func(p [3]float64, i int) [3]float64) (matches []match) {
	for i := range 11 * 11 * 11 {
		p := [3]float64{10 * float64(i%11), 10 * float64(i/11%11), 10 * float64(i/121)}
		matches = append(matches, match{p, to(p, i), 1})
	}
	return matches
}

// A lattice scatters alike in all directions, so the ridge divides the strain by 1 + stiffness and nothing else.
func TestRidgeFitMatchesClosedForm(t *testing.T) {
	m := [9]float64{1.2, 0.1, 0, -0.05, 0.9, 0.02, 0, 0.3, 1}
	truth := volume.Affine{M: m, T: [3]float64{3, -20, 7}}
	got, ok := ridgeFit(lattice(func(p [3]float64, _ int) [3]float64 { return truth.Apply(p) }))
	if !ok {
		t.Fatal("no fit")
	}
	for i := range m {
		if want := volume.Identity[i] + (m[i]-volume.Identity[i])/(1+stiffness); math.Abs(got.M[i]-want) > 1e-9 {
			t.Errorf("linear part %d: %v, want %v", i, got.M[i], want)
		}
	}
	if c := [3]float64{50, 50, 50}; volume.Distance(got.Apply(c), truth.Apply(c)) > 1e-9 {
		t.Errorf("the centre goes to %v, want %v", got.Apply(c), truth.Apply(c))
	}
}

func TestTrimmedFit(t *testing.T) {
	shift := [3]float64{12, -5, 30}
	moved := func(p [3]float64) [3]float64 { return [3]float64{p[0] + shift[0], p[1] + shift[1], p[2] + shift[2]} }
	got := trimmedFit(lattice(func(p [3]float64, i int) [3]float64 {
		if i%5 < 2 { // two in five are wrong, all in one direction
			return [3]float64{p[0] - 40, p[1], p[2]}
		}
		return moved(p)
	}))
	for _, p := range [][3]float64{{}, {100, 0, 0}, {0, 100, 0}, {0, 0, 100}} {
		if d := volume.Distance(got.Apply(p), moved(p)); d > 1e-6 {
			t.Errorf("%v is off by %v mm", p, d)
		}
	}
	exact := trimmedFit(lattice(func(p [3]float64, _ int) [3]float64 { return moved(p) }))
	if exact != (volume.Affine{M: volume.Identity, T: shift}) {
		t.Errorf("matches that leave no residual are fitted by %v", exact)
	}
	for name, matches := range map[string][]match{
		"no matches": nil,
		"one place":  {{to: shift, weight: 1}, {to: shift, weight: 1}},
		"no weight":  {{to: shift}, {at: shift}},
	} {
		if got := trimmedFit(matches); got != volume.IdentityAffine() {
			t.Errorf("%s: %v, want the identity", name, got)
		}
	}
}

func TestConsensusFindsTheWayBack(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	g := grid([3]int{70, 66, 76}, [3]float64{1.6, 1.6, 1.6}, volume.Identity, [3]float64{})
	truth := about(volume.Identity, [3]float64{20, 0, -10})
	back, _ := truth.Inverse()
	a := aligner{
		ctx:    context.Background(),
		fixed:  p.image(g, volume.IdentityAffine(), nil),
		moving: p.image(g.CenteredAt(truth.T), back, otherContrast),
	}
	h := comparisonSpacing(a.fixed.Geometry, a.moving.Geometry)
	v := testkit.Must(a.describe(h, volume.Identity))(t)
	for name, start := range map[string]volume.Affine{
		"there":          truth,
		"8 mm off":       about(volume.Identity, [3]float64{20, 0, -2}),
		"off and scaled": about([9]float64{1, 0, 0, 0, 1.05, 0, 0, 0, 0.92}, [3]float64{16, 3, -10}),
	} {
		t.Run(name, func(t *testing.T) {
			got := testkit.Must(a.consensus(v, start))(t)
			before, after := worst(start, truth), worst(got, truth)
			t.Logf("off by %.2f mm, then %.2f mm", before, after)
			if after > max(0.5, before/2) { // the ridge holds back what is not a translation
				t.Errorf("off by %.2f mm, before %.2f", after, before)
			}
		})
	}
}
