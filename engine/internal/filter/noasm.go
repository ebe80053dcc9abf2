//go:build !amd64 || noasm

package filter

func addVector(dst, src []float32) int { return 0 }

func symmetricVector(dst, center []float32, pairs []pair, w []float32) bool { return false }
