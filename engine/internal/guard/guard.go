// Package guard finds writes beyond the ends of a slice: assembly has no bounds check. It is for tests.
package guard

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"
)

// words stand on either side of a guarded slice: more than the widest vector writes at once.
const words = 64

// Slice returns a copy of values, without room to grow, between words that must be unchanged when the test ends. T must
// not hold pointers, for which the words would be taken.
func Slice[T any](t testing.TB, values []T) []T {
	t.Helper()
	all := make([]T, len(values)+2*words)
	before, after := raw(all[:words]), raw(all[words+len(values):])
	for _, guard := range [][]byte{before, after} {
		for i := range guard {
			guard[i] = byte(0xA5 ^ i)
		}
	}
	want := slices.Clone(before)
	t.Cleanup(func() {
		if !bytes.Equal(before, want) {
			t.Errorf("written before the first of %d values", len(values))
		}
		if !bytes.Equal(after, want) {
			t.Errorf("written after the last of %d values", len(values))
		}
	})
	inside := all[words : words+len(values) : words+len(values)]
	copy(inside, values)
	return inside
}

// raw is the memory of values.
func raw[T any](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))
}
