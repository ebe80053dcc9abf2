//go:build !noasm

package align

import "github.com/morphseek/morphseek/engine/internal/cpu"

// readAVX is sample.loop; dx, dy and dz are bytes.
//
//go:noescape
func readAVX(r *sample, cell *float32, dx, dy, dz int, f *[3]float32, fixed *[lanes]float32, counted *[8]uint32)

// vector does loop with the processor's vectors, if there are any.
func (r *sample) vector(cell []float32, dx, dy, dz int, f [3]float32, fixed *[lanes]float32, counted *[8]uint32) bool {
	if !cpu.AVX() {
		return false
	}
	_ = cell[dx+dy+dz+lanes-1]
	readAVX(r, &cell[0], 4*dx, 4*dy, 4*dz, &f, fixed, counted)
	return true
}

// addAVX is sums.add.
//
//go:noescape
func addAVX(t *sums, part *[3][4]float32, q *[3]float32)

// vector does add with the processor's vectors, if there are any.
func (t *sums) vector(part *[3][4]float32, q *[3]float32) bool {
	if !cpu.AVX() {
		return false
	}
	addAVX(t, part, q)
	return true
}
