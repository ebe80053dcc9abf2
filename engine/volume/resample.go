package volume

import (
	"math"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Interpolation says how a volume is read between voxels.
type Interpolation int

// The interpolations.
const (
	Linear  Interpolation = iota // trilinear: images
	Nearest                      // label maps; halves round up, as ITK's
)

// ParseInterpolation reads "linear" or "nearest".
func ParseInterpolation(name string) (Interpolation, error) {
	switch name {
	case "linear":
		return Linear, nil
	case "nearest":
		return Nearest, nil
	}
	return 0, fault.New(fault.InvalidArgument, "interpolation is %q; it must be linear or nearest", name)
}

// Resample reads v at a.Apply(p) for the centre p of every voxel of g, in LPS mm, and returns the values on g. Points
// outside v get background. The result equals that of itk::ResampleImageFilter.
func (v *Volume) Resample(g Geometry, a Affine, interp Interpolation, background float32, threads int) *Volume {
	return v.resample(g, a, threads, v.Sampler(interp, background).Row)
}

// ResampleClosed is Resample, linear, with both faces of v belonging to it along each axis: ITK's rule has points half
// a voxel before the first centre inside and those half a voxel after the last one outside, which a grid of another
// parity meets in a whole slice. It is how the training reads its volumes.
func (v *Volume) ResampleClosed(g Geometry, a Affine, background float32, threads int) *Volume {
	const tolerance = 1e-4 // voxels; positions are rounded
	s := v.Sampler(Linear, background)
	return v.resample(g, a, threads, func(dst []float32, x, y, z []float64) {
		for k, at := range [3][]float64{x, y, z} {
			low, high := -0.5, float64(v.Size[k])-0.5
			for i, t := range at {
				if t < low && t > low-tolerance {
					at[i] = low
				} else if t >= high && t < high+tolerance {
					at[i] = high - tolerance
				}
			}
		}
		s.Row(dst, x, y, z)
	})
}

// ResampleRepeated is Resample, linear, with points outside v getting the value at the nearest point of its border.
func (v *Volume) ResampleRepeated(g Geometry, a Affine, threads int) *Volume {
	s := v.Sampler(Linear, 0)
	return v.resample(g, a, threads, func(dst []float32, x, y, z []float64) {
		for k, at := range [3][]float64{x, y, z} {
			last := float64(v.Size[k] - 1)
			for i, t := range at {
				at[i] = min(max(t, 0), last)
			}
		}
		s.Row(dst, x, y, z)
	})
}

// Holds returns 1 at the voxels of g that a carries into the field of view of v, as Resample has it, else 0.
func (v *Volume) Holds(g Geometry, a Affine, threads int) *Volume {
	endX, endY, endZ := float64(v.Size[0]), float64(v.Size[1]), float64(v.Size[2])
	return v.resample(g, a, threads, func(dst []float32, xs, ys, zs []float64) {
		for i := range dst {
			x, y, z := xs[i]+(0.5+rounded), ys[i]+(0.5+rounded), zs[i]+(0.5+rounded)
			if x >= 0 && x < endX && y >= 0 && y < endY && z >= 0 && z < endZ {
				dst[i] = 1
			}
		}
	})
}

// resample calls read with the indices of v that the voxels of g get their values from, a row at a time.
func (v *Volume) resample(g Geometry, a Affine, threads int, read func(dst []float32, x, y, z []float64)) *Volume {
	out := Zeros(g)
	m := v.PhysicalToIndex().After(a).After(g.IndexToPhysical())
	nx, ny := g.Size[0], g.Size[1]
	parallel.For(ny*g.Size[2], parallel.Rows(nx), threads, func(lo, hi int) {
		x, y, z := make([]float64, nx), make([]float64, nx), make([]float64, nx)
		for r := lo; r < hi; r++ {
			p := m.Apply([3]float64{0, float64(r % ny), float64(r / ny)})
			for i := range nx {
				t := float64(i)
				x[i], y[i] = snapped(p[0]+float64(m.M[0]*t)), snapped(p[1]+float64(m.M[3]*t))
				z[i] = snapped(p[2] + float64(m.M[6]*t))
			}
			read(out.Data[r*nx:(r+1)*nx], x, y, z)
		}
	})
	return out
}

// Sampler reads a volume at continuous indices of its own grid, by ITK's rule: inside is [-0.5, n-0.5) along each axis,
// the outer half voxel repeats the border, and the rest (NaN too) is background. It is safe for concurrent use.
type Sampler struct {
	v          *Volume
	interp     Interpolation
	background float32
}

// Sampler returns a reader of v.
func (v *Volume) Sampler(interp Interpolation, background float32) Sampler {
	return Sampler{v, interp, background}
}

// rounded is by how many voxels rounding errors may put a position off. Many grids lie whole or half voxels apart.
const rounded = 1e-9

// snapped returns the index of the voxel whose centre a continuous index misses by rounding errors, and others as they
// are: to interpolate there would round the value once more.
func snapped(c float64) float64 {
	if whole := math.RoundToEven(c); math.Abs(c-whole) < rounded {
		return whole
	}
	return c
}

// Row writes to dst[i] the sample at (x[i], y[i], z[i]). The three must be as long as dst.
func (s Sampler) Row(dst []float32, x, y, z []float64) {
	if s.interp == Nearest {
		nearest(dst, s.v.Data, s.v.Size, s.background, x, y, z)
	} else {
		s.linear(dst, x, y, z)
	}
}

// Row writes to dst[i] the mask's voxel nearest to (x[i], y[i], z[i]), as a Sampler does; 0 outside.
func (m *Mask) Row(dst []float32, x, y, z []float64) { nearest(dst, m.Data, m.Size, 0, x, y, z) }

func (s Sampler) linear(dst []float32, xs, ys, zs []float64) {
	data, nx, nxy := s.v.Data, s.v.Size[0], s.v.Size[0]*s.v.Size[1]
	lastX, lastY, lastZ := float64(s.v.Size[0]-1), float64(s.v.Size[1]-1), float64(s.v.Size[2]-1)
	const low, high = -0.5 - rounded, 0.5 - rounded
	xs, ys, zs = xs[:len(dst)], ys[:len(dst)], zs[:len(dst)]
	for i := range dst {
		x, y, z := xs[i], ys[i], zs[i]
		if !(x >= low && x < lastX+high && y >= low && y < lastY+high && z >= low && z < lastZ+high) {
			dst[i] = s.background
			continue
		}
		ix, fx := Cell(x, lastX)
		iy, fy := Cell(y, lastY)
		iz, fz := Cell(z, lastZ)
		dx, dy, dz := Next(fx, 1), Next(fy, nx), Next(fz, nxy)
		o := ix + iy*nx + iz*nxy
		// interp.Trilinear written out: the call costs a tenth of a warp.
		a := data[o] + float32(fx*(data[o+dx]-data[o]))
		b := data[o+dy] + float32(fx*(data[o+dy+dx]-data[o+dy]))
		o += dz
		c := data[o] + float32(fx*(data[o+dx]-data[o]))
		d := data[o+dy] + float32(fx*(data[o+dy+dx]-data[o+dy]))
		a += float32(fy * (b - a))
		c += float32(fy * (d - c))
		dst[i] = a + float32(fz*(c-a))
	}
}

// nearest writes to dst[i] the voxel of data, on a grid of the given size, that is nearest to (x[i], y[i], z[i]).
func nearest[T float32 | uint8](dst []float32, data []T, size [3]int, background float32, xs, ys, zs []float64) {
	nx, ny := size[0], size[1]
	endX, endY, endZ := float64(size[0]), float64(size[1]), float64(size[2])
	xs, ys, zs = xs[:len(dst)], ys[:len(dst)], zs[:len(dst)]
	for i := range dst {
		x, y, z := xs[i]+(0.5+rounded), ys[i]+(0.5+rounded), zs[i]+(0.5+rounded)
		if !(x >= 0 && x < endX && y >= 0 && y < endY && z >= 0 && z < endZ) {
			dst[i] = background
			continue
		}
		dst[i] = float32(data[int(x)+nx*(int(y)+ny*int(z))])
	}
}

// Cell returns the voxel at or below the coordinate c along an axis whose last index is last, and how far beyond it c
// lies in units of a voxel: c is clamped to the axis, so 0 <= i+f <= last, and f > 0 only where voxel i+1 exists. NaN
// gives 0.
func Cell(c, last float64) (i int, f float32) {
	if !(c > 0) {
		return 0, 0
	}
	if c >= last {
		return int(last), 0
	}
	i = int(c)
	return i, float32(c - float64(i))
}

// Next returns the step to the next voxel along an axis of that stride: 0 where Cell's f is 0, for there may be none.
func Next(f float32, stride int) int {
	if f > 0 {
		return stride
	}
	return 0
}
