package align

import "golang.org/x/sys/cpu"

// readAVX is reading.loop; dx, dy and dz are bytes.
//
//go:noescape
func readAVX(r *reading, cell *float32, dx, dy, dz int, f *[3]float32, fixed *[lanes]float32)

// vector does loop with the processor's vectors, if there are any.
func (r *reading) vector(cell []float32, dx, dy, dz int, f [3]float32, fixed *[lanes]float32) bool {
	if !cpu.X86.HasAVX {
		return false
	}
	_ = cell[dx+dy+dz+lanes-1]
	readAVX(r, &cell[0], 4*dx, 4*dy, 4*dz, &f, fixed)
	return true
}
