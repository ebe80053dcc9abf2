package refine

import (
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/testpair"
	"github.com/morphseek/morphseek/engine/volume"
)

// The force of several channels is the derivative of their value, as finite differences show it, and every channel has its share in it by its
// weight.
func TestForceOfChannels(t *testing.T) {
	fixed, moving, _ := testpair.Phantom(32, 2, false)
	identity := volume.IdentityAffine()
	labels := func(v *volume.Volume) *volume.Volume {
		out, cut := volume.Zeros(v.Geometry), v.Percentiles(60, 85)
		for i, x := range v.Data {
			for _, c := range cut {
				if float64(x) > c {
					out.Data[i]++
				}
			}
		}
		return out
	}
	channel := func(c aligned.Channel, weight float64) aligned.Pair {
		c.Weight = weight
		return aligned.Pair{Fixed: fixed, Moving: moving, Initial: identity, Channels: []aligned.Channel{c}}
	}
	images := aligned.Channel{Pair: aligned.Pair{Fixed: fixed, Moving: moving}, Intensities: true}
	maps := aligned.Channel{Pair: aligned.Pair{Fixed: labels(fixed), Moving: labels(moving)}, Labels: 2}
	for _, c := range []struct {
		name      string
		main      Similarity
		pair      aligned.Pair
		tolerance float64
	}{
		{"images and labels", NCC, channel(maps, 1), 0.15},
		{"images and images", NCC, channel(images, 2), 0.12},
		{"descriptors and images", MIND, channel(images, 0.5), 0.15},
	} {
		r := New(c.pair, nil, Options{Similarity: c.main, Iterations: 1, Voxels: 1 << 20, Threads: 1})
		g := c.pair.Grid(1)
		smooth := Regularisation{}
		first, err := newSimilarity(c.main, r.sharpened(c.pair, g, smooth), 1)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.channels(first, g, smooth)
		if err != nil {
			t.Fatal(err)
		}
		predicted, measured := slopes(s, g)
		if math.Abs(predicted-measured) > c.tolerance*math.Abs(measured) {
			t.Errorf("%s: derivative %g, finite differences say %g", c.name, predicted, measured)
		}
	}
}
