package refine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// A field that is linear keeps its values on the coarser grid and back, away from the border; any field keeps its bits
// without the processor's vectors.
func TestHalvedAndDoubled(t *testing.T) {
	for _, size := range [][3]int{{40, 8, 6}, {37, 9, 5}, {33, 12, 1}, {3, 2, 2}, {1, 1, 1}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			g := testkit.Grid(size)
			linear, noise := field.New(g), field.New(g)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range linear.X {
				p := g.Point(i)
				linear.X[i], linear.Y[i], linear.Z[i] = float32(p[0]), float32(p[1]-p[2]), float32(2*p[2])
			}
			for i := range noise.Data {
				noise.Data[i] = float32(r.NormFloat64())
			}
			back := func(f *field.Field) *field.Field {
				coarse, out := field.New(halved(g)), field.New(g)
				halve(coarse, f, 0, f.Size[2], 2)
				d := &doubled{coarse, size, make([]float32, coarse.Size[0]+2)}
				for z := range size[2] {
					for y := range size[1] {
						row := out.Row(y, z)
						d.row(row[:], y, z)
					}
				}
				return out
			}
			got, bits := back(linear), back(noise)
			for i := range got.X {
				p, inside := g.Point(i), true
				for a, n := range size {
					inside = inside && (n == 1 || p[a] > 0 && p[a] < float64(n&^1-1))
				}
				for k, want := range [][]float32{linear.X, linear.Y, linear.Z} {
					v := [][]float32{got.X, got.Y, got.Z}[k][i]
					if inside && math.Abs(float64(v-want[i])) > 1e-5 {
						t.Fatalf("component %d at %v is %g, want %g", k, p, v, want[i])
					}
				}
			}
			defer cpu.Disable()()
			if !slices.Equal(back(noise).Data, bits.Data) {
				t.Error("the loops give other bits than the vectors")
			}
		})
	}
}

func TestLargeGrids(t *testing.T) {
	for _, c := range []struct {
		size [3]int
		want bool
	}{
		{[3]int{159, 200, 165}, true},
		{[3]int{158, 187, 49}, false}, // few slices
		{[3]int{72, 72, 24}, false},
		{[3]int{72, 72, 72}, true},
		{[3]int{40, 40, 40}, false}, // few voxels
		{[3]int{512, 512, 1}, true}, // a slice
		{[3]int{2000, 70, 1}, false},
	} {
		if got := isLarge(c.size); got != c.want {
			t.Errorf("isLarge(%v) is %t, want %t", c.size, got, c.want)
		}
	}
}

// A force that is halved slice by slice, as its ring fills, is the same as one that is kept whole.
func TestHalvedInParts(t *testing.T) {
	t.Parallel()
	g := testkit.Grid([3]int{190, 170, 21})
	fixed, moving := volume.Zeros(g), volume.Zeros(g)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range fixed.Data {
		if g.Index(i)[1] > 30 { // rows before show nothing
			fixed.Data[i] = r.Float32()
		}
		moving.Data[i] = r.Float32()
	}
	im := pairOf(fixed, moving).At(g, margin, aligned.RepeatedEdge, 2)
	s, u := newNCC(im, 2), wave(g, 0.7)
	s.validate(u)
	whole, want, got := field.New(g), field.New(halved(g)), field.New(halved(g))
	value := s.force(whole, u, unheard)
	halve(want, whole, 0, g.Size[2], 1)
	part := g
	if part.Size[2] = s.part(); part.Size[2] >= g.Size[2] || part.Size[2]%2 != 0 {
		t.Fatalf("parts of %d slices", part.Size[2])
	}
	ring := field.New(part)
	if again := s.force(ring, u, func(from, to int) { halve(got, ring, from, to, 2) }); again != value {
		t.Errorf("value %g in parts, %g as a whole", again, value)
	}
	if !slices.Equal(got.Data, want.Data) {
		t.Error("the force in parts differs")
	}
}
