package refine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// What the agreement of two images comes to where that is known by construction.
func TestAgreement(t *testing.T) {
	g := testkit.Grid([3]int{24, 22, 20})
	rng := rand.New(rand.NewPCG(1, 2))
	texture := testkit.Drawn(g, rng.Float32)
	made := func(of func(i int, f float32) float32) *volume.Volume {
		return testkit.Filled(g, func(i int) float32 { return of(i, texture.Data[i]) })
	}
	half := func(i int) bool { return i/(g.Size[0]*g.Size[1]) < g.Size[2]/2 }
	for _, c := range []struct {
		name            string
		moving          *volume.Volume
		c, n, gain, tol float64
	}{
		{"itself", texture, 1, 0, 0, 0.01},
		{"another scale", made(func(_ int, f float32) float32 { return 0.3 + 0.5*f }), 1, 0, 0, 0.01},
		{"inverted", made(func(_ int, f float32) float32 { return 1 - f }), 1, 1, 0, 0.01},
		// Noise of the texture's own variance takes half of a squared correlation of 1.
		{"as much noise", made(func(_ int, f float32) float32 { return f + rng.Float32() }), 0.5, 0, 0, 0.1},
		{"unrelated", made(func(int, float32) float32 { return rng.Float32() }), 0.01, 0.5, 0, 0.15},
		// Half at 1 and half at 1/4: the logarithms ln 4 apart have a standard deviation of ln 2.
		{"two gains", made(func(i int, f float32) float32 {
			if half(i) {
				return f
			}
			return f / 4
		}), 1, 0, math.Ln2, 0.16}, // windows across the border see both
	} {
		t.Run(c.name, func(t *testing.T) {
			im := aligned.Pair{Fixed: texture, Moving: c.moving, Initial: volume.IdentityAffine()}
			images := aligned.Images{Fixed: texture, FixedValid: ones(g)}
			grown := aligned.Grow(g, margin)
			images.Moving = im.Moving.Resample(grown, volume.IdentityAffine(), volume.Nearest, 0, 1)
			images.MovingValid = ones(g).Resample(grown, volume.IdentityAffine(), volume.Nearest, 0, 1)
			a := agree(images, field.New(g), 1)
			if math.Abs(a.Correlation-c.c) > c.tol || math.Abs(a.Gain-c.gain) > c.tol && c.name != "unrelated" || c.c > 0.1 && math.Abs(a.Negative-c.n) > 0.01 {
				t.Errorf("%+v, want correlation %g, negative %g, gain %g", a, c.c, c.n, c.gain)
			}
			if b := agree(images, field.New(g), 3); a != b {
				t.Errorf("%+v by one thread, %+v by three", a, b)
			}
		})
	}
}

func ones(g volume.Geometry) *volume.Volume {
	return &volume.Volume{Geometry: g, Data: slices.Repeat([]float32{1}, g.Voxels())}
}
