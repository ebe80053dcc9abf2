package field

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/morphseek/morphseek/engine/volume"
)

// Rows that keep what they have interpolated give the bits of one point after the other.
func TestResampleOnParallelAxes(t *testing.T) {
	fine := volume.Geometry{Size: [3]int{37, 21, 30}, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity}
	for _, block := range [][3]int{{1, 1, 1}, {3, 3, 3}, {2, 1, 4}, {40, 40, 40}} {
		t.Run(fmt.Sprint(block), func(t *testing.T) {
			f := New(fine.Blocks(block))
			r := rand.New(rand.NewPCG(1, 1))
			for i := range f.Data {
				f.Data[i] = float32(r.NormFloat64())
			}
			got, to, scale := f.Resample(fine, 2), fine.To(f.Geometry), f.To(fine).M
			for i := range got.X {
				u := f.At(to.Apply(fine.Point(i)))
				for k, v := range [3]float32{got.X[i], got.Y[i], got.Z[i]} {
					if want := float32(scale[4*k] * u[k]); v != want {
						t.Fatalf("component %d at %v is %g, want %g", k, fine.Point(i), v, want)
					}
				}
			}
		})
	}
}
