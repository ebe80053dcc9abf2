package referee

import (
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/volume"
)

// beyond is how many coarse voxels the moving image reaches beyond the fixed one, so that it can be shifted.
const beyond = 6

// Reflection finds the mirror image of the moving image under initial that comes closest to the fixed one. It is
// mirrored along an axis of the fixed grid, about the middle of its intensities, and shifted by whole voxels of a
// coarse grid to where it fits best. gain is the fall of the logarithm of the descriptors' mean distance against the
// image as it is, which is shifted likewise. at is the reflection of the fixed image's space, LPS mm.
func (r *Referee) Reflection(initial volume.Affine) (gain float64, axis int, at volume.Affine) {
	const voxels = 12_000
	coarse := r.coarse(voxels)
	wide := coarse.grid
	wide.Origin = wide.IndexToPhysical().Apply([3]float64{-beyond, -beyond, -beyond})
	for a := range 3 {
		wide.Size[a] += 2 * beyond
	}
	total := field.Total(initial, nil, wide, r.threads)
	image := &volume.Volume{Geometry: wide, Data: repeated(total, r.moving, r.threads)}
	known := total.WarpMask(r.movingKnown, r.threads)
	ours := interleaved(coarse.descriptors)
	least := func(data, known []float32, from [3]int) (float64, [3]int) {
		s := shifting{coarse: coarse, ours: ours, size: wide.Size, known: known,
			theirs: interleaved(mind.Describe(data, known, wide.Size, kernel, r.threads))}
		return s.least(from)
	}
	plain, _ := least(image.Data, known.Data, [3]int{})
	gain, at = math.Inf(-1), volume.IdentityAffine()
	for a := range 3 {
		var from [3]int
		from[a] = int(math.Round(2*middle(image, known, a))) - (wide.Size[a] - 1)
		distance, moved := least(image.Reversed(a).Data, known.Reversed(a).Data, from)
		if g := math.Log(plain / distance); g > gain {
			gain, axis, at = g, a, reflection(coarse.grid, a, moved)
		}
	}
	if math.IsNaN(gain) || math.IsInf(gain, 0) { // nothing to compare
		return math.Inf(-1), 0, volume.IdentityAffine()
	}
	return gain, axis, at
}

// AcrossScales compares the candidate a of this pair with the candidate b of another one, which has the same fixed
// image, on the referee's own grid and on coarser ones: what tells the two sides of a body apart is large.
func (r *Referee) AcrossScales(other *Referee, a, b volume.Affine) (margins []Margin) {
	margins = append(margins, r.Compare(r.Look(a, nil), other.Look(b, nil)))
	for _, voxels := range []int{60_000, 15_000, 4_000} {
		ours, theirs := r.coarse(voxels), other.coarse(voxels)
		margins = append(margins, ours.Compare(ours.Look(a, nil), theirs.Look(b, nil)))
	}
	return margins
}

// reflection maps the points of an image on g that was reversed along an axis, and then shifted by voxels, to where
// they came from.
func reflection(g volume.Geometry, axis int, moved [3]int) volume.Affine {
	m := volume.IdentityAffine()
	for a := range 3 {
		m.T[a] = -float64(moved[a])
	}
	m.M[4*axis] = -1
	m.T[axis] = float64(g.Size[axis] - 1 + moved[axis])
	return g.IndexToPhysical().After(m).After(g.PhysicalToIndex())
}

// interleaved returns descriptors voxel by voxel.
func interleaved(descriptors []float32) [][mind.Channels]float32 {
	n := len(descriptors) / mind.Channels
	out := make([][mind.Channels]float32, n)
	for c := range mind.Channels {
		for i, d := range descriptors[c*n : (c+1)*n] {
			out[i][c] = d
		}
	}
	return out
}

// middle is the mean index along an axis of v's known voxels, weighted by intensity.
func middle(v, known *volume.Volume, axis int) float64 {
	step, n := v.Strides()[axis], v.Size[axis]
	sum, weight := 0.0, 0.0
	for i, x := range v.Data {
		w := float64(x * known.Data[i])
		sum += float64(w * float64(i/step%n))
		weight += w
	}
	if weight == 0 {
		return float64(n-1) / 2
	}
	return sum / weight
}

// shifting compares the fixed image with another one under shifts by whole voxels. The other has beyond voxels more on
// every side.
type shifting struct {
	coarse       *Referee
	size         [3]int // of the other image
	known        []float32
	ours, theirs [][mind.Channels]float32
}

// least returns the least distance that steps of two voxels, then of one, find from the shift at on, and its shift.
func (s *shifting) least(at [3]int) (least float64, place [3]int) {
	const steps = 6 // of each length, at most
	least = s.distance(at)
	for _, length := range []int{2, 1} {
		for range steps {
			from, moved := at, false
			for k := range 27 {
				to := [3]int{from[0] + length*(k%3-1), from[1] + length*(k/3%3-1), from[2] + length*(k/9-1)}
				if d := s.distance(to); d < least {
					least, at, moved = d, to, true
				}
			}
			if !moved {
				break
			}
		}
	}
	return least, at
}

// distance is the descriptors' mean distance where both images show something, weighted by the fixed one's structure.
// It is infinite where they share less than half of that weight.
func (s *shifting) distance(at [3]int) float64 {
	sum, weight, all := 0.0, 0.0, 0.0
	size := s.coarse.grid.Size
	for z := range size[2] {
		for y := range size[1] {
			for x := (y + z) % 2; x < size[0]; x += 2 { // every other voxel says as much
				i := (z*size[1]+y)*size[0] + x
				w := s.coarse.structure[i]
				if w == 0 {
					continue
				}
				all += float64(w)
				p := [3]int{x + beyond - at[0], y + beyond - at[1], z + beyond - at[2]}
				if min(p[0], p[1], p[2]) < 0 || p[0] >= s.size[0] || p[1] >= s.size[1] || p[2] >= s.size[2] {
					continue
				}
				j := (p[2]*s.size[1]+p[1])*s.size[0] + p[0]
				if s.known[j] == 0 {
					continue
				}
				d, a, b := float32(0), &s.ours[i], &s.theirs[j]
				for k := range a {
					e := a[k] - b[k]
					d += float32(e * e)
				}
				sum += float64(w * d)
				weight += float64(w)
			}
		}
	}
	if weight < all/2 || weight == 0 {
		return math.Inf(1)
	}
	return sum / weight
}
