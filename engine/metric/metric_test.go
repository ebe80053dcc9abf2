package metric

import (
	"math"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func image(n int, value func(i int) float32) *volume.Volume {
	return testkit.Filled(testkit.Grid([3]int{n, n, n}), value)
}

func TestSimilaritiesAtTheirLimits(t *testing.T) {
	ramp := image(9, func(i int) float32 { return float32(i * i % 113) })
	opposite := image(9, func(i int) float32 { return 7 - 2*float32(i*i%113) })
	flat := image(9, func(int) float32 { return 4 })
	none := image(9, func(int) float32 { return 0 })

	testkit.Close(t, "limits",
		[]float64{
			LocalNCC(ramp, opposite, nil, 3, 2), LocalNCC(ramp, flat, nil, 3, 2), LocalNCC(ramp, ramp, none, 3, 2),
			NormalizedMutualInformation(ramp, flat, nil, 16, 2),
		},
		[]float64{1, 0, 0, 1}, 1e-9)
}

func TestLabelsRoundAndSkipNaN(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	a := image(2, func(i int) float32 { return []float32{0, 0.4, 0.9, 1.2, -1, nan, inf, 2}[i] })
	b := image(2, func(i int) float32 { return []float32{0, 0, 1, 1, -1, 0, 0, 2}[i] })
	want := []Agreement{{-1, 1, 0}, {1, 1, 0}, {2, 1, 0}}
	if got := compare(a, b, 2); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The benchmarks run on a whole brain's grid, 160x192x224, on 2 threads.
func brain(value func(i int) float32) *volume.Volume {
	return testkit.Filled(testkit.Grid([3]int{160, 192, 224}), value)
}

func BenchmarkLocalNCC(b *testing.B) {
	x := brain(func(i int) float32 { return float32(i % 1009) })
	y := brain(func(i int) float32 { return float32(i % 1013) })
	for b.Loop() {
		LocalNCC(x, y, nil, 4, 2)
	}
}

func BenchmarkNormalizedMutualInformation(b *testing.B) {
	x := brain(func(i int) float32 { return float32(i % 1009) })
	y := brain(func(i int) float32 { return float32(i % 1013) })
	for b.Loop() {
		NormalizedMutualInformation(x, y, nil, 32, 2)
	}
}

func BenchmarkCompare(b *testing.B) {
	ball := func(shift int) *volume.Volume {
		return brain(func(i int) float32 {
			x, y, z := i%160-80-shift, i/160%192-96, i/160/192-112
			return float32(min(4*(x*x+y*y+z*z)/(75*75), 4)) // shells 0..4: 4 is outside
		})
	}
	x, y := ball(0), ball(3)
	for b.Loop() {
		compare(x, y, 2)
	}
}

// numbers takes apart a map whose voxels hold labels as float32.
func numbers(v *volume.Volume, threads int) *Runs { return RunsOf(v.Data, v.Size, threads) }

func compare(a, b *volume.Volume, threads int) []Agreement {
	return numbers(a, threads).Compare(numbers(b, threads), a.Spacing, threads)
}
