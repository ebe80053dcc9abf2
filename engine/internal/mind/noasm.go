//go:build !amd64 || noasm

package mind

func contrastVector(out, variance []float32, step int) int { return 0 }

func decayVector(out, variance []float32, step int, floor, ceiling float32) int { return 0 }
