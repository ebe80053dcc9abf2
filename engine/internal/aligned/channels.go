package aligned

import (
	"math"
	"math/rand/v2"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// Channel is a further image, or label map, of both sides of a pair. Each lies on a grid of its own, in the space of
// its side, and so do its masks. Its initial transform is not read: Under gives it that of the pair it belongs to.
type Channel struct {
	Pair
	Weight      float64 // the pair's own images have 1
	Intensities bool    // the intensities of its two images correspond
	Labels      int     // 0: images; else label maps, which hold 0 and 1, ..., Labels
}

// Under returns the channel as a pair under an initial transform.
func (c Channel) Under(initial volume.Affine) Pair {
	c.Initial = initial
	return c.Pair
}

// Planes is the number of values that stand for a label where label maps are compared as images.
const Planes = 12

// directions returns a unit vector for every label. Up to Planes labels have orthogonal ones. Of more, each has that of
// 64 random ones which is most nearly orthogonal to those before. The first, of the background, is zero.
func directions(labels int) [][Planes]float32 {
	const tries = 64
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([][Planes]float32, 1, labels+1)
	for l := range labels {
		var best [Planes]float32
		if labels <= Planes {
			best[l] = 1
			out = append(out, best)
			continue
		}
		nearest := math.Inf(1)
		for range tries {
			var v [Planes]float64
			square := 0.0
			for d := range v {
				v[d] = rng.NormFloat64()
				square += float64(v[d] * v[d])
			}
			length, worst := math.Sqrt(square), 0.0
			for _, other := range out[1:] {
				dot := 0.0
				for d := range v {
					dot += float64(v[d] * float64(other[d]))
				}
				worst = max(worst, math.Abs(dot)/length)
			}
			if worst < nearest {
				nearest = worst
				for d := range v {
					best[d] = float32(v[d] / length)
				}
			}
		}
		out = append(out, best)
	}
	return out
}

// LabelsAt returns label maps on grid g as At does images: for either side an image for each component of directions,
// moving ones resampled through u, which may be nil. The images of im are those of the first component.
func (p Pair) LabelsAt(g volume.Geometry, margin, labels int, u *field.Field, threads int) (im Images, fixed, moving [][]float32) {
	grown := Grow(g, margin)
	im = p.inside(g, grown, threads)
	if u != nil {
		u = u.Resample(grown, threads)
		im.MovingValid = u.Warp(im.MovingValid, volume.Nearest, 0, threads)
	}
	towards := directions(labels)
	plane := func(v *volume.Volume, d int, g volume.Geometry, a volume.Affine) *volume.Volume {
		return resampled(v.Geometry, g, a, RepeatedEdge, threads, func(y, z int, rows [][]float32) {
			for i, x := range v.Data[(z*v.Size[1]+y)*v.Size[0]:][:v.Size[0]] {
				rows[0][i] = towards[int(x)][d]
			}
		})
	}
	for d := range min(Planes, labels) {
		f, m := plane(p.Fixed, d, g, volume.IdentityAffine()), plane(p.Moving, d, grown, p.Initial)
		if u != nil {
			m = u.Warp(m, volume.Linear, 0, threads)
		}
		if d == 0 {
			im.Fixed, im.Moving = f, m
		}
		fixed, moving = append(fixed, f.Data), append(moving, m.Data)
	}
	return im, fixed, moving
}
