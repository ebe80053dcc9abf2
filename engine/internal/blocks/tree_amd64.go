//go:build !noasm

package blocks

import "github.com/morphseek/morphseek/engine/internal/cpu"

// lowerRowsAVX writes to each line of dst, width <= 16 labels, the least over j of the line's label j in src plus the
// penalty; it writes 16 floats a line. penalty holds 2*width-1 penalties, that of 0 in the middle, and 16 floats more.
//
//go:noescape
func lowerRowsAVX(dst, src, penalty *float32, width, lines int)

// lowerAVX writes to dst, n >= 8 labels, the least over count rows, side by side, of row j plus penalty[j].
//
//go:noescape
func lowerAVX(dst, rows, penalty *float32, n, count int)

// lowerRowsVector does the first lines of lowerRows and returns how many labels that are.
func lowerRowsVector(dst, src, penalty []float32, width int) int {
	lines := (len(dst) - vectorPad) / width
	if !cpu.AVX() || width > vectorPad || lines <= 0 {
		return 0
	}
	_, _, _ = src[lines*width-1], dst[(lines-1)*width+vectorPad-1], penalty[2*width-2+vectorPad]
	lowerRowsAVX(&dst[0], &src[0], &penalty[0], width, lines)
	return lines * width
}

// lowerVector does lower with the processor's vectors, if there are any and a row fills one.
func lowerVector(dst, rows, penalty []float32, count int) bool {
	n := len(dst)
	if !cpu.AVX() || n < 8 {
		return false
	}
	_, _ = rows[count*n-1], penalty[count-1]
	lowerAVX(&dst[0], &rows[0], &penalty[0], n, count)
	return true
}
