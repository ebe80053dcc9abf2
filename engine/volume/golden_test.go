package volume_test

import (
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

type goldenData struct {
	Resample []struct {
		Image         testkit.Image
		Affine        volume.Affine
		Interpolation string
		Background    float32
		Want          testkit.Image
	}
	Spline []struct {
		Image  testkit.Image
		Affine volume.Affine
		Want   testkit.Image
	}
	Orient []struct{ Grid, Want volume.Geometry }
	Points []struct {
		Grid         volume.Geometry
		Index, Point [3]float64
	}
	Percentiles []struct {
		Values   testkit.Floats
		Ps, Want []float64
	}
}

func readGolden(t *testing.T) (d goldenData) {
	testkit.Read(t, "testdata/golden.json", &d)
	return d
}

func TestResampleEqualsSimpleITK(t *testing.T) {
	for _, c := range readGolden(t).Resample {
		interp := testkit.Must(volume.ParseInterpolation(c.Interpolation))(t)
		got := c.Image.Volume().Resample(c.Want.Grid, c.Affine, interp, c.Background, 2)
		testkit.Close(t, c.Interpolation, got.Data, c.Want.Data, 3e-5)
	}
}

func TestResampleSplineEqualsSimpleITK(t *testing.T) {
	for _, c := range readGolden(t).Spline {
		got := c.Image.Volume().ResampleSpline(c.Want.Grid, c.Affine, 2)
		testkit.Close(t, "spline", got.Data, c.Want.Data, 3e-4)
	}
}

func TestCanonicalEqualsDICOMOrient(t *testing.T) {
	for _, c := range readGolden(t).Orient {
		got, perm, flip := c.Grid.Canonical()
		if got.Size != c.Want.Size {
			t.Errorf("size %v, want %v", got.Size, c.Want.Size)
		}
		testkit.Close(t, "spacing", got.Spacing[:], c.Want.Spacing[:], 1e-12)
		testkit.Close(t, "origin", got.Origin[:], c.Want.Origin[:], 1e-9)
		testkit.Close(t, "direction", got.Direction[:], c.Want.Direction[:], 1e-9)

		// perm and flip must say the same as the geometry: walk one voxel of each grid to its point.
		var index, source [3]float64
		for a := range 3 {
			index[a] = float64(a % got.Size[a])
			source[perm[a]] = index[a]
			if flip[a] {
				source[perm[a]] = float64(got.Size[a]-1) - index[a]
			}
		}
		p, q := got.IndexToPhysical().Apply(index), c.Grid.IndexToPhysical().Apply(source)
		testkit.Close(t, "voxel", p[:], q[:], 1e-9)
	}
}

func TestIndexToPhysicalEqualsSimpleITK(t *testing.T) {
	for _, c := range readGolden(t).Points {
		p := c.Grid.IndexToPhysical().Apply(c.Index)
		testkit.Close(t, "point", p[:], c.Point[:], 1e-9)
		x := c.Grid.PhysicalToIndex().Apply(c.Point)
		testkit.Close(t, "index", x[:], c.Index[:], 1e-9)
	}
}

func TestPercentilesEqualNumpy(t *testing.T) {
	for _, c := range readGolden(t).Percentiles {
		v := &volume.Volume{Data: c.Values}
		for i, got := range v.Percentiles(c.Ps...) {
			// One rounding of the interpolation, relative to the neighbouring values.
			if scale := max(1, abs(c.Want[i])); !(abs(got-c.Want[i]) <= 1e-12*scale) {
				t.Errorf("percentile %g of %d values is %v, want %v", c.Ps[i], len(c.Values), got, c.Want[i])
			}
		}
	}
}

func abs(x float64) float64 { return max(x, -x) }
