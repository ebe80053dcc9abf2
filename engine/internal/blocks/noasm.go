//go:build !amd64 || noasm

package blocks

func lowerRowsVector(dst, src, penalty []float32, width int) int { return 0 }

func lowerVector(dst, rows, penalty []float32, count int) bool { return false }

func (p *patch) rowVector(offset, width int) bool { return false }
