// Package testkit is for tests: reference data, pairs of images whose displacement is known, and an ONNX Runtime.
//
// Reference data is JSON written by the make_golden.py beside it, in which arrays of voxels are base64 of little-endian
// float32.
package testkit

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

// Floats is a float32 array, x fastest.
type Floats []float32

// UnmarshalJSON reads base64 text.
func (f *Floats) UnmarshalJSON(text []byte) error {
	var encoded string
	if err := json.Unmarshal(text, &encoded); err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	*f = make(Floats, len(raw)/4)
	_, err = binary.Decode(raw, binary.LittleEndian, []float32(*f))
	return err
}

// Image is a volume.
type Image struct {
	Grid volume.Geometry
	Data Floats
}

// Volume returns the image as the engine's type.
func (m Image) Volume() *volume.Volume { return &volume.Volume{Geometry: m.Grid, Data: m.Data} }

// Read fills v from a JSON file, or ends the test.
func Read(t testing.TB, path string, v any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatalf("%s: %v (make_golden.py beside it writes it)", path, err)
	}
}

// Must returns what a call gives, or ends the test at its error: testkit.Must(call())(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// OK ends the test at an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Fails ends in an error of the test unless err has a code and, where that is not fault.OK, says some words.
func Fails(t testing.TB, err error, code fault.Code, says ...string) {
	t.Helper()
	missing := func(words string) bool { return err != nil && !strings.Contains(err.Error(), words) }
	if fault.CodeOf(err) != code || slices.ContainsFunc(says, missing) {
		t.Errorf("got %v (%v), want %v with %q", fault.CodeOf(err), err, code, says)
	}
}

// Refused is Fails of a call that also gives a value: testkit.Refused(call())(t, code, words).
func Refused[T any](_ T, err error) func(t testing.TB, code fault.Code, says ...string) {
	return func(t testing.TB, code fault.Code, says ...string) {
		t.Helper()
		Fails(t, err, code, says...)
	}
}

// Close ends in an error of the test, with the worst item named, unless got equals want to within tolerance everywhere.
// NaN equals nothing.
func Close[T float32 | float64](t testing.TB, what string, got, want []T, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	worst, at := 0.0, -1
	for i := range got {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			t.Errorf("%s: item %d is %v, want %v", what, i, got[i], want[i])
			return
		}
		if d > worst {
			worst, at = d, i
		}
	}
	if worst > tolerance {
		t.Errorf("%s: item %d is %v, want %v: off by %.3g, tolerance %.3g", what, at, got[at], want[at], worst, tolerance)
	}
	t.Logf("%s: largest difference %.3g over %d values", what, worst, len(got))
}
