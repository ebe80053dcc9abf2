// Package interp reads planes of voxels at the points of a displaced grid, the inner loop of compositions of fields and
// of warps on one grid. It is trilinear, in float32, and gives the same bits with and without the processor's vectors.
package interp

import "encoding/binary"

// Planes are up to three scalar images on one grid, size being (x, y, z), x fastest.
type Planes struct {
	Size [3]int
	Data [][]float32
}

// Row reads every plane k at the points (x+i, y, z) + u(i), i = 0, 1, ..., in voxels, clamped to the grid, and writes
// the values to dst[k]. A displacement that is not a number counts as reaching the grid's first voxel.
func (p Planes) Row(dst [][]float32, x, y, z int, u [3][]float32) { p.row(dst, false, x, y, z, 1, u) }

// Compose is Row where the planes are a field's three components and the points are displaced by scale*u, and adds that
// displacement to what it reads. dst may be u.
func (p Planes) Compose(dst [][]float32, x, y, z int, scale float32, u [3][]float32) {
	p.row(dst, true, x, y, z, scale, u)
}

// Advect is Compose to the first order, for displacements up to half a voxel at the grid's own points: the planes plus
// their slope, by central differences, along scale*u, plus scale*u, without blur. dst may be u.
func (p Planes) Advect(dst [][]float32, y, z int, scale float32, u [3][]float32) {
	nx, ny, nz := p.Size[0], p.Size[1], p.Size[2]
	at := func(y, z int) int { return (min(max(z, 0), nz-1)*ny + min(max(y, 0), ny-1)) * nx }
	o, beside := at(y, z), [2][2]int{{at(y-1, z), at(y+1, z)}, {at(y, z-1), at(y, z+1)}}
	from, to := p.advectVector(dst, o, beside, scale, u)
	p.advect(dst, o, beside, scale, u, 0, from)
	p.advect(dst, o, beside, scale, u, to, nx)
}

// advect does the points from, ..., to-1 of the row at voxel o, whose neighbours before and after along y and z begin at beside.
func (p Planes) advect(dst [][]float32, o int, beside [2][2]int, scale float32, u [3][]float32, from, to int) {
	half := scale * 0.5
	for i := from; i < to; i++ {
		left, right := max(i-1, 0), min(i+1, p.Size[0]-1)
		d := [3]float32{u[0][i], u[1][i], u[2][i]}
		for k, v := range p.Data {
			slope := float32(d[0]*(v[o+right]-v[o+left])) + float32(d[1]*(v[beside[0][1]+i]-v[beside[0][0]+i])) +
				float32(d[2]*(v[beside[1][1]+i]-v[beside[1][0]+i]))
			dst[k][i] = v[o+i] + float32(scale*d[k]) + float32(half*slope)
		}
	}
}

func (p Planes) row(dst [][]float32, add bool, x, y, z int, scale float32, u [3][]float32) {
	done := p.vectors(dst, add, x, y, z, scale, u)
	nx, nxy := p.Size[0], p.Size[0]*p.Size[1]
	for i := done; i < len(u[0]); i++ {
		d := [3]float32{scale * u[0][i], scale * u[1][i], scale * u[2][i]}
		ix, dx, fx := cell(x+i, p.Size[0], d[0])
		iy, dy, fy := cell(y, p.Size[1], d[1])
		iz, dz, fz := cell(z, p.Size[2], d[2])
		o, dy, dz := ix+nx*iy+nxy*iz, nx*dy, nxy*dz
		for k, plane := range p.Data {
			v := Trilinear(plane, o, dx, dy, dz, fx, fy, fz)
			if add {
				v += d[k]
			}
			dst[k][i] = v
		}
	}
}

// Mask is an image of zeros and ones.
type Mask struct {
	Size [3]int
	Data []uint8
}

// Row reads the mask as Planes does an image.
func (m Mask) Row(dst []float32, x, y, z int, u [3][]float32) {
	nx, nxy, p := m.Size[0], m.Size[0]*m.Size[1], m.Data
	for i := range dst {
		ix, dx, fx := cell(x+i, m.Size[0], u[0][i])
		iy, dy, fy := cell(y, m.Size[1], u[1][i])
		iz, dz, fz := cell(z, m.Size[2], u[2][i])
		o, dy, dz := ix+nx*iy+nxy*iz, nx*dy, nxy*dz
		q := o + dz
		around := [8]uint8{p[o], p[o+dx], p[o+dy], p[o+dy+dx], p[q], p[q+dx], p[q+dy], p[q+dy+dx]}
		switch binary.NativeEndian.Uint64(around[:]) {
		case 0:
			dst[i] = 0
		case 0x0101010101010101:
			dst[i] = 1
		default:
			var values [8]float32
			for k, x := range around {
				values[k] = float32(x)
			}
			dst[i] = Trilinear(values[:], 0, 1, 2, 4, fx, fy, fz)
		}
	}
}

// cell returns the voxel at or below base+u along an axis of n voxels, the step to the next one, and how far beyond it
// the point lies, 0..1. The last cell holds the border.
func cell(base, n int, u float32) (i, step int, f float32) {
	if n == 1 {
		return 0, 0, 0
	}
	if least := float32(-base); !(u > least) {
		u = least
	}
	u = min(u, float32(n-1-base))
	down := int(u)
	if float32(down) > u {
		down--
	}
	i, f = base+down, u-float32(down)
	if i == n-1 {
		return n - 2, 1, 1
	}
	return i, 1, f
}

// Trilinear reads plane p between voxel o and its neighbours at offsets dx, dy, dz.
func Trilinear(p []float32, o, dx, dy, dz int, fx, fy, fz float32) float32 {
	a := p[o] + float32(fx*(p[o+dx]-p[o]))
	b := p[o+dy] + float32(fx*(p[o+dy+dx]-p[o+dy]))
	o += dz
	c := p[o] + float32(fx*(p[o+dx]-p[o]))
	d := p[o+dy] + float32(fx*(p[o+dy+dx]-p[o+dy]))
	a += float32(fy * (b - a))
	c += float32(fy * (d - c))
	return a + float32(fz*(c-a))
}
