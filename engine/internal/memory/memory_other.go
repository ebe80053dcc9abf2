//go:build !linux

package memory

import "math"

// residentBytes falls back to what Go holds; the peak is left to the samples.
func residentBytes() (now, peak int64) { return Held(), 0 }

// availableBytes is not known here.
func availableBytes() int64 { return math.MaxInt64 }

// mayGrow is no: there are no large pages to ask for.
func mayGrow(int64) bool { return false }

func inLargePages([]byte) {}
