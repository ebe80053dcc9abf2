//go:build !linux

package engine

import "math"

// residentBytes falls back to what Go holds; the peak is left to the samples.
func residentBytes() (now, peak int64) { return goBytes(), 0 }

// availableBytes is not known here.
func availableBytes() int64 { return math.MaxInt64 }
