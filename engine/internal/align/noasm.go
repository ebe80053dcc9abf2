//go:build !amd64 || noasm

package align

func butterflyVector(f *factors, r int, y, x []complex64, n, step int) bool { return false }

func addProductVector(dst, a, b []complex64, weight float32) int { return 0 }

func (r *sample) vector(cell []float32, dx, dy, dz int, f [3]float32, fixed *[lanes]float32, counted *[8]uint32) bool {
	return false
}

func (t *sums) vector(part *[3][4]float32, q *[3]float32) bool { return false }
