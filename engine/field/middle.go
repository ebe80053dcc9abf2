package field

import (
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// After returns the map "inner first, then e" on inner's grid.
func (e *Endless) After(inner *Field, threads int) *Field {
	e.Margin()
	out := New(inner.Geometry)
	toMM, toIndex := out.IndexToPhysical(), out.PhysicalToIndex()
	parallel.For(len(out.X), 1<<14, threads, func(lo, hi int) {
		var points []float64
		for i := lo; i < hi; i++ {
			p := toMM.Apply(inner.Target(i))
			points = append(points, p[:]...)
		}
		e.TransformPoints(points)
		for i := lo; i < hi; i++ {
			out.SetTarget(i, toIndex.Apply([3]float64(points[3*(i-lo):])))
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
