package volume_test

import (
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/volume"
)

func TestBlockMeans(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	v := &volume.Volume{
		Geometry: volume.Geometry{Size: [3]int{3, 2, 1}, Spacing: [3]float64{1, 2, 3}, Direction: volume.Identity},
		Data:     []float32{1, 3, 7, 5, nan, nan},
	}
	mask := &volume.Volume{Geometry: v.Geometry, Data: []float32{1, 0, 1, 1, 1, 1}}
	for _, c := range []struct {
		name        string
		mask        *volume.Volume
		mean, known []float32
	}{
		{"everywhere", nil, []float32{3, 7}, []float32{0.75, 0.25}},
		{"within a mask", mask, []float32{3, 7}, []float32{0.5, 0.25}},
		{"nothing known", &volume.Volume{Geometry: v.Geometry, Data: make([]float32, 6)}, []float32{nan, nan}, []float32{0, 0}},
	} {
		mean, known := v.BlockMeans([3]int{2, 2, 1}, c.mask, 1)
		if mean.Size != [3]int{2, 1, 1} || mean.Spacing != [3]float64{2, 4, 3} || mean.Origin != [3]float64{0.5, 1, 0} {
			t.Errorf("%s: blocks on %v", c.name, mean.Geometry)
		}
		for i, want := range c.mean {
			if got := mean.Data[i]; got != want && !(math.IsNaN(float64(got)) && math.IsNaN(float64(want))) {
				t.Errorf("%s: block %d has the mean %g, want %g", c.name, i, got, want)
			}
			if known.Data[i] != c.known[i] {
				t.Errorf("%s: of block %d %g is known, want %g", c.name, i, known.Data[i], c.known[i])
			}
		}
	}
}
