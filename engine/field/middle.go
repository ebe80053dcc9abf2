package field

import (
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// After returns the map "inner first, then e" on inner's grid.
func (e *Endless) After(inner *Field, threads int) *Field {
	e.Margin()
	g := inner.Geometry
	out := New(g)
	toMM, toIndex := g.IndexToPhysical(), g.PhysicalToIndex()
	nx, ny := g.Size[0], g.Size[1]
	parallel.For(ny*g.Size[2], parallel.Rows(nx), threads, func(lo, hi int) {
		points := make([]float64, 3*nx)
		for r := lo; r < hi; r++ {
			from := inner.Row(r%ny, r/ny)
			for i := range nx {
				x, y, z := float64(i)+float64(from[0][i]), float64(r%ny)+float64(from[1][i]), float64(r/ny)+float64(from[2][i])
				p := toMM.Apply([3]float64{x, y, z})
				copy(points[3*i:], p[:])
			}
			e.TransformPoints(points)
			to := out.Row(r%ny, r/ny)
			for i := range nx {
				p := toIndex.Apply([3]float64(points[3*i : 3*i+3]))
				to[0][i], to[1][i], to[2][i] = float32(p[0]-float64(i)), float32(p[1]-float64(r%ny)), float32(p[2]-float64(r/ny))
			}
		}
	})
	return out
}

// Root returns the map that gives f when it is applied twice, for f near the identity: s <- s + (f - s o s)/2.
// Where f is far from it, or rough, the root is what that comes to.
func (f *Field) Root(threads int) *Field {
	const rounds, enough = 24, 1e-4 // voxels
	root, twice := New(f.Geometry), New(f.Geometry)
	for range rounds {
		Compose(twice, root, root, threads)
		most := parallel.Reduce(len(f.Data), 1<<16, threads, func(lo, hi int) (most float32) {
			for i := lo; i < hi; i++ {
				d := f.Data[i] - twice.Data[i]
				root.Data[i] += float32(0.5 * d)
				most = max(most, d, -d)
			}
			return most
		}, func(a, b float32) float32 { return max(a, b) })
		if most <= enough {
			break
		}
	}
	return root
}
