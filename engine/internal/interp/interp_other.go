//go:build !amd64

package interp

func (p Planes) vectors(dst, add [][]float32, x, y, z int, ux, uy, uz []float32) int { return 0 }
