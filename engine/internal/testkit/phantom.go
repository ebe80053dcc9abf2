package testkit

import (
	"math"
	"math/rand/v2"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// Phantom returns a textured body of n voxels a side at 1 mm, its value at every point a closed form of position, so
// that nothing is interpolated: fixed(x) = moving(x + u(x)) exactly, with u a sum of sines of the given amplitude in mm
// that vanishes at the border. otherContrast turns the fixed intensities by a map that is not monotonic.
func Phantom(n int, amplitude float64, otherContrast bool) (fixed, moving *volume.Volume, truth *field.Field) {
	unit := math.Pi / float64(n-1)
	return moved([3]int{n, n, n}, otherContrast, func(x, y, z float64) [3]float64 {
		bump := amplitude * math.Sin(unit*x) * math.Sin(unit*y) * math.Sin(unit*z)
		return [3]float64{bump, -bump * math.Cos(unit*x), bump * math.Sin(2*unit*y)}
	})
}

// Slice is Phantom in the plane through its middle: images of one voxel's thickness, and a displacement within them.
func Slice(n int, amplitude float64, otherContrast bool) (fixed, moving *volume.Volume, truth *field.Field) {
	unit := math.Pi / float64(n-1)
	return moved([3]int{n, n, 1}, otherContrast, func(x, y, _ float64) [3]float64 {
		bump := amplitude * math.Sin(unit*x) * math.Sin(unit*y)
		return [3]float64{bump, -bump * math.Cos(unit*x), 0}
	})
}

// Moved is Phantom with one contrast and a displacement of its own, in voxels of 1 mm.
func Moved(n int, u func(x, y, z float64) [3]float64) (fixed, moving *volume.Volume, truth *field.Field) {
	return moved([3]int{n, n, n}, false, u)
}

func moved(size [3]int, otherContrast bool, u func(x, y, z float64) [3]float64) (fixed, moving *volume.Volume, truth *field.Field) {
	n := size[0]
	g := Grid(size)
	fixed, moving, truth = volume.Zeros(g), volume.Zeros(g), field.New(g)
	for i := range fixed.Data {
		p := g.Point(i)
		if g.Flat() {
			p[2] = float64(n) / 2
		}
		d := u(p[0], p[1], p[2])
		truth.X[i], truth.Y[i], truth.Z[i] = float32(d[0]), float32(d[1]), float32(d[2])
		moving.Data[i] = float32(value(p[0], p[1], p[2], n))
		v := value(p[0]+d[0], p[1]+d[1], p[2]+d[2], n)
		if otherContrast {
			v = 80 + 60*math.Cos(v/25)
		}
		fixed.Data[i] = float32(v)
	}
	return fixed, moving, truth
}

// value is the body's intensity at a point: organs of several sizes within an ellipsoid.
func value(x, y, z float64, n int) float64 {
	s := 1 / float64(n-1)
	x, y, z = x*s-0.5, y*s-0.5, z*s-0.5
	edge := func(d, width float64) float64 { return 1 / (1 + math.Exp(-d/width)) }
	v := 60 * edge(0.42-math.Sqrt(x*x+1.3*y*y+z*z), 0.01)
	for k := range 24 {
		a, b := float64(k), float64(k*k%11)
		cx, cy, cz := 0.28*math.Sin(1.7*a+0.4), 0.26*math.Sin(2.9*a+b), 0.28*math.Cos(0.9*a+0.3*b)
		r := 0.05 + 0.012*math.Mod(b, 5)
		d := r - math.Sqrt((x-cx)*(x-cx)+(y-cy)*(y-cy)+(z-cz)*(z-cz))
		v += (20 + 6*math.Mod(a, 5)) * edge(d, 0.012)
	}
	return v
}

// Grid is a grid of voxels of 1 mm at the origin.
func Grid(size [3]int) volume.Geometry {
	return volume.Geometry{Size: size, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity}
}

// Filled returns an image whose voxels have the values of a function of their numbers.
func Filled(g volume.Geometry, value func(i int) float32) *volume.Volume {
	v := volume.Zeros(g)
	for i := range v.Data {
		v.Data[i] = value(i)
	}
	return v
}

// Drawn returns an image whose voxels come from a source of random numbers.
func Drawn[T float32 | float64](g volume.Geometry, next func() T) *volume.Volume {
	return Filled(g, func(int) float32 { return float32(next()) })
}

// AddNoise adds Gaussian noise to images of one size, voxel by voxel.
func AddNoise(sigma float64, rng *rand.Rand, images ...*volume.Volume) {
	for i := range images[0].Data {
		for _, v := range images {
			v.Data[i] += float32(sigma * rng.NormFloat64())
		}
	}
}

// Turn is the matrix of a turn about z.
func Turn(angle float64) [9]float64 {
	sin, cos := math.Sincos(angle)
	return [9]float64{cos, -sin, 0, sin, cos, 0, 0, 0, 1}
}

// Placed returns the voxels of v where a map of space puts them.
func Placed(v *volume.Volume, by volume.Affine) *volume.Volume {
	g := v.Geometry
	g.Origin, g.Direction = by.Apply(g.Origin), volume.Product(by.M, g.Direction)
	return &volume.Volume{Geometry: g, Data: v.Data}
}

// MeanError returns the mean distance in voxels between u, read on truth's grid (nil: the identity), and truth, over
// the voxels of the box lo <= (x, y, z) < hi.
func MeanError(u, truth *field.Field, lo, hi [3]int) float64 {
	if u == nil {
		u = field.New(truth.Geometry)
	}
	u = u.Resample(truth.Geometry, 1)
	sum, count := 0.0, 0
	for z := lo[2]; z < hi[2]; z++ {
		for y := lo[1]; y < hi[1]; y++ {
			for x := lo[0]; x < hi[0]; x++ {
				i := (z*truth.Size[1]+y)*truth.Size[0] + x
				sum += volume.Distance(u.Vector(i), truth.Vector(i))
				count++
			}
		}
	}
	return sum / float64(count)
}

// Reordered returns v with axis a running along its axis perm[a], reversed where flip[a]: the same voxels in the same
// places.
func Reordered(v *volume.Volume, perm [3]int, flip [3]bool) *volume.Volume {
	g := v.Geometry
	var first [3]float64
	for a, c := range perm {
		g.Size[a], g.Spacing[a] = v.Size[c], v.Spacing[c]
		sign := 1.0
		if flip[a] {
			sign, first[c] = -1, float64(v.Size[c]-1)
		}
		for r := range 3 {
			g.Direction[3*r+a] = sign * v.Direction[3*r+c]
		}
	}
	g.Origin = v.IndexToPhysical().Apply(first)
	out := volume.Zeros(g)
	for i := range out.Data {
		var at [3]int // in v
		for a, n := range [3]int{i % g.Size[0], i / g.Size[0] % g.Size[1], i / (g.Size[0] * g.Size[1])} {
			at[perm[a]] = n
			if flip[a] {
				at[perm[a]] = g.Size[a] - 1 - n
			}
		}
		out.Data[i] = v.Data[(at[2]*v.Size[1]+at[1])*v.Size[0]+at[0]]
	}
	return out
}

// Padded is v with lo planes before and hi planes behind it along every axis; each voxel there is what outside makes of
// the nearest of v.
func Padded(v *volume.Volume, lo, hi int, outside func(nearest float32) float32) *volume.Volume {
	g := v.Geometry
	for a := range v.Axes() {
		g.Size[a] += lo + hi
	}
	first := [3]int{lo, lo, lo}
	if v.Flat() {
		first[2] = 0
	}
	g.Origin = v.IndexToPhysical().Apply([3]float64{float64(-first[0]), float64(-first[1]), float64(-first[2])})
	out := volume.Zeros(g)
	for i := range out.Data {
		var p [3]int
		within := true
		for a, k := range g.Index(i) {
			p[a] = min(max(k-first[a], 0), v.Size[a]-1)
			within = within && p[a] == k-first[a]
		}
		x := v.Data[(p[2]*v.Size[1]+p[1])*v.Size[0]+p[0]]
		if !within {
			x = outside(x)
		}
		out.Data[i] = x
	}
	return out
}
