#include "textflag.h"

// func symmetricAVX(dst, center *float32, pairs *pair, w *float32, taps, from, to int)
//
// to - from is a multiple of 16. A product is rounded before it is added, as the Go loop does it: the same bits.
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
	MOVQ    pairs+16(FP), BX
	MOVQ    taps+32(FP), R9
	MOVQ    R8, R10

taps:
	TESTQ        R9, R9
	JZ           store
	ADDQ         $4, R10
	MOVQ         (BX), R11           // the pair's first row
	MOVQ         24(BX), R12         // and its second
	VBROADCASTSS (R10), Y3
	VMOVUPS      (R11)(AX*4), Y4
	VMOVUPS      32(R11)(AX*4), Y5
	VADDPS       (R12)(AX*4), Y4, Y4
	VADDPS       32(R12)(AX*4), Y5, Y5
	VMULPS       Y3, Y4, Y4
	VMULPS       Y3, Y5, Y5
	VADDPS       Y4, Y1, Y1
	VADDPS       Y5, Y2, Y2
	ADDQ         $48, BX
	DECQ         R9
	JMP          taps

store:
	VMOVUPS Y1, (DI)(AX*4)
	VMOVUPS Y2, 32(DI)(AX*4)
	ADDQ    $16, AX
	JMP     columns

done:
	VZEROUPPER
	RET
