package refine

import (
	"math"
	"runtime"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// The force of several channels is the derivative of their value, as finite differences show it, and every channel has
// its share in it by its weight.
func TestForceOfChannels(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(32, 2, false)
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
		t.Run(c.name, func(t *testing.T) {
			r := New(c.pair, nil, Options{Similarity: c.main, Iterations: 1, Voxels: 1 << 20, Threads: 1})
			g := c.pair.Grid(1)
			smooth := Regularisation{}
			first := testkit.Must(newSimilarity(c.main, r.sharpened(c.pair.At(g, margin, aligned.RepeatedEdge, 1), smooth), 1))(t)
			s := testkit.Must(r.channels(first, g, smooth))(t)
			predicted, measured := slopes(s, g)
			if math.Abs(predicted-measured) > c.tolerance*math.Abs(measured) {
				t.Errorf("derivative %g, finite differences say %g", predicted, measured)
			}
		})
	}
}

// Channels keep to the threads that are asked for: with one nothing runs beside the caller.
func TestChannelsKeepToThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	fixed, moving, _ := testkit.Phantom(40, 2, false)
	pair := pairOf(fixed, moving)
	pair.Channels = []aligned.Channel{{Pair: pair, Weight: 1, Intensities: true}}
	by := Regularisation{Fluid: 2, Elastic: 0.5}
	extra := 0
	for range 3 { // the runtime may start one of its own meanwhile
		done, most := make(chan struct{}), make(chan int)
		before := runtime.NumGoroutine() + 1
		go func() {
			n := 0
			for {
				select {
				case <-done:
					most <- n
					return
				default:
					n = max(n, runtime.NumGoroutine())
				}
			}
		}()
		_, _, err := Run(t.Context(), pair, nil, by, Options{Similarity: NCC, Iterations: 20, Voxels: 1 << 20, Threads: 1, Progress: func(float64) {}})
		close(done)
		if extra = <-most - before; err != nil {
			t.Fatal(err)
		}
		if extra <= 0 {
			return
		}
	}
	t.Errorf("%d goroutines beside those of the test", extra)
}
