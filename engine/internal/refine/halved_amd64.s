//go:build !noasm

#include "textflag.h"

// Products are rounded before they are added, as the Go loops do it: the same bits. n is a multiple of 8, and not 0.

DATA shares<>+0(SB)/4, $0.75
DATA shares<>+4(SB)/4, $0.25
DATA shares<>+8(SB)/4, $0.5625
DATA shares<>+12(SB)/4, $0.1875
DATA shares<>+16(SB)/4, $0.0625
GLOBL shares<>(SB), RODATA|NOPTR, $20

// func quarterAVX(dst, a, b, c, d *float32, n int)
TEXT ·quarterAVX(SB), NOSPLIT, $0-48
	MOVQ         dst+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         b+16(FP), DX
	MOVQ         c+24(FP), BX
	MOVQ         d+32(FP), R8
	MOVQ         n+40(FP), CX
	VBROADCASTSS shares<>+8(SB), Y4
	VBROADCASTSS shares<>+12(SB), Y5
	VBROADCASTSS shares<>+16(SB), Y6
	XORQ         AX, AX

loop:
	VMULPS  (SI)(AX*4), Y4, Y0
	VMOVUPS (DX)(AX*4), Y1
	VADDPS  (BX)(AX*4), Y1, Y1
	VMULPS  Y1, Y5, Y1
	VADDPS  Y1, Y0, Y0
	VMULPS  (R8)(AX*4), Y6, Y1
	VADDPS  Y1, Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	ADDQ    $8, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET

// func spreadAVX(out, line *float32, n int)
TEXT ·spreadAVX(SB), NOSPLIT, $0-24
	MOVQ         out+0(FP), DI
	MOVQ         line+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS shares<>+0(SB), Y4
	VBROADCASTSS shares<>+4(SB), Y5

loop:
	VMULPS     4(SI), Y4, Y0
	VMULPS     (SI), Y5, Y1
	VADDPS     Y1, Y0, Y1        // before the middles
	VMULPS     8(SI), Y5, Y2
	VADDPS     Y2, Y0, Y2        // behind them
	VUNPCKLPS  Y2, Y1, Y0        // blocks 0 1 | 4 5
	VUNPCKHPS  Y2, Y1, Y3        // 2 3 | 6 7
	VPERM2F128 $0x20, Y3, Y0, Y1
	VPERM2F128 $0x31, Y3, Y0, Y2
	VMOVUPS    Y1, (DI)
	VMOVUPS    Y2, 32(DI)
	ADDQ       $32, SI
	ADDQ       $64, DI
	SUBQ       $8, CX
	JNZ        loop
	VZEROUPPER
	RET
