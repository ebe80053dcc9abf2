//go:build !noasm

package mind

import "github.com/morphseek/morphseek/engine/internal/cpu"

// contrastAVX2 takes the least channel from all of n voxels, a multiple of 8, and writes their mean after that; the
// channels are step bytes apart.
//
//go:noescape
func contrastAVX2(out, variance *float32, step, n int)

// decayAVX2 replaces the channels x of n voxels, a multiple of 8, by Decay(x/v), v the variance within floor and
// ceiling.
//
//go:noescape
func decayAVX2(out, variance *float32, step, n int, floor, ceiling float32)

// contrastVector does the first step of Describe for the first voxels of out, whose channels are step apart, and
// returns how many.
func contrastVector(out, variance []float32, step int) int {
	n := len(variance) &^ 7
	if !cpu.AVX2() || n == 0 {
		return 0
	}
	_ = out[(Channels-1)*step+n-1]
	contrastAVX2(&out[0], &variance[0], 4*step, n)
	return n
}

// decayVector does the second step for the first voxels and returns how many.
func decayVector(out, variance []float32, step int, floor, ceiling float32) int {
	n := len(variance) &^ 7
	if !cpu.AVX2() || n == 0 || floor <= 0 {
		return 0
	}
	_ = out[(Channels-1)*step+n-1]
	decayAVX2(&out[0], &variance[0], 4*step, n, floor, ceiling)
	return n
}
