//go:build !amd64 || noasm

package filter

func symmetricVector(dst, center []float32, pairs []pair, w []float32) bool { return false }
