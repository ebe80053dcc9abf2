package metric

import (
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/golden"
	"github.com/morphseek/morphseek/engine/volume"
)

type figures struct{ MSE, NCC, LNCC, MI, NMI float64 }

type goldenData struct {
	Overlap struct {
		A, B       golden.Image
		Labels     []int
		Dice, HD95 []float64
	}
	EDT struct {
		Grid   volume.Geometry
		Points []int
		Want   golden.Floats
	}
	Similarity struct {
		A, B, Mask    golden.Image
		Radius, Bins  int
		Whole, Masked figures
	}
}

func readGolden(t *testing.T) (d goldenData) {
	golden.Read(t, "testdata/golden.json", &d)
	return d
}

func TestLabelScoresEqualNumpyAndMONAI(t *testing.T) {
	d := readGolden(t).Overlap
	a, b := d.A.Volume(), d.B.Volume()
	const lost = 7 // in b alone
	for _, c := range []struct {
		name       string
		got        []LabelScore
		want       []float64
		lost, best float64
	}{
		{"Dice", Dice(a, b, 2), d.Dice, 0, 1},
		{"HD95", HD95(a, b, 2), d.HD95, math.Inf(1), 0},
	} {
		n := len(d.Labels)
		if len(c.got) != n+1 || c.got[n] != (LabelScore{lost, c.lost}) {
			t.Fatalf("%s: %v, want labels %v and the lost label %d at %g", c.name, c.got, d.Labels, lost, c.lost)
		}
		scores := make([]float64, n)
		for i, s := range c.got[:n] {
			if scores[i] = s.Score; s.Label != d.Labels[i] {
				t.Errorf("%s: label %d, want %d", c.name, s.Label, d.Labels[i])
			}
		}
		golden.Close(t, c.name, scores, c.want, 1e-5)
	}
	for _, s := range Dice(a, a, 1) {
		if s.Score != 1 {
			t.Errorf("Dice with itself: %v", s)
		}
	}
	for _, s := range HD95(b, b, 1) {
		if s.Score != 0 {
			t.Errorf("HD95 with itself: %v", s)
		}
	}
}

func TestDistancesEqualScipy(t *testing.T) {
	d := readGolden(t).EDT
	points := volume.Zeros(d.Grid)
	for _, i := range d.Points {
		points.Data[i] = 1
	}
	to := surfacesOf(points, 2).target(1, newNeighbourhood(d.Grid.Size, d.Grid.Spacing))
	mm, s := make([]float32, d.Grid.Voxels()), search{nearest: to.points[0]}
	for i := range mm {
		s.p = point{int32(i % d.Grid.Size[0]), int32(i / d.Grid.Size[0] % d.Grid.Size[1]), int32(i / (d.Grid.Size[0] * d.Grid.Size[1]))}
		to.find(&s)
		mm[i] = float32(math.Sqrt(s.squared))
	}
	golden.Close(t, "distance", mm, d.Want, 1e-5)
}

func TestSimilaritiesEqualNumpy(t *testing.T) {
	d := readGolden(t).Similarity
	a, b := d.A.Volume(), d.B.Volume()
	for _, c := range []struct {
		name string
		mask *volume.Volume
		want figures
	}{{"whole", nil, d.Whole}, {"masked", d.Mask.Volume(), d.Masked}} {
		measure := func(threads int) []float64 {
			mi, nmi := MutualInformation(a, b, c.mask, d.Bins, threads)
			return []float64{MSE(a, b, c.mask, threads) / c.want.MSE, NCC(a, b, c.mask, threads), LocalNCC(a, b, c.mask, d.Radius, threads), mi, nmi}
		}
		got := measure(2)
		golden.Close(t, c.name, got, []float64{1, c.want.NCC, c.want.LNCC, c.want.MI, c.want.NMI}, 1e-7)
		golden.Close(t, c.name+", other threads", measure(5), got, 0)
	}
}
