//go:build !amd64 || noasm

package interp

func (p Planes) vectors(dst [][]float32, add bool, x, y, z int, scale float32, u [3][]float32) int {
	return 0
}

func (p Planes) advectVector(dst [][]float32, o int, beside [2][2]int, scale float32, u [3][]float32) (from, to int) {
	return 0, 0
}
