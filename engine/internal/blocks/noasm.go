//go:build !amd64 || noasm

package blocks

func lowerRowsVector(dst, src, penalty []uint16, width, lines int) bool { return false }

func lowerVector(dst, rows, penalty []uint16, n, count int) bool { return false }

func addVector(dst, a, b []uint16) bool { return false }

func subtractVector(dst, a, b []uint16) bool { return false }

func cappedVector(dst, x []uint16, least uint16) bool { return false }

func addAboveVector(sum, x []uint16, least, most uint16) bool { return false }

func leastVector(x []uint16) (uint16, bool) { return 0, false }

func packVector(codes []Descriptor, channels []float32, step int, valid []float32) int { return 0 }

func (p *patch) rowVector(offset, width int) bool { return false }
