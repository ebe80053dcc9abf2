package field_test

import (
	"math"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// bump returns a smooth displacement of amplitude voxels along x and half as much along z, zero at the border of a cube
// of n.
func bump(n int, amplitude float64) *field.Field {
	f := field.New(cube(n))
	wave := func(i int) float64 { return math.Sin(math.Pi * float64(i) / float64(n-1)) }
	for i := range f.X {
		s := amplitude * wave(i%n) * wave(i/n%n) * wave(i/(n*n))
		f.X[i], f.Z[i] = float32(s), float32(-0.5*s)
	}
	return f
}

// farthest is the greatest displacement of f.
func farthest(f *field.Field) float64 {
	most := 0.0
	for i := range f.X {
		most = max(most, volume.Norm(f.Vector(i)))
	}
	return most
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	const n = 33 // an odd size: the grid of half the resolution reaches beyond the border
	u := bump(n, 6)
	inverse, _ := u.Inverse(u.Geometry, 0)
	for _, c := range []struct {
		name     string
		forward  *field.Field
		backward *field.Field
		reach    float64 // of forward afterwards
		within   float64 // voxels, of the two from each other's inverse
	}{
		{"each other's inverse already", u, inverse, farthest(u), 0.1},
		{"found one way only", u, field.New(u.Geometry), farthest(u) / 2, 0.8},
		{"neither found anything", field.New(u.Geometry), field.New(u.Geometry), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(threads int) (forward, backward *field.Field) {
				forward, backward = field.Over(u.Geometry, slices.Clone(c.forward.Data)), field.Over(u.Geometry, slices.Clone(c.backward.Data))
				field.Reconcile(forward, backward, threads)
				return forward, backward
			}
			forward, backward := run(1)
			if d := math.Abs(farthest(forward) - c.reach); d > 0.1 {
				t.Errorf("reaches %g voxels, want %g", farthest(forward), c.reach)
			}
			before := farthest(field.Compose(nil, c.forward, c.backward, 1))
			after := farthest(field.Compose(nil, forward, backward, 1))
			t.Logf("forward and backward: off by %.3f voxels, %.3f before", after, before)
			if after > c.within {
				t.Errorf("forward and backward is off by %g voxels, want %g at most", after, c.within)
			}
			if again, _ := run(3); !slices.Equal(again.Data, forward.Data) {
				t.Error("the result depends on the number of threads")
			}
		})
	}
}
