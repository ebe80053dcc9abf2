package filter

import "golang.org/x/sys/cpu"

// symmetricAVX is symmetric over the voxels from, ..., to-1, a multiple of 32 of them; there is at least one pair.
//
//go:noescape
func symmetricAVX(dst, center *float32, pairs *pair, w *float32, taps, from, to int)

// symmetricVector does symmetric with the processor's vectors, if there are any and the row fills one.
func symmetricVector(dst, center []float32, pairs []pair, w []float32) bool {
	n := len(dst)
	if !cpu.X86.HasAVX || n < 32 {
		return false
	}
	symmetricAVX(&dst[0], &center[0], &pairs[0], &w[0], len(pairs), 0, n&^31)
	if n&31 != 0 { // the last vector does some voxels again
		symmetricAVX(&dst[0], &center[0], &pairs[0], &w[0], len(pairs), n-32, n)
	}
	return true
}
