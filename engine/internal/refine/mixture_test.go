package refine

import (
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
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
	channel := func(c aligned.Channel, weight float64) Pair {
		c.Weight = weight
		return Pair{Fixed: fixed, Moving: moving, Initial: identity, Channels: []aligned.Channel{c}}
	}
	images := aligned.Channel{Pair: Pair{Fixed: fixed, Moving: moving}, Intensities: true}
	maps := aligned.Channel{Pair: Pair{Fixed: labels(fixed), Moving: labels(moving)}, Labels: 2}
	for _, c := range []struct {
		name      string
		main      Similarity
		pair      Pair
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
		u, force, direction := wave(g, 0.7), field.New(g), field.New(g)
		s.validate(u)
		s.force(direction, field.New(g), u)
		direction = direction.Smoothed(nil, 2, 1)
		length := 0.0
		for _, d := range direction.Data {
			length = max(length, math.Sqrt(3)*math.Abs(float64(d)))
		}
		at := func(h float32) float64 {
			step := field.New(g)
			for i, d := range direction.Data {
				step.Data[i] = h * d / float32(length)
			}
			return s.force(field.New(g), field.New(g), field.Compose(nil, u, step, 1))
		}
		s.force(force, field.New(g), u)
		predicted := 0.0
		for i, d := range direction.Data {
			predicted += float64(d) * float64(force.Data[i]) / length
		}
		const h = 0.05
		measured := (at(h) - at(-h)) / (2 * h)
		if math.Abs(predicted-measured) > c.tolerance*math.Abs(measured) {
			t.Errorf("%s: derivative %g, finite differences say %g", c.name, predicted, measured)
		}
	}
}
