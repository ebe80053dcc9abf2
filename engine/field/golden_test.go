package field_test

import (
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/golden"
	"github.com/morphseek/morphseek/engine/volume"
)

// mmField is a field as ITK holds it: vectors in LPS mm.
type mmField struct {
	Grid volume.Geometry
	MM   golden.Floats
}

func (f mmField) field() *field.Field { return field.FromMM(f.Grid, f.MM, 2) }

type goldenData struct {
	Prev mmField
	Warp struct {
		Moving          golden.Image
		Background      float32
		Linear, Nearest golden.Floats
	}
	Compose struct {
		Phi                mmField
		Inside, ITK, Scipy golden.Floats
	}
	Exp struct {
		Grid           volume.Geometry
		Velocity, Want golden.Floats
		Squarings      int
	}
	Jacobian struct {
		Field      mmField
		Numpy, ITK golden.Floats
		Stats      field.Stats
	}
	Total struct {
		Initial                 volume.Affine
		Deform                  mmField
		Fixed                   volume.Geometry
		Want, Affine, Resampled golden.Floats
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
	golden.Read(t, "testdata/golden.json", &d)
	return d
}

func TestWarpEqualsSimpleITK(t *testing.T) {
	d := readGolden(t)
	f, moving := d.Prev.field(), d.Warp.Moving.Volume()
	golden.Close(t, "linear", f.Warp(moving, volume.Linear, d.Warp.Background, 2).Data, d.Warp.Linear, 1e-4)
	golden.Close(t, "nearest", f.Warp(moving, volume.Nearest, d.Warp.Background, 2).Data, d.Warp.Nearest, 0)
}

func TestComposeEqualsSimpleITKAndScipy(t *testing.T) {
	d := readGolden(t)
	prev, phi := d.Prev.field(), d.Compose.Phi.field()
	u := field.Compose(nil, prev, phi, 2)
	golden.Close(t, "scipy, voxels", u.Data, d.Compose.Scipy, 1e-5)

	var got, want []float32
	for i, mm := range u.MM(nil, 2) {
		if d.Compose.Inside[i/3] != 0 {
			got, want = append(got, mm), append(want, d.Compose.ITK[i])
		}
	}
	if len(got) < 1000 {
		t.Fatalf("only %d values inside", len(got))
	}
	golden.Close(t, "ITK, mm", got, want, 1e-5)

	if into := field.Compose(phi, prev, phi, 3); into != phi {
		t.Error("Compose did not return dst")
	}
	golden.Close(t, "dst = phi, other threads", phi.Data, u.Data, 0)
}

func TestExpEqualsScipy(t *testing.T) {
	d := readGolden(t).Exp
	v := field.Over(d.Grid, d.Velocity)
	golden.Close(t, "exp", field.Exp(v, d.Squarings, 2).Data, d.Want, 1e-5)
}

func TestJacobianEqualsNumpyAndSimpleITK(t *testing.T) {
	d := readGolden(t).Jacobian
	f := d.Field.field()
	det := f.JacobianDeterminant(2).Data
	golden.Close(t, "numpy", det, d.Numpy, 1e-4)

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
	golden.Close(t, "ITK, inside", got, want, 1e-4)

	s, w := f.Stats(2), d.Stats
	golden.Close(t, "stats",
		[]float64{s.NJDPercent, s.SDLogJ, s.JacobianMin, s.JacobianMax, s.DisplacementMeanMM, s.DisplacementMaxMM},
		[]float64{w.NJDPercent, w.SDLogJ, w.JacobianMin, w.JacobianMax, w.DisplacementMeanMM, w.DisplacementMaxMM}, 1e-4)
	if s != f.Stats(5) {
		t.Error("Stats depend on the number of threads")
	}
}

func TestTotalEqualsSimpleITK(t *testing.T) {
	d := readGolden(t).Total
	deform := d.Deform.field()
	golden.Close(t, "total", field.Total(d.Initial, deform, d.Fixed, 2).MM(nil, 2), d.Want, 2e-5)
	golden.Close(t, "affine", field.FromAffine(d.Fixed, d.Initial).MM(nil, 2), d.Affine, 2e-5)
	golden.Close(t, "resampled", deform.Resample(d.Fixed, 2).MM(nil, 2), d.Resampled, 2e-5)
}

func TestMMRoundTrip(t *testing.T) {
	d := readGolden(t).Prev
	golden.Close(t, "mm", d.field().MM(nil, 2), d.MM, 1e-6)
}

func TestTransformPointsEqualsSimpleITK(t *testing.T) {
	d := readGolden(t)
	d.Prev.field().TransformPoints(d.Points.In)
	golden.Close(t, "points", d.Points.In, d.Points.Want, 1e-5)
}

func TestInverseEqualsScipyOnITKTransform(t *testing.T) {
	d := readGolden(t).Inverse
	inverse, residual := d.Field.field().Inverse(d.Grid, field.InverseOptions{Threads: 2})
	if !(residual <= 1e-3) {
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
	golden.Close(t, "inverse, mm", got, want, 2e-3)
}
