package guard

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"
)

// recorder is a test whose failures are looked at.
type recorder struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestSliceFindsStrayWrites(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int
		want []string
	}{
		{"inside", 2, nil},
		{"before", -1, []string{"written before the first of 3 values"}},
		{"after", 3, []string{"written after the last of 3 values"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{TB: t}
			got := Slice(r, []float32{1, 2, 3})
			if !slices.Equal(got, []float32{1, 2, 3}) || cap(got) != 3 {
				t.Errorf("%v with capacity %d", got, cap(got))
			}
			*(*float32)(unsafe.Add(unsafe.Pointer(&got[0]), 4*c.at)) = 7
			for _, f := range r.cleanups {
				f()
			}
			if !slices.Equal(r.errors, c.want) {
				t.Errorf("reported %q, want %q", r.errors, c.want)
			}
		})
	}
}
