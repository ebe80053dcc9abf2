package engine

import (
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func TestResult(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	p := Pair{Fixed: blob([3]int{24, 20, 16}, 0), Moving: blob([3]int{22, 24, 14}, 2)}
	p.Initial = &volume.Affine{M: [9]float64{1.02, 0.05, 0, -0.05, 0.99, 0, 0, 0, 1}, T: [3]float64{1, 0.5, -1}}
	r := register(t, e, p, with(withTiny))

	path := filepath.Join(t.TempDir(), "result")
	testkit.OK(t, r.Save(path))
	back, err := LoadResult(path)
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("restored differs: %v", err)
	}

	warped, err := r.Warp(p.Moving, volume.Linear, slices.Min(p.Moving.Data))
	if err != nil || !slices.Equal(warped.Data, r.Warped.Data) {
		t.Errorf("warping the moving image again differs from the result's: %v", err)
	}
	testkit.Refused(r.Warp(nil, volume.Linear, 0))(t, fault.EmptyVolume)
	testkit.Fails(t, r.TransformPoints(make([]float64, 4)), fault.InvalidArgument)
	det, err := r.JacobianDeterminant()
	if err != nil || math.Abs(float64(slices.Min(det.Data))-r.Metrics.JacobianMin) > 1e-6 {
		t.Errorf("least determinant %g, metrics say %g (%v)", slices.Min(det.Data), r.Metrics.JacobianMin, err)
	}

	inverse, residual, err := r.Inverse()
	if err != nil || !inverse.Field.SameGrid(p.Moving.Geometry) {
		t.Fatalf("inverse: %v", err)
	}
	if inverse.Threads != r.Threads || r.Threads == 0 {
		t.Errorf("the inverse has %d threads, what it was made from %d", inverse.Threads, r.Threads)
	}
	points := []float64{-8, 15, 11}
	testkit.OK(t, inverse.TransformPoints(points))
	testkit.OK(t, r.TransformPoints(points))
	for a, want := range []float64{-8, 15, 11} { // between voxels the two are interpolated
		if math.Abs(points[a]-want) > 0.3+residual {
			t.Errorf("there and back: %v, residual %g", points, residual)
		}
	}
}
