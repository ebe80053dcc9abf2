//go:build !noasm

#include "textflag.h"

// func symmetricAVX(dst, center *float32, pairs *pair, w *float32, taps, from, to int)
//
// to - from is a multiple of 32, and taps at least 1. A product is rounded before it is added, as the Go loop does it: the same bits.
TEXT ·symmetricAVX(SB), NOSPLIT, $0-56
	MOVQ         dst+0(FP), DI
	MOVQ         center+8(FP), SI
	MOVQ         w+24(FP), R8
	MOVQ         from+40(FP), AX
	MOVQ         to+48(FP), CX
	VBROADCASTSS (R8), Y0

columns:
	CMPQ    AX, CX
	JGE     done
	VMULPS  (SI)(AX*4), Y0, Y1
	VMULPS  32(SI)(AX*4), Y0, Y2
	VMULPS  64(SI)(AX*4), Y0, Y3
	VMULPS  96(SI)(AX*4), Y0, Y4
	MOVQ    pairs+16(FP), BX
	MOVQ    taps+32(FP), R9
	MOVQ    R8, R10

taps:
	ADDQ         $4, R10
	MOVQ         (BX), R11           // the pair's first row
	MOVQ         24(BX), R12         // and its second
	VBROADCASTSS (R10), Y5
	VMOVUPS      (R11)(AX*4), Y6
	VMOVUPS      32(R11)(AX*4), Y7
	VMOVUPS      64(R11)(AX*4), Y8
	VMOVUPS      96(R11)(AX*4), Y9
	VADDPS       (R12)(AX*4), Y6, Y6
	VADDPS       32(R12)(AX*4), Y7, Y7
	VADDPS       64(R12)(AX*4), Y8, Y8
	VADDPS       96(R12)(AX*4), Y9, Y9
	VMULPS       Y5, Y6, Y6
	VMULPS       Y5, Y7, Y7
	VMULPS       Y5, Y8, Y8
	VMULPS       Y5, Y9, Y9
	VADDPS       Y6, Y1, Y1
	VADDPS       Y7, Y2, Y2
	VADDPS       Y8, Y3, Y3
	VADDPS       Y9, Y4, Y4
	ADDQ         $48, BX
	DECQ         R9
	JNZ          taps

	VMOVUPS Y1, (DI)(AX*4)
	VMOVUPS Y2, 32(DI)(AX*4)
	VMOVUPS Y3, 64(DI)(AX*4)
	VMOVUPS Y4, 96(DI)(AX*4)
	ADDQ    $32, AX
	JMP     columns

done:
	VZEROUPPER
	RET

// func addAVX(dst, src *float32, n int)
TEXT ·addAVX(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	XORQ AX, AX

loop:
	VMOVUPS (DI)(AX*4), Y0
	VADDPS  (SI)(AX*4), Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	ADDQ    $8, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET
