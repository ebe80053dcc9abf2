//go:build !noasm

package align

import "github.com/morphseek/morphseek/engine/internal/cpu"

// The assembly takes n >= 4 columns; rows are apart by bytes.
//
//go:noescape
func butterfly2AVX(y, x *complex64, yStep, xStep int, factors *factors, n int)

//go:noescape
func butterfly3AVX(y, x *complex64, yStep, xStep int, factors *factors, n int)

//go:noescape
func butterfly4AVX(y, x *complex64, yStep, xStep int, factors *factors, n int)

//go:noescape
func butterfly5AVX(y, x *complex64, yStep, xStep int, factors *factors, n int)

// addProductAVX takes n a multiple of 4.
//
//go:noescape
func addProductAVX(dst, a, b *complex64, weight float32, n int)

// butterflyVector does factors.butterfly with the processor's vectors, if there are any and the rows fill one.
func butterflyVector(f *factors, r int, y, x []complex64, n, step int) bool {
	if !cpu.AVX() || n < 4 {
		return false
	}
	_, _ = y[r*n-1], x[(r-1)*step+n-1]
	switch r {
	case 2:
		butterfly2AVX(&y[0], &x[0], 8*n, 8*step, f, n)
	case 3:
		butterfly3AVX(&y[0], &x[0], 8*n, 8*step, f, n)
	case 4:
		butterfly4AVX(&y[0], &x[0], 8*n, 8*step, f, n)
	case 5:
		butterfly5AVX(&y[0], &x[0], 8*n, 8*step, f, n)
	}
	return true
}

// addProductVector does the first elements of addProduct and returns how many.
func addProductVector(dst, a, b []complex64, weight float32) int {
	n := len(dst) &^ 3
	if !cpu.AVX() || n == 0 {
		return 0
	}
	_, _ = a[n-1], b[n-1]
	addProductAVX(&dst[0], &a[0], &b[0], weight, n)
	return n
}
