package field

import (
	"github.com/morphseek/morphseek/engine/internal/interp"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Compose writes prev o phi to dst (nil: a new field) and returns it: u(x) = phi(x) + prev(x + phi(x)), prev read
// trilinearly and clamped to its border. All are on one grid. dst may be phi, but must not share memory with prev.
func Compose(dst, prev, phi *Field, threads int) *Field {
	if dst == nil {
		dst = New(phi.Geometry)
	}
	if prev.Size != phi.Size || dst.Size != phi.Size {
		panic("field: Compose needs fields on one grid")
	}
	nx, ny := phi.Size[0], phi.Size[1]
	planes := interp.Planes{Size: prev.Size, Data: [][]float32{prev.X, prev.Y, prev.Z}}
	parallel.Each(ny*phi.Size[2], parallel.Rows(nx), threads, func(r int) {
		y, z := r%ny, r/ny
		d := dst.Row(y, z)
		planes.Compose(d[:], 0, y, z, 1, phi.Row(y, z))
	})
	return dst
}

// FromAffine returns the affine a, a map between LPS points in mm, as a field on g.
func FromAffine(g volume.Geometry, a volume.Affine) *Field { return Total(a, nil, g, 1) }

// Resample returns the field on grid g: the displacement in mm stays the same at every point of space, read trilinearly
// and clamped to the border of f's grid.
func (f *Field) Resample(g volume.Geometry, threads int) *Field {
	return f.resample(g, g.To(f.Geometry), f.To(g), volume.Affine{}, threads)
}

// Total returns a registration's total transform on the fixed grid: p -> initial(p + d(p)) in LPS mm, d being the
// displacement of deform (nil: none), which may lie on another grid (the network's) and is read as in Resample.
func Total(initial volume.Affine, deform *Field, fixed volume.Geometry, threads int) *Field {
	toFixed, toPhysical := fixed.PhysicalToIndex(), fixed.IndexToPhysical()
	base := toFixed.After(initial).After(toPhysical) // x + u(x) where d is zero
	for a := range 3 {
		base.M[4*a]--
	}
	if deform == nil {
		one := fixed
		one.Size = [3]int{1, 1, 1}
		deform = New(one)
	}
	return deform.resample(fixed, deform.PhysicalToIndex().After(toPhysical),
		toFixed.After(initial).After(deform.IndexToPhysical()), base, threads)
}

// resample returns on grid g the field base(x) + L u(toF(x)), where L is the linear part of toG and u is read clamped.
func (f *Field) resample(g volume.Geometry, toF, toG, base volume.Affine, threads int) *Field {
	out := New(g)
	nx, ny := g.Size[0], g.Size[1]
	l := toG.M
	along := f.columns(toF, nx)
	parallel.For(ny*g.Size[2], parallel.Rows(nx), threads, func(lo, hi int) {
		rows := newRows(f, along)
		for r := lo; r < hi; r++ {
			start := [3]float64{0, float64(r % ny), float64(r / ny)}
			p, b := toF.Apply(start), base.Apply(start)
			if rows != nil {
				rows.turn(p[1], p[2])
				if base == (volume.Affine{}) && isDiagonal(l) {
					for k, dst := range out.Row(r%ny, r/ny) {
						rows.write(dst, k, l[4*k])
					}
					continue
				}
			}
			for i := range nx {
				t, o := float64(i), r*nx+i
				var ux, uy, uz float32
				if rows != nil {
					ux, uy, uz = rows.at(i)
				} else {
					ux, uy, uz = f.at(p[0]+float64(toF.M[0]*t), p[1]+float64(toF.M[3]*t), p[2]+float64(toF.M[6]*t))
				}
				x, y, z := float64(ux), float64(uy), float64(uz)
				out.X[o] = float32(b[0] + float64(base.M[0]*t) + float64(l[0]*x) + float64(l[1]*y) + float64(l[2]*z))
				out.Y[o] = float32(b[1] + float64(base.M[3]*t) + float64(l[3]*x) + float64(l[4]*y) + float64(l[5]*z))
				out.Z[o] = float32(b[2] + float64(base.M[6]*t) + float64(l[6]*x) + float64(l[7]*y) + float64(l[8]*z))
			}
		}
	})
	return out
}
