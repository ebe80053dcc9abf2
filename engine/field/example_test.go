package field_test

import (
	"fmt"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// A transform pulls: the point of the fixed grid goes where the moving image is read.
func Example() {
	g := volume.Geometry{Size: [3]int{4, 3, 2}, Spacing: [3]float64{2, 2, 2}, Direction: volume.Identity}
	moving := volume.Zeros(g)
	for i := range moving.Data {
		moving.Data[i] = float32(i % 4) // x
	}
	shift := volume.IdentityAffine()
	shift.T[0] = 2 // mm: one voxel along x
	u := field.FromAffine(g, shift)
	fmt.Println(u.Warp(moving, volume.Linear, -1, 0).Data[:4])

	point := []float64{0, 0, 0}
	u.TransformPoints(point)
	fmt.Println(point)

	twice := field.Compose(nil, u, u, 0)
	fmt.Println(twice.Stats(0).DisplacementMaxMM)
	// Output:
	// [1 2 3 -1]
	// [2 0 0]
	// 4
}
