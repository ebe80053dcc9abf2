package volume_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// An image of whole steps is itself under noise far below a step, in whatever unit.
func TestSteps(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	grid := testkit.Grid([3]int{40, 30, 20})
	image := func(scale, offset, noise float64, levels int) *volume.Volume {
		numbers := rand.New(rand.NewPCG(3, 4))
		return testkit.Filled(grid, func(i int) float32 {
			k := 0
			if i%3 > 0 { // the rest is background
				k = 20 + int(math.Abs(numbers.NormFloat64())*float64(levels)/5)
			}
			return float32(scale*(float64(k)+noise*random.NormFloat64()) + offset)
		})
	}
	for name, c := range map[string]struct {
		scale, offset, noise float64 // of steps
		levels               int
	}{
		"whole numbers":           {1, 0, 0.004, 4000},
		"of sixteen bits":         {1, 0, 0.065, 65000},
		"Hounsfield units":        {1, -1024, 0.004, 4000},
		"a file's slope":          {5.9588623, 0, 1e-3, 250},
		"a slope and an offset":   {0.0372, 12.34, 1e-3, 250},
		"a parameter map":         {1e-6, 0, 1e-3, 3000},
		"every third number":      {3, 1, 1e-3, 1000},
		"a large slope":           {3085.59375, 0, 1e-3, 300},
		"a scanner's lesser unit": {0.25, -1000, 0.01, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			clean, noisy := image(c.scale, c.offset, 0, c.levels), image(c.scale, c.offset, c.noise, c.levels)
			a, b := clean.Plausible(), noisy.Plausible()
			if !slices.Equal(a.Data, b.Data) {
				t.Errorf("under noise the image is another: %v, not %v", b.Data[:8], a.Data[:8])
			}
			span := c.scale * float64(c.levels)
			for i, x := range a.Data {
				if math.Abs(float64(x-clean.Data[i])) > 1e-4*span+0.01*c.scale {
					t.Fatalf("voxel %d is %g, want about %g", i, x, clean.Data[i])
				}
			}
			if c.scale == 1 && a != clean {
				t.Error("whole numbers were copied")
			}
		})
	}
}

func TestNoSteps(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	grid := testkit.Grid([3]int{30, 30, 20})
	for name, value := range map[string]func() float32{
		"any number":            func() float32 { return 1000 * random.Float32() },
		"background and floats": func() float32 { return max(0, 100*float32(random.NormFloat64())) },
		"a map of shares":       func() float32 { return float32(1 / (1 + math.Exp(4*random.NormFloat64()))) },
		"below one":             func() float32 { return 0.3 * random.Float32() },
		"a mask, smoothed":      func() float32 { return float32(random.IntN(2)) + 0.1*random.Float32() },
		"steps under noise":     func() float32 { return float32(random.IntN(100)) + 0.3*float32(random.NormFloat64()) },
	} {
		if v := testkit.Filled(grid, func(int) float32 { return value() }); v.Plausible() != v {
			t.Errorf("%s: the volume changed", name)
		}
	}
}
