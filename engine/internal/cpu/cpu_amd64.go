//go:build !noasm

package cpu

import "golang.org/x/sys/cpu"

func detect() features {
	x := cpu.X86
	return features{avx: x.HasAVX, avx2: x.HasAVX2}
}
