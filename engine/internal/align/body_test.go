package align

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/morphseek/morphseek/engine/volume"
)

func TestForeground(t *testing.T) {
	t.Parallel()
	p := newPhantom()
	inside := 4.0 / 3 * math.Pi * 45 * 38 * 55 // mm^3
	rng := rand.New(rand.NewPCG(5, 6))
	crop := grid([3]int{16, 14, 20}, [3]float64{2.5, 2.5, 2.5}, volume.Identity, [3]float64{})
	for _, c := range []struct {
		name  string
		grid  volume.Geometry
		level func(float64) float64
		want  float64 // mm^3
	}{
		{"zero background", fixedGrid(), nil, inside},
		{"Hounsfield units", fixedGrid(), func(v float64) float64 {
			if v == 0 {
				return -1000 + 5*rng.NormFloat64()
			}
			return v - 100
		}, inside},
		{"noise in air, arbitrary units", fixedGrid(), func(v float64) float64 {
			return 1e4 * math.Hypot(v+4*rng.NormFloat64(), 4*rng.NormFloat64())
		}, inside},
		{"crop without background", crop, nil, float64(crop.Voxels()) * 2.5 * 2.5 * 2.5},
		{"crop of dark tissue", crop, func(float64) float64 { return math.Exp(0.8 * rng.NormFloat64()) }, float64(crop.Voxels()) * 2.5 * 2.5 * 2.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			const h = 2.5
			v := p.image(c.grid, volume.IdentityAffine(), c.level)
			w := newResampled(downsample(v, nil, h, 1), h, volume.Identity, 1)
			if got := w.bodyCount * h * h * h; math.Abs(got-c.want) > 0.08*c.want {
				t.Errorf("body of %.0f mm^3, want %.0f", got, c.want)
			}
		})
	}
}
