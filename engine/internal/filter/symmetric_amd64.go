//go:build !noasm

package filter

import "github.com/morphseek/morphseek/engine/internal/cpu"

// symmetricAVX is symmetric over the voxels from, ..., to-1, a multiple of 32 of them; there is at least one pair.
//
//go:noescape
func symmetricAVX(dst, center *float32, pairs *pair, w *float32, taps, from, to int)

// addAVX adds src to dst, n values: a multiple of 8, and not 0.
//
//go:noescape
func addAVX(dst, src *float32, n int)

// addVector does the first values of Add and returns how many.
func addVector(dst, src []float32) int {
	n := len(dst) &^ 7
	if !cpu.AVX() || n == 0 {
		return 0
	}
	_ = src[n-1]
	addAVX(&dst[0], &src[0], n)
	return n
}

// symmetricVector does symmetric with the processor's vectors, if there are any and the row fills one.
func symmetricVector(dst, center []float32, pairs []pair, w []float32) bool {
	n := len(dst)
	if !cpu.AVX() || n < 32 {
		return false
	}
	_, _ = center[n-1], w[len(pairs)]
	for _, p := range pairs {
		_, _ = p.before[n-1], p.after[n-1]
	}
	symmetricAVX(&dst[0], &center[0], &pairs[0], &w[0], len(pairs), 0, n&^31)
	if n&31 != 0 { // the last vector does some voxels again
		symmetricAVX(&dst[0], &center[0], &pairs[0], &w[0], len(pairs), n-32, n)
	}
	return true
}
