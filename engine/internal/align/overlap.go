package align

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/volume"
)

// boxCorners returns the corners of a grid, LPS mm, margin voxels beyond the centres of its outermost voxels.
func boxCorners(g volume.Geometry, margin float64) [][3]float64 {
	toPhysical, corners := g.IndexToPhysical(), g.Corners(margin)
	for c, index := range corners {
		corners[c] = toPhysical.Apply(index)
	}
	return corners[:]
}

// separation returns the distance in mm, in moving space, between the fixed field of view mapped by t and the moving
// one: 0 where they touch. It is the norm of the shortest vector between two convex hulls, found by Gilbert's method.
func separation(fixed, moving volume.Geometry, t volume.Affine) float64 {
	f, m := boxCorners(fixed, 0.5), boxCorners(moving, 0.5)
	touching := 1e-6 * aligned.Spacing(moving)
	for i := range f {
		f[i] = t.Apply(f[i])
	}
	x := volume.Sub(m[0], f[0])
	for range 200 {
		support, least := x, math.Inf(1)
		for _, p := range f {
			for _, q := range m {
				if d := volume.Sub(q, p); volume.Dot(d, x) < least {
					support, least = d, volume.Dot(d, x)
				}
			}
		}
		norm2 := volume.Dot(x, x)
		if least > 0 && norm2-least <= 1e-3*norm2 {
			return math.Sqrt(norm2)
		}
		// The point of the segment from x to support nearest to the origin.
		step := volume.Sub(support, x)
		length := volume.Dot(step, step)
		if length == 0 || norm2 < touching*touching {
			return 0
		}
		s := min(max(-volume.Dot(x, step)/length, 0), 1)
		for a := range 3 {
			x[a] += float64(s * step[a])
		}
	}
	return 0
}

// Overlap returns the share of the smaller field of view, in moving space, that both cover under t, from a lattice of
// points.
func Overlap(fixed, moving volume.Geometry, t volume.Affine) float64 {
	const n = 32
	toIndex := moving.PhysicalToIndex().After(t).After(fixed.IndexToPhysical())
	if fixed.Flat() { // both as thick
		toIndex.M[8] = 1
	}
	inside := 0
	for k := range n * n * n {
		cell := [3]int{k % n, k / n % n, k / (n * n)}
		var index [3]float64
		for a := range fixed.Axes() { // a slice is in its plane, however thick it is
			index[a] = float64((float64(cell[a])+0.5)/n*float64(fixed.Size[a])) - 0.5
		}
		p := toIndex.Apply(index)
		in := true
		for a := range 3 {
			in = in && p[a] >= -0.5 && p[a] < float64(moving.Size[a])-0.5
		}
		if in {
			inside++
		}
	}
	fixedExtent := math.Abs(toIndex.Det()) * float64(fixed.Voxels()) // in moving voxels
	return min(float64(inside)/(n*n*n)*fixedExtent/min(fixedExtent, float64(moving.Voxels())), 1)
}
