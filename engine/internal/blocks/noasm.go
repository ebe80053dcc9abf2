//go:build !amd64 || noasm

package blocks

func lowerRowsVector(dst, src, penalty []float32, width int) int { return 0 }

func lowerVector(dst, rows, penalty []float32, n, count int) bool { return false }

func subtractVector(dst, a, b []float32) int { return 0 }

func lessVector(dst, x []float32, least float32) int { return 0 }

func shareVector(sum, x []float32, least, share float32) int { return 0 }

func leastVector(x []float32) (least float32, done int) { return x[0], 0 }

func (p *patch) rowVector(offset, width int) bool { return false }
