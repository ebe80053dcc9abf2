package engine

import (
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// A registration of large images, which are read by blocks of voxels, finds the motion, in whatever unit the moving image's
// header is.
func TestLargeImages(t *testing.T) {
	long(t)
	t.Parallel()
	const n = 120
	coarse, coarseMoving, truth := testkit.Phantom(n, 4, false)
	fine := coarse.Geometry // more than eight times the voxels of the preset's finest grid
	for a := range 3 {
		fine.Size[a], fine.Spacing[a], fine.Origin[a] = 2*n, 0.5, -0.25
	}
	fixed := coarse.ResampleRepeated(fine, volume.IdentityAffine(), 2)
	moving := coarseMoving.ResampleRepeated(fine, volume.IdentityAffine(), 2)
	small := &volume.Volume{Geometry: moving.Geometry, Data: moving.Data}
	toSmall := volume.IdentityAffine()
	for a := range 3 {
		small.Spacing[a], small.Origin[a], toSmall.M[4*a] = fine.Spacing[a]*1e-3, fine.Origin[a]*1e-3, 1e-3
	}
	e := open(t, Config{})
	for _, c := range []struct {
		name string
		pair Pair
		to   volume.Affine
	}{
		{"both in mm", Pair{Fixed: fixed, Moving: moving}, volume.IdentityAffine()},
		{"the moving one in metres", Pair{Fixed: fixed, Moving: small, Initial: &toSmall}, toSmall},
	} {
		r := register(t, e, c.pair, with(func(o *Options) { o.Preset, o.Initial, o.Refine, o.Search = "fast", "none", -1, "off" }))
		var off, before float64
		for z := 10; z < n; z += 10 {
			for y := 10; y < n; y += 10 {
				for x := 10; x < n; x += 10 {
					at := [3]float64{float64(x), float64(y), float64(z)}
					if coarse.Data[(z*n+y)*n+x] < 50 {
						continue // air
					}
					want, got := at, at
					truth.TransformPoints(want[:])
					testkit.OK(t, r.TransformPoints(got[:]))
					off += volume.Distance(got, c.to.Apply(want)) / c.to.M[0]
					before += volume.Distance(at, want)
				}
			}
		}
		if off > 0.3*before {
			t.Errorf("%s: points are %.3g of what they were apart", c.name, off/before)
		}
	}
}
