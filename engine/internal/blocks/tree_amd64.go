//go:build !noasm

package blocks

import "github.com/morphseek/morphseek/engine/internal/cpu"

// lowerRowsAVX writes to each line of dst, width <= 16 labels, the least over j of the line's label j in src plus the
// penalty; it writes 16 floats a line. penalty holds 2*width-1 penalties, that of 0 in the middle, and 16 floats more.
//
//go:noescape
func lowerRowsAVX(dst, src, penalty *float32, width, lines int)

// lowerAVX writes to each of outputs rows of dst, n labels, the least over count rows, side by side, of row j plus
// penalty[j], counted for every row of dst from one place earlier. Of rows of less than 8 labels it reads and writes 8.
//
//go:noescape
func lowerAVX(dst, rows, penalty *float32, n, count, outputs int)

// subtractAVX writes a - b to dst, n values in vectors of 8, and so with what follows.
//
//go:noescape
func subtractAVX(dst, a, b *float32, n int)

// lessAVX writes x - least to dst.
//
//go:noescape
func lessAVX(dst, x *float32, least float32, n int)

// shareAVX adds share (x - least) to sum.
//
//go:noescape
func shareAVX(sum, x *float32, least, share float32, n int)

// leastAVX writes to 8 lanes the least of n values, a multiple of 16, in all.
//
//go:noescape
func leastAVX(lanes, x *float32, n int)

// vectors returns how many of n values whole vectors of so many lanes hold; 0 without vectors.
func vectors(n, lanes int) int {
	if !cpu.AVX() {
		return 0
	}
	return n - n%lanes
}

func subtractVector(dst, a, b []float32) int {
	n := vectors(len(dst), 8)
	if n > 0 {
		_, _ = a[n-1], b[n-1]
		subtractAVX(&dst[0], &a[0], &b[0], n)
	}
	return n
}

func lessVector(dst, x []float32, least float32) int {
	n := vectors(len(dst), 8)
	if n > 0 {
		_ = x[n-1]
		lessAVX(&dst[0], &x[0], least, n)
	}
	return n
}

func shareVector(sum, x []float32, least, share float32) int {
	n := vectors(len(sum), 8)
	if n > 0 {
		_ = x[n-1]
		shareAVX(&sum[0], &x[0], least, share, n)
	}
	return n
}

func leastVector(x []float32) (least float32, done int) {
	n := vectors(len(x), 16)
	if n == 0 {
		return x[0], 0
	}
	var lanes [8]float32
	leastAVX(&lanes[0], &x[0], n)
	least = lanes[0]
	for _, v := range lanes[1:] {
		least = min(least, v)
	}
	return least, n
}

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

// lowerVector does lower with the processor's vectors, if there are any and rows are long or few enough.
func lowerVector(dst, rows, penalty []float32, n, count int) bool {
	if !cpu.AVX() {
		return false
	}
	outputs := len(dst) / n
	_, _ = rows[count*n-1], penalty[outputs+count-2]
	if n >= 8 {
		lowerAVX(&dst[0], &rows[0], &penalty[outputs-1], n, count, outputs)
		return true
	}
	var from, to [8 * 8]float32 // with room for a whole vector
	if max(len(dst), count*n)+8-n > len(from) {
		return false
	}
	copy(from[:], rows[:count*n])
	lowerAVX(&to[0], &from[0], &penalty[outputs-1], n, count, outputs)
	copy(dst, to[:])
	return true
}
