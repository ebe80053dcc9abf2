//go:build !amd64 || noasm

package interp

func (p Planes) vectors(dst [][]float32, add bool, x, y, z int, scale float32, u [3][]float32) int {
	return 0
}
