package field_test

import (
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// mmField is a field as ITK holds it: vectors in LPS mm.
type mmField struct {
	Grid volume.Geometry
	MM   testkit.Floats
}

func (f mmField) field() *field.Field { return field.FromMM(f.Grid, f.MM, 2) }

type goldenData struct {
	Prev mmField
	Warp struct {
		Moving          testkit.Image
		Background      float32
		Linear, Nearest testkit.Floats
	}
	Compose struct {
		Phi                mmField
		Inside, ITK, Scipy testkit.Floats
	}
	Jacobian struct {
		Field      mmField
		Numpy, ITK testkit.Floats
		Stats      field.Stats
	}
	Total struct {
		Initial                 volume.Affine
		Deform                  mmField
		Fixed                   volume.Geometry
		Want, Affine, Resampled testkit.Floats
	}
	Inverse struct {
		Field mmField
		Grid  volume.Geometry
		Want  []struct {
			Index        [3]int
			Displacement [3]float64
		}
	}
	Points struct{ In, Want []float64 }
}

func readGolden(t *testing.T) (d goldenData) {
	testkit.Read(t, "testdata/golden.json", &d)
	return d
}

func TestWarpEqualsSimpleITK(t *testing.T) {
	d := readGolden(t)
	f, moving := d.Prev.field(), d.Warp.Moving.Volume()
	testkit.Close(t, "linear", f.Warp(moving, volume.Linear, d.Warp.Background, 2).Data, d.Warp.Linear, 1e-4)
	testkit.Close(t, "nearest", f.Warp(moving, volume.Nearest, d.Warp.Background, 2).Data, d.Warp.Nearest, 0)
}

func TestComposeEqualsSimpleITKAndScipy(t *testing.T) {
	d := readGolden(t)
	prev, phi := d.Prev.field(), d.Compose.Phi.field()
	u := field.Compose(nil, prev, phi, 2)
	testkit.Close(t, "scipy, voxels", u.Data, d.Compose.Scipy, 1e-5)

	var got, want []float32
	for i, mm := range u.MM(nil, 2) {
		if d.Compose.Inside[i/3] != 0 {
			got, want = append(got, mm), append(want, d.Compose.ITK[i])
		}
	}
	if len(got) < 1000 {
		t.Fatalf("only %d values inside", len(got))
	}
	testkit.Close(t, "ITK, mm", got, want, 1e-5)

	if into := field.Compose(phi, prev, phi, 3); into != phi {
		t.Error("Compose did not return dst")
	}
	testkit.Close(t, "dst = phi, other threads", phi.Data, u.Data, 0)
}

func TestJacobianEqualsNumpyAndSimpleITK(t *testing.T) {
	d := readGolden(t).Jacobian
	f := d.Field.field()
	det := f.JacobianDeterminant(2).Data
	testkit.Close(t, "numpy", det, d.Numpy, 1e-4)

	var got, want []float32
	n := f.Size
	for z := 1; z < n[2]-1; z++ {
		for y := 1; y < n[1]-1; y++ {
			for x := 1; x < n[0]-1; x++ {
				o := x + n[0]*(y+n[1]*z)
				got, want = append(got, det[o]), append(want, d.ITK[o])
			}
		}
	}
	testkit.Close(t, "ITK, inside", got, want, 1e-4)

	s, w := f.Stats(2), d.Stats
	testkit.Close(t, "stats",
		[]float64{s.NJDPercent, s.SDLogJ, s.JacobianMin, s.JacobianMax, s.DisplacementMeanMM, s.DisplacementMaxMM},
		[]float64{w.NJDPercent, w.SDLogJ, w.JacobianMin, w.JacobianMax, w.DisplacementMeanMM, w.DisplacementMaxMM}, 1e-4)
	if s != f.Stats(5) {
		t.Error("Stats depend on the number of threads")
	}
}

func TestTotalEqualsSimpleITK(t *testing.T) {
	d := readGolden(t).Total
	deform := d.Deform.field()
	testkit.Close(t, "total", field.Total(d.Initial, deform, d.Fixed, 2).MM(nil, 2), d.Want, 2e-5)
	testkit.Close(t, "affine", field.FromAffine(d.Fixed, d.Initial).MM(nil, 2), d.Affine, 2e-5)
	testkit.Close(t, "resampled", deform.Resample(d.Fixed, 2).MM(nil, 2), d.Resampled, 2e-5)
}

func TestMMRoundTrip(t *testing.T) {
	d := readGolden(t).Prev
	testkit.Close(t, "mm", d.field().MM(nil, 2), d.MM, 1e-6)
}

func TestTransformPointsEqualsSimpleITK(t *testing.T) {
	d := readGolden(t)
	d.Prev.field().TransformPoints(d.Points.In)
	testkit.Close(t, "points", d.Points.In, d.Points.Want, 1e-5)
}

func TestInverseEqualsScipyOnITKTransform(t *testing.T) {
	d := readGolden(t).Inverse
	inverse, residual := d.Field.field().Inverse(d.Grid, 2)
	if !(residual <= 1e-3*slices.Min(d.Grid.Spacing[:])) {
		t.Errorf("residual %g mm", residual)
	}
	mm := inverse.MM(nil, 2)
	var got, want []float64
	for _, w := range d.Want {
		o := 3 * (w.Index[0] + d.Grid.Size[0]*(w.Index[1]+d.Grid.Size[1]*w.Index[2]))
		for a := range 3 {
			got, want = append(got, float64(mm[o+a])), append(want, w.Displacement[a])
		}
	}
	if len(want) < 100 {
		t.Fatalf("only %d values to compare", len(want))
	}
	testkit.Close(t, "inverse, mm", got, want, 2e-3)
}
