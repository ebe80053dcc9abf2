package field

import "github.com/morphseek/morphseek/engine/internal/parallel"

// Reconcile moves u and w, a forward and a backward map on one grid that ought to be each other's inverse, each half the
// way to the inverse of the other: what only one of two registrations found is halved, and found by both it stays.
//
// Damped fixed-point steps at half the resolution invert them to some hundredths of a voxel where they are smooth over two
// voxels: enough for a registration that goes on from there, at an eighth of the time of Inverse, which is for results.
func Reconcile(u, w *Field, threads int) {
	half := u.Geometry
	for a := range 3 {
		half.Size[a] = (half.Size[a] + 1) / 2
		half.Spacing[a] *= 2
	}
	half = half.CenteredAt(u.Center())
	cu, cw := u.Resample(half, threads), w.Resample(half, threads)
	iu, iw := cu.roughInverse(threads), cw.roughInverse(threads)
	u.moveHalf(cu, iw, threads)
	w.moveHalf(cw, iu, threads)
}

// roughInverse returns the inverse to a fraction of a voxel.
func (f *Field) roughInverse(threads int) *Field {
	const steps, damping = 12, 0.6 // undamped steps diverge where the map stretches to more than twice
	inverse, residual := New(f.Geometry), New(f.Geometry)
	for range steps {
		Compose(residual, f, inverse, threads)
		parallel.Each(len(inverse.Data), 1<<16, threads, func(i int) {
			inverse.Data[i] -= float32(damping * residual.Data[i])
		})
	}
	return inverse
}

// moveHalf adds half of what leads from one field to another, on a grid of their own, to f. It overwrites from.
func (f *Field) moveHalf(from, to *Field, threads int) {
	parallel.Each(len(from.Data), 1<<16, threads, func(i int) {
		from.Data[i] = 0.5 * (to.Data[i] - from.Data[i])
	})
	step := from.Resample(f.Geometry, threads)
	parallel.Each(len(f.Data), 1<<16, threads, func(i int) {
		f.Data[i] += step.Data[i]
	})
}
