//go:build !noasm

package refine

import "github.com/morphseek/morphseek/engine/internal/cpu"

//go:noescape
func quarterAVX(dst, a, b, c, d *float32, n int)

//go:noescape
func spreadAVX(out, line *float32, n int)

// quarterVector does the first values of quarter and returns how many; so with what follows.
func quarterVector(dst, a, b, c, d []float32) int {
	n := whole(len(dst))
	if n > 0 {
		_, _, _, _ = a[n-1], b[n-1], c[n-1], d[n-1]
		quarterAVX(&dst[0], &a[0], &b[0], &c[0], &d[0], n)
	}
	return n
}

// spreadVector counts blocks, of two values.
func spreadVector(out, line []float32) int {
	n := whole(len(out) / 2)
	if n > 0 {
		_ = line[n+1]
		spreadAVX(&out[0], &line[0], n)
	}
	return n
}

// whole is how many of n values fill vectors; 0 without vectors.
func whole(n int) int {
	if !cpu.AVX() {
		return 0
	}
	return n &^ 7
}
