package referee

import (
	"math"
	"math/rand/v2"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/volume"
)

// Evidence is by how much the descriptors' mean distance grows when the candidate p -> initial(p + d(p)) is moved by three to eight voxels
// of a coarse grid in random directions: the mean of the relative growth, and that over its standard deviation. Where it does not grow,
// nothing in the images speaks for this place.
func Evidence(pair aligned.Pair, initial volume.Affine, deform *field.Field, threads int) (growth, certainty float64) {
	const voxels, directions, nearest, farthest = 60_000, 10, 3, 8
	r := at(pair, voxels, threads)
	here := r.Look(initial, deform)
	rng := rand.New(rand.NewPCG(1, 2))
	spacing := math.Cbrt(r.grid.Spacing[0] * r.grid.Spacing[1] * r.grid.Spacing[2])
	sum, square := 0.0, 0.0
	for range directions {
		var v [3]float64
		length := 0.0
		for a := range v {
			v[a] = rng.NormFloat64()
			length += float64(v[a] * v[a])
		}
		scale := spacing * (nearest + float64((farthest-nearest)*rng.Float64())) / math.Sqrt(length)
		shaken := initial
		for a := range v {
			shaken.T[a] += float64(scale * v[a])
		}
		grown := math.Exp(r.Compare(r.Look(shaken, deform), here).Distance) - 1
		sum += grown
		square += float64(grown * grown)
	}
	growth = sum / directions
	spread := math.Sqrt(max(square/directions-float64(growth*growth), 0))
	if spread == 0 {
		return growth, 0
	}
	return growth, growth / spread
}
