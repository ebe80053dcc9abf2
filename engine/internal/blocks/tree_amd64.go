//go:build !noasm

package blocks

import "github.com/morphseek/morphseek/engine/internal/cpu"

// lowerRowsAVX2 writes to each line of dst, width <= 16 labels, the least over j of the line's label j in src plus the
// penalty; it writes 16 labels a line. penalty holds 2*width-1 penalties, that of 0 in the middle, and 16 more.
//
//go:noescape
func lowerRowsAVX2(dst, src, penalty *uint16, width, lines int)

// lowerAVX2 writes to each of count rows of dst, n labels, the least over count rows, side by side, of row j plus
// penalty[j], counted for every row of dst from one place earlier. It reads and writes up to 31 labels beyond.
//
//go:noescape
func lowerAVX2(dst, rows, penalty *uint16, n, count int)

// addAVX2 writes a + b, saturated, to dst, n values, a multiple of 16, and so with what follows.
//
//go:noescape
func addAVX2(dst, a, b *uint16, n int)

// subtractAVX2 writes a - b to dst.
//
//go:noescape
func subtractAVX2(dst, a, b *uint16, n int)

// cappedAVX2 writes x - least to dst, most at most.
//
//go:noescape
func cappedAVX2(dst, x *uint16, least, most uint16, n int)

// addAboveAVX2 adds x - least to sum, most at most.
//
//go:noescape
func addAboveAVX2(sum, x *uint16, least, most uint16, n int)

// leastAVX2 returns the least of n values, at least 16.
//
//go:noescape
func leastAVX2(x *uint16, n int) uint16

// wholeVectors says whether n costs are whole vectors of the processor's.
func wholeVectors(n int) bool { return cpu.AVX2() && n%lanes == 0 }

func addVector(dst, a, b []uint16) bool {
	n := len(dst)
	if !wholeVectors(n) {
		return false
	}
	_, _ = a[n-1], b[n-1]
	addAVX2(&dst[0], &a[0], &b[0], n)
	return true
}

func subtractVector(dst, a, b []uint16) bool {
	n := len(dst)
	if !wholeVectors(n) {
		return false
	}
	_, _ = a[n-1], b[n-1]
	subtractAVX2(&dst[0], &a[0], &b[0], n)
	return true
}

func cappedVector(dst, x []uint16, least uint16) bool {
	n := len(dst)
	if !wholeVectors(n) {
		return false
	}
	_ = x[n-1]
	cappedAVX2(&dst[0], &x[0], least, mostMessage, n)
	return true
}

func addAboveVector(sum, x []uint16, least, most uint16) bool {
	n := len(sum)
	if !wholeVectors(n) {
		return false
	}
	_ = x[n-1]
	addAboveAVX2(&sum[0], &x[0], least, most, n)
	return true
}

func leastVector(x []uint16) (uint16, bool) {
	if !cpu.AVX2() || len(x) < lanes {
		return 0, false
	}
	return leastAVX2(&x[0], len(x)), true
}

func lowerRowsVector(dst, src, penalty []uint16, width, lines int) bool {
	if !cpu.AVX2() || width > lanes {
		return false
	}
	_, _, _ = src[lines*width-1], dst[(lines-1)*width+lanes-1], penalty[2*width-2+lanes]
	lowerRowsAVX2(&dst[0], &src[0], &penalty[0], width, lines)
	return true
}

func lowerVector(dst, rows, penalty []uint16, n, count int) bool {
	if !cpu.AVX2() {
		return false
	}
	_, _, _ = dst[count*n+beyond-2], rows[count*n+beyond-2], penalty[2*count-2]
	lowerAVX2(&dst[0], &rows[0], &penalty[count-1], n, count)
	return true
}
