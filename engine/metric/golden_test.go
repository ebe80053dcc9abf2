package metric

import (
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

type figures struct{ LNCC, NMI float64 }

type goldenData struct {
	Overlap struct {
		A, B       testkit.Image
		Labels     []int
		Dice, HD95 []float64
	}
	EDT struct {
		Grid   volume.Geometry
		Points []int
		Want   testkit.Floats
	}
	Similarity struct {
		A, B, Mask    testkit.Image
		Radius, Bins  int
		Whole, Masked figures
	}
}

func readGolden(t *testing.T) (d goldenData) {
	testkit.Read(t, "testdata/golden.json", &d)
	return d
}

func TestLabelScoresEqualNumpyAndMONAI(t *testing.T) {
	d := readGolden(t).Overlap
	a, b := d.A.Volume(), d.B.Volume()
	const lost = 7 // in b alone
	got, n := compare(a, b, 2), len(d.Labels)
	if len(got) != n+1 || got[n] != (Agreement{lost, 0, math.Inf(1)}) {
		t.Fatalf("%v, want labels %v and the lost label %d", got, d.Labels, lost)
	}
	dice, hd95 := make([]float64, n), make([]float64, n)
	for i, s := range got[:n] {
		if dice[i], hd95[i] = s.Dice, s.HD95; s.Label != d.Labels[i] {
			t.Errorf("label %d, want %d", s.Label, d.Labels[i])
		}
	}
	testkit.Close(t, "Dice", dice, d.Dice, 1e-5)
	testkit.Close(t, "HD95", hd95, d.HD95, 1e-5)
	for _, v := range []*volume.Volume{a, b} {
		for _, s := range compare(v, v, 1) {
			if s.Dice != 1 || s.HD95 != 0 {
				t.Errorf("with itself: %v", s)
			}
		}
	}
}

func TestDistancesEqualScipy(t *testing.T) {
	d := readGolden(t).EDT
	points := volume.Zeros(d.Grid)
	for _, i := range d.Points {
		points.Data[i] = 1
	}
	to := newTarget(numbers(points, 2).mask(1), d.Grid.Spacing).grown()
	mm, s := make([]float32, d.Grid.Voxels()), search{nearest: to.points[0]}
	for i := range mm {
		s.p = point{int32(i % d.Grid.Size[0]), int32(i / d.Grid.Size[0] % d.Grid.Size[1]), int32(i / (d.Grid.Size[0] * d.Grid.Size[1]))}
		to.find(&s)
		mm[i] = float32(math.Sqrt(s.squared))
	}
	testkit.Close(t, "distance", mm, d.Want, 1e-5)
}

func TestSimilaritiesEqualNumpy(t *testing.T) {
	d := readGolden(t).Similarity
	a, b := d.A.Volume(), d.B.Volume()
	for _, c := range []struct {
		name string
		mask *volume.Volume
		want figures
	}{{"whole", nil, d.Whole}, {"masked", d.Mask.Volume(), d.Masked}} {
		t.Run(c.name, func(t *testing.T) {
			measure := func(threads int) []float64 {
				return []float64{LocalNCC(a, b, c.mask, d.Radius, threads), NormalizedMutualInformation(a, b, c.mask, d.Bins, threads)}
			}
			got := measure(2)
			testkit.Close(t, c.name, got, []float64{c.want.LNCC, c.want.NMI}, 1e-7)
			testkit.Close(t, c.name+", other threads", measure(5), got, 0)
		})
	}
}
