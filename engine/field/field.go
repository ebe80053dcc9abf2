// Package field is the algebra of displacement fields on a voxel grid: warp, compose, invert, exponentiate, and
// measure.
//
// # Conventions
//
// A field maps a point x of its grid to Phi(x) = x + u(x), both in continuous voxel indices of that grid: the pull-back
// direction, so that warped = moving o Phi. The zero field is the identity. Composition is Phi_t = Phi_{t-1} o phi,
// i.e. u_t(x) = phi(x) + u_{t-1}(x + phi(x)).
package field

import (
	"github.com/morphseek/morphseek/engine/internal/interp"
	"github.com/morphseek/morphseek/engine/volume"
)

// Field is a displacement field in voxels of its own grid.
//
// The three planes lie one behind the other in Data in the order of the ARRAY axes (z, y, x), each plane with x
// fastest: so Data is a numpy array of shape (3, nz, ny, nx) whose component i runs along array axis i (the Learn2Reg
// convention), and the same bytes are the network's tensor. X, Y and Z name the planes; they alias Data.
type Field struct {
	volume.Geometry
	Data    []float32
	X, Y, Z []float32
}

// New returns the identity on grid g.
func New(g volume.Geometry) *Field { return Over(g, make([]float32, 3*g.Voxels())) }

// Over returns a field over data, which it aliases; len(data) must be 3*g.Voxels().
func Over(g volume.Geometry, data []float32) *Field {
	n := g.Voxels()
	if len(data) != 3*n {
		panic("field: data length does not fit the grid")
	}
	return &Field{Geometry: g, Data: data, Z: data[:n:n], Y: data[n : 2*n : 2*n], X: data[2*n:]}
}

// Row returns the three components of the row along x at y and z.
func (f *Field) Row(y, z int) [3][]float32 {
	lo := (z*f.Size[1] + y) * f.Size[0]
	hi := lo + f.Size[0]
	return [3][]float32{f.X[lo:hi], f.Y[lo:hi], f.Z[lo:hi]}
}

// Vector returns u at voxel i.
func (f *Field) Vector(i int) [3]float64 {
	return [3]float64{float64(f.X[i]), float64(f.Y[i]), float64(f.Z[i])}
}

// Target returns where voxel i goes, x + u(x).
func (f *Field) Target(i int) [3]float64 {
	x, u := f.Point(i), f.Vector(i)
	return [3]float64{x[0] + u[0], x[1] + u[1], x[2] + u[2]}
}

// SetTarget sets where voxel i goes.
func (f *Field) SetTarget(i int, to [3]float64) {
	x := f.Point(i)
	f.X[i], f.Y[i], f.Z[i] = float32(to[0]-x[0]), float32(to[1]-x[1]), float32(to[2]-x[2])
}

// Lock sets the components along the locked axes (x, y, z) to zero: a sum of products that ought to be none may be a
// rounding error.
func (f *Field) Lock(locked [3]bool) {
	for a, plane := range [3][]float32{f.X, f.Y, f.Z} {
		if locked[a] {
			clear(plane)
		}
	}
}

// At returns u at a continuous index, as at does.
func (f *Field) At(p [3]float64) [3]float64 {
	x, y, z := f.at(p[0], p[1], p[2])
	return [3]float64{float64(x), float64(y), float64(z)}
}

// at returns u at the continuous index (x, y, z), trilinear, clamped to the grid: beyond it the border's displacement
// holds. What users see beyond the grid is Endless.
func (f *Field) at(x, y, z float64) (ux, uy, uz float32) {
	nx, nxy := f.Size[0], f.Size[0]*f.Size[1]
	ix, fx := volume.Cell(x, float64(f.Size[0]-1))
	iy, fy := volume.Cell(y, float64(f.Size[1]-1))
	iz, fz := volume.Cell(z, float64(f.Size[2]-1))
	dx, dy, dz := volume.Next(fx, 1), volume.Next(fy, nx), volume.Next(fz, nxy)
	o := ix + iy*nx + iz*nxy
	return interp.Trilinear(f.X, o, dx, dy, dz, fx, fy, fz),
		interp.Trilinear(f.Y, o, dx, dy, dz, fx, fy, fz),
		interp.Trilinear(f.Z, o, dx, dy, dz, fx, fy, fz)
}
