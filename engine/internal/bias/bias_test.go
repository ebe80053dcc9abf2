package bias_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/bias"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

const side = 48

// tissue returns the number of the tissue at a voxel: 0 is air.
func tissue(at [3]int) int {
	r := 0.0
	for _, x := range at {
		r += math.Pow(float64(x)-float64(side-1)/2, 2)
	}
	switch r = math.Sqrt(r); {
	case r > 0.45*side:
		return 0
	case r > 0.4*side:
		return 3 // a bright rim
	}
	return 1 + (at[0]/6+at[1]/5+at[2]/7)%2
}

// head returns three tissues with some texture and noise in the field of a coil beside them, which falls off by `depth`.
func head(depth float64) *volume.Volume {
	random := rand.New(rand.NewPCG(1, 2))
	g := testkit.Grid([3]int{side, side, side})
	coil := [3]float64{-10, 30, 60}
	return testkit.Filled(g, func(i int) float32 {
		at, away := g.Index(i), 0.0
		for a, c := range coil {
			away += math.Pow(float64(at[a])-c, 2)
		}
		level := []float64{0, 300, 500, 900}[tissue(at)]
		return float32(level*(1+0.03*random.NormFloat64())*math.Exp(-depth*math.Sqrt(away)/side) + 3*math.Abs(random.NormFloat64()))
	})
}

// spread returns by how much the intensities of tissue k vary, as a share of their mean.
func spread(v *volume.Volume, k int) float64 {
	n, sum, square := 0.0, 0.0, 0.0
	for i, x := range v.Data {
		if tissue(v.Index(i)) == k {
			n, sum, square = n+1, sum+float64(x), square+float64(x)*float64(x)
		}
	}
	mean := sum / n
	return math.Sqrt(square/n-mean*mean) / mean
}

func TestCorrected(t *testing.T) {
	for _, depth := range []float64{0.5, 1} {
		shaded := head(depth)
		even := bias.Corrected(shaded, 2)
		for k := 1; k <= 3; k++ {
			before, after := spread(shaded, k), spread(even, k)
			if after > 0.045 || after > before/2 {
				t.Errorf("depth %g, tissue %d: intensities vary by %.3f, by %.3f before", depth, k, after, before)
			}
		}
	}
}

// TestNoBias checks that images without a bias field, or too small to show one, stay as they are.
func TestNoBias(t *testing.T) {
	flat := head(1)
	flat.Size = [3]int{side, side, 1}
	flat.Data = flat.Data[side*side*side/2:][:side*side]
	for name, v := range map[string]*volume.Volume{
		"even":       head(0),
		"a slice":    flat,
		"constant":   testkit.Filled(testkit.Grid([3]int{20, 20, 20}), func(int) float32 { return 7 }),
		"few voxels": testkit.Filled(testkit.Grid([3]int{6, 6, 6}), func(i int) float32 { return float32(i) }),
	} {
		if bias.Corrected(v, 2) != v {
			t.Errorf("%s: the volume changed", name)
		}
	}
}

// Noise of a millionth changes the corrected image by about as much.
func TestSteady(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	v := head(1)
	noisy := testkit.Filled(v.Geometry, func(i int) float32 { return v.Data[i] + float32(1e-3*random.NormFloat64()) })
	a, b := bias.Corrected(v, 2), bias.Corrected(noisy, 2)
	for i, x := range a.Data {
		if math.Abs(float64(x-b.Data[i])) > 0.02 {
			t.Fatalf("voxel %d: %g, with noise %g", i, x, b.Data[i])
		}
	}
}
