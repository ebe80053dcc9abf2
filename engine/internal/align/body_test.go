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

// bump is a part of a histogram.
func bump(height, middle, width float64) func(float64) float64 {
	return func(b float64) float64 { return height * math.Exp(-(b-middle)*(b-middle)/(2*width*width)) }
}

func histogramOf(terms ...func(float64) float64) []float64 {
	histogram := make([]float64, 256)
	for b := range histogram {
		for _, term := range terms {
			histogram[b] += math.Round(term(float64(b)))
		}
	}
	return histogram
}

// A background is a peak that falls sharply or that tissue follows; dark tissue falls slowly into a tail.
func TestFalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		terms []func(float64) float64
		want  bool
	}{
		{"zeros before tissue", []func(float64) float64{bump(9000, 0, 0.3), bump(300, 120, 30)}, true},
		{"zeros within a hump of fat", []func(float64) float64{bump(160000, 0, 0.3), bump(17000, 9, 5), bump(2700, 120, 30)}, true},
		{"broad noise, little tissue", []func(float64) float64{bump(600, 23, 6), bump(20, 170, 15)}, true},
		{"noise, tissue upon its tail", []func(float64) float64{bump(600, 30, 10), bump(400, 100, 25)}, true},
		{"dark tissue", []func(float64) float64{func(b float64) float64 { return 5000 * math.Exp(1-(b+1)/13) * (b + 1) / 13 }, bump(60, 160, 20)}, false},
		{"a tail that rises", []func(float64) float64{bump(500, 130, 40)}, false},
	} {
		if got := falls(histogramOf(c.terms...)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The end lies where the fall does, whatever hundredth of the voxels noise moves by a bin.
func TestEndOf(t *testing.T) {
	t.Parallel()
	flat := func(float64) float64 { return 100 }
	for _, c := range []struct {
		name      string
		histogram []float64
		peak      int
		want      float64 // bins
	}{
		{"zeros before tissue as frequent everywhere", histogramOf(bump(9000, 0, 0.3), flat), 0, 4.99},
		{"an exponential fall to a level", histogramOf(func(b float64) float64 { return 1e5 * math.Exp(-b/6) }, flat), 0, 53},
		{"tissue behind a valley", histogramOf(bump(9000, 10, 4), bump(2000, 60, 12)), 10, 23},
		{"a fall without end", histogramOf(func(b float64) float64 { return 1e9 * math.Exp(-b/9) }), 0, 128},
	} {
		got := endOf(c.histogram, c.peak)
		if math.Abs(got-c.want) > 1 {
			t.Errorf("%s: it ends at %.2f, want %.2f", c.name, got, c.want)
		}
		noisy := make([]float64, len(c.histogram))
		for b, n := range c.histogram { // a hundredth of the voxels of each bin lie in the next
			noisy[b] += n - n/100
			if b+1 < len(noisy) {
				noisy[b+1] += n / 100
			}
		}
		if moved := endOf(noisy, c.peak); math.Abs(moved-got) > 0.3 {
			t.Errorf("%s: it ends at %.2f, and with noise at %.2f", c.name, got, moved)
		}
	}
}

func TestEndOfFewVoxels(t *testing.T) {
	t.Parallel()
	if got := endOf(histogramOf(bump(5, 3, 0.1)), 0); got != 8 { // the first bin with nothing around it
		t.Errorf("it ends at %g", got)
	}
}
