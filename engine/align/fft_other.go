//go:build !amd64

package align

func butterflyVector(f *factors, r int, y, x []complex64, n, step int) bool { return false }

func addProductVector(dst, a, b []complex64, weight float32) int { return 0 }
