package engine

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// Labels far apart are searched for, near ones looked up: the scores are the same, and those of any number of threads.
func TestScoresDoNotDependOnTheNumbersOfLabels(t *testing.T) {
	g := volume.Geometry{Size: [3]int{20, 16, 12}, Spacing: [3]float64{1, 1.5, 2}, Direction: volume.Identity}
	f := field.New(g)
	for i := range g.Voxels() {
		f.Data[2*g.Voxels()+i] = 1 // a voxel along x
	}
	box := func(first, second int32, shift int) LabelMap {
		m := LabelMap{g, make([]int32, g.Voxels())}
		for i := range m.Data {
			x, y, z := i%20-shift, i/20%16, i/320
			if y > 3 && y < 12 && z > 2 && z < 9 && x > 3 && x < 15 {
				m.Data[i] = first
				if x > 8 {
					m.Data[i] = second
				}
			}
		}
		return m
	}
	det := slices.Repeat([]float32{1.1}, g.Voxels())
	var want []LabelScore
	for _, c := range []struct {
		a, b    int32
		threads int
	}{{1, 2, 1}, {1, 2, 3}, {-5, 7, 2}, {math.MinInt32, math.MaxInt32, 2}} {
		got, err := ScoreLabels(f, det, box(c.a, c.b, 0), box(c.a, c.b, 1), nil, c.threads)
		if err != nil || len(got) != 2 || got[0].Label != c.a || got[1].Label != c.b {
			t.Fatalf("%v, %v", got, err)
		}
		carried := box(c.a, c.b, 0)
		if again, err := ScoreLabels(f, det, box(c.a, c.b, 0), box(c.a, c.b, 1), carried.Data, c.threads); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("with the carried map: %v, %v, want %v", again, err, got)
		}
		got[0].Label, got[1].Label = 1, 2
		if want == nil {
			want = got
			for _, s := range got {
				if s.DiceAfter != 1 || s.HD95After != 0 || s.DiceBefore >= 1 || s.HD95Before != 1 || math.Abs(s.VolumeError-10) > 1e-4 {
					t.Errorf("%+v", s)
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %+v, want %+v", c, got, want)
		}
	}
	if got, err := ScoreLabels(f, det, box(1, 2, 0), box(3, 4, 0), nil, 1); err != nil || got != nil {
		t.Errorf("no label in common: %v, %v", got, err)
	}
}

// Scores of slices count areas, whatever the thickness: the same disc in pixels of half the size has no error.
func TestSlicesAreScoredByArea(t *testing.T) {
	disc := func(n int, mm, thick float64, thin int) LabelMap {
		g := volume.Geometry{Size: [3]int{n, n, n}, Spacing: [3]float64{mm, mm, mm}, Direction: volume.Identity}
		g.Size[thin], g.Spacing[thin] = 1, thick
		for a := range 3 {
			if a != thin {
				g.Origin[a] = (mm - 1) / 2
			}
		}
		m := LabelMap{g, make([]int32, n*n)}
		for i := range m.Data {
			if math.Hypot((float64(i%n)+0.5)*mm-32, (float64(i/n)+0.5)*mm-32) < 20 {
				m.Data[i] = 1
			}
		}
		return m
	}
	for thin := range 3 {
		fixed, moving := disc(64, 1, 3, thin), disc(128, 0.5, 5, thin)
		det := slices.Repeat([]float32{1}, fixed.Voxels())
		got, err := ScoreLabels(field.New(fixed.Geometry), det, fixed, moving, nil, 2)
		if err != nil || len(got) != 1 || math.Abs(got[0].VolumeError) > 1 || got[0].DiceAfter < 0.97 {
			t.Errorf("thin along %d: %+v, %v", thin, got, err)
		}
	}
}

// What does not have as many values as its grid has voxels is refused by its name, and nothing reaches the caller as a
// panic.
func TestScoresOfWrongLengths(t *testing.T) {
	g := testkit.Grid([3]int{4, 4, 4})
	of := func(n int) LabelMap { return LabelMap{g, slices.Repeat([]int32{1}, n)} }
	tiny := of(64)
	tiny.Size[0] = 0
	for _, c := range []struct {
		name          string
		f             *field.Field
		det           int
		fixed, moving LabelMap
		carried       []int32
		code          fault.Code
		said          string
	}{
		{"fixed", field.New(g), 64, of(63), of(64), nil, fault.GridMismatch, "the fixed labels have 63"},
		{"moving", field.New(g), 64, of(64), of(70), nil, fault.GridMismatch, "the moving labels have 70"},
		{"determinant", field.New(g), 10, of(64), of(64), nil, fault.GridMismatch, "the Jacobian determinant has 10"},
		{"carried", field.New(g), 64, of(64), of(64), make([]int32, 65), fault.GridMismatch, "the carried labels have 65"},
		{"a grid without voxels", field.New(g), 64, of(64), tiny, nil, fault.EmptyVolume, "moving labels"},
		{"no field", nil, 64, of(64), of(64), nil, fault.Internal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			func() {
				defer func() {
					if r := recover(); r != nil {
						t.Errorf("panic %v", r)
					}
				}()
				_, err := ScoreLabels(c.f, make([]float32, c.det), c.fixed, c.moving, c.carried, 1)
				testkit.Fails(t, err, c.code, c.said)
			}()
		})
	}
}
