package search

import (
	"context"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func TestRecoversLargeDisplacement(t *testing.T) {
	t.Parallel()
	const n = 48
	whole, moving, truth := testkit.Phantom(n, 6, true)
	// The moving volume without its upper quarter: what is unknown must not pull the rest.
	cropped := &volume.Volume{Geometry: moving.Geometry, Data: moving.Data[:n*n*(n*3/4)]}
	cropped.Size[2] = n * 3 / 4
	for _, c := range []struct {
		name   string
		moving *volume.Volume
		trees  int
		top    int     // of the box looked at
		left   float64 // of the displacement, at most
	}{{"whole", moving, 1, 37, 0.3}, {"four trees", moving, 4, 37, 0.3}, {"partial field of view", cropped, 4, 28, 0.35}} {
		t.Run(c.name, func(t *testing.T) {
			run := func(threads int) *field.Field {
				pair := aligned.Pair{Fixed: whole, Moving: c.moving, Initial: volume.IdentityAffine()}
				u := testkit.Must(Run(context.Background(), pair, Options{Trees: c.trees, Threads: threads}))(t)
				return u
			}
			u := run(1)
			lo, hi := [3]int{11, 11, 11}, [3]int{37, 37, c.top}
			before, after := testkit.MeanError(nil, truth, lo, hi), testkit.MeanError(u, truth, lo, hi)
			t.Logf("mean error %.2f -> %.2f voxels, determinant >= %.2f", before, after, u.Stats(1).JacobianMin)
			if after > c.left*before {
				t.Errorf("mean error %.2f of %.2f voxels left", after, before)
			}
			if j := u.Stats(1).JacobianMin; j < minJacobian {
				t.Errorf("least Jacobian determinant %g", j)
			}
			if c.moving == cropped && !slices.Equal(u.Data, run(3).Data) {
				t.Error("the field depends on the number of threads")
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(40, 3, false)
	ctx, cancel := context.WithCancel(context.Background())
	pair := aligned.Pair{Fixed: fixed, Moving: moving, Initial: volume.IdentityAffine()}
	_, err := Run(ctx, pair, Options{Progress: func(float64) { cancel() }})
	if fault.CodeOf(err) != fault.Cancelled {
		t.Errorf("error %v, want cancelled", err)
	}
}
