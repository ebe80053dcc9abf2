package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/metric"
	"github.com/morphseek/morphseek/engine/volume"
)

// An alignment alone is one map, measured in two ways: rounding is no loss of similarity.
func TestAlignmentAloneDoesNotWarn(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	fixed, moving, _ := testkit.Phantom(32, 1, false)
	less := 0
	for x := range 12 {
		initial := volume.Affine{M: testkit.Turn(0.02 * float64(x+1)), T: [3]float64{7.13, -5.07, 6.31}}
		moved := testkit.Placed(moving, initial)
		initial.T[x%3] += 0.1 * float64(x+1) // nearly
		r := register(t, e, Pair{Fixed: fixed, Moving: moved, Initial: &initial}, with(nil))
		if r.Metrics.SimilarityAfter < r.Metrics.SimilarityAlign {
			less++
		}
		if len(r.Metrics.Warnings) != 0 {
			t.Errorf("%g before, %g and %g after the alignment: warnings %q", r.Metrics.SimilarityBefore, r.Metrics.SimilarityAlign, r.Metrics.SimilarityAfter, r.Metrics.Warnings)
		}
	}
	if less == 0 {
		t.Error("no similarity was rounded down, so this test says nothing")
	}
}

// TestThinMaskIsMeasured: in a large image a mask of one slice lies between the voxels at which similarity is measured.
func TestThinMaskIsMeasured(t *testing.T) {
	t.Parallel()
	size := [3]int{130, 130, 130}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 2)}
	for _, z := range []int{60, 61} {
		t.Run(fmt.Sprintf("slice %d", z), func(t *testing.T) {
			p.FixedMask = volume.Zeros(p.Fixed.Geometry)
			for i := range size[0] * size[1] {
				p.FixedMask.Data[z*size[0]*size[1]+i] = 1
			}
			m := register(t, open(t, Config{}), p, with(nil)).Metrics
			f, g := slice(p.Fixed, z), slice(p.Moving, z)
			want := metric.LocalNCC(f, g, nil, 4, 1)
			if !m.Align.SameModality {
				want = metric.NormalizedMutualInformation(f, g, nil, 32, 1)
			}
			if math.Abs(m.SimilarityBefore-want) > 1e-6 {
				t.Errorf("similarity %g, its own %g", m.SimilarityBefore, want)
			}
		})
	}
}

// TestCompressionIsNoFold: what a network compresses to a two-hundredth stays as it is.
func TestCompressionIsNoFold(t *testing.T) {
	fixed := volume.Zeros(testkit.Grid([3]int{17, 16, 16}))
	deform := field.New(fixed.Geometry)
	for i := range deform.X {
		deform.X[i] = 0.995 * float32(cmp.Compare(8, i%17))
	}
	p := &problem{fixed: fixed, opt: with(nil)}
	want := slices.Clone(deform.X)
	total := p.total(state{initial: volume.IdentityAffine(), deform: deform})
	if j := total.Stats(1).JacobianMin; math.Abs(j-0.005) > 1e-5 {
		t.Errorf("least determinant %g", j)
	}
	for i, x := range total.X {
		if math.Abs(float64(x-want[i])) > 1e-5 {
			t.Fatalf("voxel %d: displacement %g became %g", i, want[i], x)
		}
	}
}

// A zigzag whose folds lie between the points of its own grid: central differences there do not see them.
func TestFoldsBetweenGridPointsAreOpened(t *testing.T) {
	coarse := field.New(volume.Geometry{Size: [3]int{16, 16, 16}, Spacing: [3]float64{2, 2, 2}, Direction: volume.Identity})
	for i := range coarse.X {
		coarse.X[i] = 1.2 * float32(i%2)
	}
	if j := coarse.Stats(1).JacobianMin; j < 0.5 {
		t.Fatalf("the field folds at its own points already: %g", j)
	}
	fixed := volume.Zeros(volume.Geometry{Size: [3]int{64, 64, 32}, Spacing: [3]float64{0.5, 0.5, 1}, Direction: volume.Identity})
	initial := volume.Affine{M: [9]float64{1.2, 0.1, 0, -0.1, 0.9, 0, 0, 0, 1}, T: [3]float64{3, 0, -1}}
	if j := field.Total(initial, coarse, fixed.Geometry, 1).Stats(1).NJDPercent; j < 1 {
		t.Fatalf("nothing folds on the fixed grid: %g %%", j)
	}
	p := &problem{fixed: fixed, opt: with(nil)}
	total := p.total(state{initial: initial, deform: coarse}).Stats(1)
	if total.NJDPercent > 0 || total.JacobianMin < 0.9*minJacobian*initial.Det() {
		t.Errorf("%g %% folds, least determinant %g", total.NJDPercent, total.JacobianMin)
	}
}
