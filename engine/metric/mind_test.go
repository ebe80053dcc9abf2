package metric

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"
)

// The golden file is written by testdata/mind_golden.py with the authors' torch formulation.
func TestMINDSSCMatchesTorch(t *testing.T) {
	raw, err := os.ReadFile("testdata/mind_golden.f32")
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, len(raw)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	size := [3]int{9, 10, 11}
	n := 9 * 10 * 11
	if len(values) != (1+MINDChannels)*n {
		t.Fatalf("golden file holds %d values, want %d", len(values), (1+MINDChannels)*n)
	}
	image, want := values[:n], values[n:]
	got := MINDSSC(image, size, 1, 2, 1)
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 2e-5 {
			t.Fatalf("channel %d voxel %d: %g, torch has %g", i/n, i%n, got[i], want[i])
		}
	}
	if !slices.Equal(got, MINDSSC(image, size, 1, 2, 3)) {
		t.Error("another number of threads gives other bits")
	}
}

func TestMINDSSCOfConstantVolume(t *testing.T) {
	for _, v := range MINDSSC(make([]float32, 60), [3]int{3, 4, 5}, 1, 2, 2) {
		if v != 1 {
			t.Fatalf("constant volume: %g, want 1 everywhere", v)
		}
	}
}
