package field

import (
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Warp returns moving o Phi on the field's grid: moving is read at the physical point of x + u(x), and may lie on any
// grid. Points outside moving get background.
func (f *Field) Warp(moving *volume.Volume, interp volume.Interpolation, background float32, threads int) *volume.Volume {
	return f.read(moving.Geometry, threads, moving.Sampler(interp, background).Row)
}

// WarpMask is Warp of a mask, which is read at the nearest voxel; points outside get 0.
func (f *Field) WarpMask(moving *volume.Mask, threads int) *volume.Volume {
	return f.read(moving.Geometry, threads, moving.Row)
}

// read calls row with the indices on g of the points that the voxels of f go to, a row at a time.
func (f *Field) read(g volume.Geometry, threads int, row func(dst []float32, x, y, z []float64)) *volume.Volume {
	out := volume.Zeros(f.Geometry)
	m := f.To(g)
	nx, ny := f.Size[0], f.Size[1]
	parallel.For(ny*f.Size[2], parallel.Rows(nx), threads, func(lo, hi int) {
		x, y, z := make([]float64, nx), make([]float64, nx), make([]float64, nx)
		for r := lo; r < hi; r++ {
			from := r * nx
			p := m.Apply([3]float64{0, float64(r % ny), float64(r / ny)})
			for i := range nx {
				ux, uy, uz := float64(i)+float64(f.X[from+i]), float64(f.Y[from+i]), float64(f.Z[from+i])
				x[i] = p[0] + float64(m.M[0]*ux) + float64(m.M[1]*uy) + float64(m.M[2]*uz)
				y[i] = p[1] + float64(m.M[3]*ux) + float64(m.M[4]*uy) + float64(m.M[5]*uz)
				z[i] = p[2] + float64(m.M[6]*ux) + float64(m.M[7]*uy) + float64(m.M[8]*uz)
			}
			row(out.Data[from:from+nx], x, y, z)
		}
	})
	return out
}

// TransformPoints maps points, LPS mm with x, y, z interleaved, from fixed to moving space in place: p -> p + d(p), d read
// trilinearly. Outside the grid the border's displacement holds; a transform's points go by Endless.
func (f *Field) TransformPoints(points []float64) {
	toIndex, toPhysical := f.PhysicalToIndex(), f.IndexToPhysical()
	for ; len(points) >= 3; points = points[3:] {
		x := toIndex.Apply([3]float64(points[:3]))
		ux, uy, uz := f.at(x[0], x[1], x[2])
		p := toPhysical.Apply([3]float64{x[0] + float64(ux), x[1] + float64(uy), x[2] + float64(uz)})
		copy(points, p[:])
	}
}

// MM writes the displacements in LPS mm to dst, x, y, z interleaved per voxel (the buffer of an ITK vector image, a
// numpy array of shape (nz, ny, nx, 3)), and returns it. A nil dst is allocated.
func (f *Field) MM(dst []float32, threads int) []float32 {
	if dst == nil {
		dst = make([]float32, len(f.Data))
	}
	if len(dst) != len(f.Data) {
		panic("field: MM needs three floats a voxel")
	}
	m := f.IndexToPhysical().M
	parallel.Each(len(f.X), 1<<14, threads, func(i int) {
		x, y, z := float64(f.X[i]), float64(f.Y[i]), float64(f.Z[i])
		dst[3*i] = float32(float64(m[0]*x) + float64(m[1]*y) + float64(m[2]*z))
		dst[3*i+1] = float32(float64(m[3]*x) + float64(m[4]*y) + float64(m[5]*z))
		dst[3*i+2] = float32(float64(m[6]*x) + float64(m[7]*y) + float64(m[8]*z))
	})
	return dst
}

// BehindMM returns, as MM does, the displacements d behind an affine map that f ends with: Phi(p) = last(p + d(p)) for a
// voxel at p, in LPS mm.
func (f *Field) BehindMM(last volume.Affine, threads int) ([]float32, error) {
	row, err := f.behind(last)
	if err != nil {
		return nil, err
	}
	dst := make([]float32, len(f.Data))
	nx, ny := f.Size[0], f.Size[1]
	parallel.Each(ny*f.Size[2], parallel.Rows(nx), threads, func(r int) {
		row(dst[3*r*nx:3*(r+1)*nx], r%ny, r/ny)
	})
	return dst, nil
}

// behind returns what writes a row of BehindMM.
func (f *Field) behind(last volume.Affine) (func(out []float32, y, z int), error) {
	undo, err := last.Inverse()
	if err != nil {
		return nil, err
	}
	toMM := f.IndexToPhysical()
	m := undo.After(toMM)
	rest := m // of the place itself
	for k := range rest.M {
		rest.M[k] -= toMM.M[k]
	}
	for k := range rest.T {
		rest.T[k] -= toMM.T[k]
	}
	return func(out []float32, y, z int) {
		row, start := f.Row(y, z), rest.Apply([3]float64{0, float64(y), float64(z)})
		for i := range f.Size[0] {
			x, y, z, along := float64(row[0][i]), float64(row[1][i]), float64(row[2][i]), float64(i)
			for k := range 3 {
				moved := float64(m.M[3*k]*x) + float64(m.M[3*k+1]*y) + float64(m.M[3*k+2]*z)
				out[3*i+k] = float32(moved + float64(rest.M[3*k]*along) + start[k])
			}
		}
	}, nil
}

// FromMM is the inverse of MM: the field on g of displacements in LPS mm, x, y, z interleaved.
func FromMM(g volume.Geometry, mm []float32, threads int) *Field {
	f := New(g)
	if len(mm) != len(f.Data) {
		panic("field: FromMM needs three floats a voxel")
	}
	m := g.PhysicalToIndex().M
	parallel.Each(len(f.X), 1<<14, threads, func(i int) {
		x, y, z := float64(mm[3*i]), float64(mm[3*i+1]), float64(mm[3*i+2])
		f.X[i] = float32(float64(m[0]*x) + float64(m[1]*y) + float64(m[2]*z))
		f.Y[i] = float32(float64(m[3]*x) + float64(m[4]*y) + float64(m[5]*z))
		f.Z[i] = float32(float64(m[6]*x) + float64(m[7]*y) + float64(m[8]*z))
	})
	return f
}
