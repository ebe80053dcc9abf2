//go:build !noasm

package blocks

import (
	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/mind"
)

// rowAVX2 compares n samples with the moving descriptors at their places and the width-1 after, four labels at a time:
// it writes width, rounded up to four, sums and numbers of known samples, each as two halves of a descriptor.
//
//go:noescape
func rowAVX2(sums, valid *uint64, moving, codes *Descriptor, at *int, n, width, offset int)

// packAVX2 makes the descriptors of n voxels, a multiple of 8, that valid says are known; the channels are step bytes apart.
//
//go:noescape
func packAVX2(codes *Descriptor, channels, valid *float32, step, n int)

// packVector makes the first descriptors of pack with the processor's vectors and returns how many.
func packVector(codes []Descriptor, channels []float32, step int, valid []float32) int {
	n := len(codes) &^ 7
	if !cpu.AVX2() || n == 0 {
		return 0
	}
	_, _ = channels[(mind.Channels-1)*step+n-1], valid[n-1]
	packAVX2(&codes[0], &channels[0], &valid[0], 4*step, n)
	return n
}

// rowVector does row with the processor's vectors.
func (p *patch) rowVector(offset, width int) bool {
	if !cpu.AVX2() || width > mostLabels {
		return false
	}
	const lanes = 4
	_, _ = p.phased[p.first+offset], p.phased[p.last+offset+(width+lanes-1)&^(lanes-1)-1]
	rowAVX2(&p.sums[0][0], &p.valid[0][0], &p.phased[0], &p.codes[0], &p.at[0], len(p.codes), width, offset)
	return true
}
