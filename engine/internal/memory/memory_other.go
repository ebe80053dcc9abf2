//go:build !linux

package memory

import "math"

// residentBytes falls back to what Go holds; the peak is left to the samples.
func residentBytes() (now, peak int64) { return Held(), 0 }

// availableBytes is not known here.
func availableBytes() int64 { return math.MaxInt64 }

// Reserve does nothing: there are no large pages to ask for.
func Reserve(int64) {}
