package referee

import (
	"math"
	"math/rand/v2"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// The moves by which Evidence shakes a candidate, in voxels of a grid of so many.
const shakenVoxels, nearest, farthest = 30_000, 3, 8

// Nearest is the shortest move of Evidence, mm: what lies farther apart are two places.
func (r *Referee) Nearest() float64 { return nearest * voxel(thinned(r.grid, shakenVoxels)) }

// voxel is the side of a cube as large as a voxel of g, mm; of a slice that of a square: its thickness is as it was where
// its plane was thinned.
func voxel(g volume.Geometry) float64 {
	if g.Flat() {
		return math.Sqrt(g.Spacing[0] * g.Spacing[1])
	}
	return math.Cbrt(g.Spacing[0] * g.Spacing[1] * g.Spacing[2])
}

// Evidence is the relative growth of the descriptors' mean distance when p -> initial(p + d(p)) is moved by 3 to 8 voxels
// of a coarse grid, both ways along three orthogonal axes (a slice: two). reach is the longest, mm.
func (r *Referee) Evidence(initial volume.Affine, deform *field.Field) (growth, reach float64) {
	coarse := r.coarse(shakenVoxels)
	here := coarse.Look(initial, deform)
	spacing := voxel(coarse.grid)
	rng := rand.New(rand.NewPCG(1, 2))
	sum, looks := 0.0, 0
	for _, axis := range axes(rng, coarse.grid.Flat()) {
		far := spacing * (nearest + float64((farthest-nearest)*rng.Float64()))
		reach = max(reach, far)
		for _, way := range []float64{far, -far} {
			shaken := initial
			for a := range 3 {
				shaken.T[a] += float64(way * axis[a])
			}
			sum += math.Exp(coarse.Compare(coarse.Look(shaken, deform), here).Distance) - 1
			looks++
		}
	}
	return sum / float64(looks), reach
}

// coarse returns the referee of the same pair on a grid of no more than so many voxels.
func (r *Referee) coarse(voxels int) *Referee {
	return on(thinned(r.grid, voxels), r.threads,
		&volume.Volume{Geometry: r.grid, Data: r.fixed}, &volume.Volume{Geometry: r.grid, Data: r.known}, r.moving, r.movingKnown.Volume())
}

// axes returns three directions at right angles, turned at random; of a slice two, in its plane.
func axes(rng *rand.Rand, flat bool) [][3]float64 {
	out := make([][3]float64, 3)
	if flat {
		out = out[:2]
	}
	for k := range out {
		v := [3]float64{rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()}
		if flat {
			v[2] = 0
		}
		for _, before := range out[:k] {
			along := volume.Dot(v, before)
			for a := range v {
				v[a] -= float64(along * before[a])
			}
		}
		length := volume.Norm(v)
		for a := range v {
			out[k][a] = v[a] / length
		}
	}
	return out
}
