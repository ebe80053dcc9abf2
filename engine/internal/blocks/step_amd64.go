//go:build !noasm

package blocks

import "github.com/morphseek/morphseek/engine/internal/cpu"

// rowAVX512 compares n samples with the moving descriptors at their places and the width-1 after, eight labels at a
// time: it writes width, rounded up to eight, sums and numbers of valid samples.
//
//go:noescape
func rowAVX512(sums, valid, moving, codes *uint64, at *int, n, width, offset int)

// rowVector does row with the processor's vectors, if it counts bits in them.
func (p *patch) rowVector(offset, width int) bool {
	if !cpu.AVX512Popcount() || width > len(p.sums) {
		return false
	}
	const lanes = 8
	_, _ = p.phased[p.first+offset], p.phased[p.last+offset+(width+lanes-1)&^(lanes-1)-1]
	rowAVX512(&p.sums[0], &p.valid[0], &p.phased[0], &p.codes[0], &p.at[0], len(p.codes), width, offset)
	return true
}
