// Package field is the algebra of displacement fields on a voxel grid: warp, compose, invert, exponentiate, and measure.
//
// # Conventions
//
// A field maps a point x of its grid to Phi(x) = x + u(x), both in continuous voxel indices of that grid: the pull-back
// direction, so that warped = moving o Phi. The zero field is the identity. Composition is Phi_t = Phi_{t-1} o phi, i.e.
// u_t(x) = phi(x) + u_{t-1}(x + phi(x)).
package field

import "github.com/morphseek/morphseek/engine/volume"

// Field is a displacement field in voxels of its own grid.
//
// The three planes lie one behind the other in Data in the order of the ARRAY axes (z, y, x), each plane with x fastest: so
// Data is a numpy array of shape (3, nz, ny, nx) whose component i runs along array axis i (the Learn2Reg convention), and
// the same bytes are the network's tensor. X, Y and Z name the planes; they alias Data.
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
