//go:build !amd64

package align

func (r *reading) vector(cell []float32, dx, dy, dz int, f [3]float32, fixed *[lanes]float32) bool {
	return false
}

func (t *tally) vector(part *[3][4]float32, q *[3]float32) bool { return false }
