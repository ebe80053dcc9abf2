//go:build !noasm

#include "textflag.h"

DATA constants<>+0(SB)/8, $0x8000000000000000 // unknown
DATA constants<>+8(SB)/8, $1
GLOBL constants<>(SB), RODATA|NOPTR, $16

// func rowAVX512(sums, valid, moving, codes *uint64, at *int, n, width, offset int)
TEXT ·rowAVX512(SB), NOSPLIT, $0-64
	MOVQ         sums+0(FP), DI
	MOVQ         valid+8(FP), SI
	MOVQ         moving+16(FP), DX
	MOVQ         codes+24(FP), BX
	MOVQ         at+32(FP), R8
	MOVQ         n+40(FP), CX
	MOVQ         width+48(FP), R9
	MOVQ         offset+56(FP), AX
	LEAQ         (DX)(AX*8), DX
	VPBROADCASTQ constants<>+0(SB), Z6
	VPBROADCASTQ constants<>+8(SB), Z7

labels:
	VPXORQ Z0, Z0, Z0
	VPXORQ Z1, Z1, Z1
	XORQ   AX, AX

samples:
	MOVQ         (R8)(AX*8), R10
	VMOVDQU64    (DX)(R10*8), Z2
	VPCMPUQ      $4, Z6, Z2, K1 // where it is valid
	VPXORQ.BCST  (BX)(AX*8), Z2, Z2
	VPOPCNTQ     Z2, Z2
	VPADDQ       Z2, Z0, K1, Z0
	VPADDQ       Z7, Z1, K1, Z1
	INCQ         AX
	CMPQ         AX, CX
	JLT          samples
	VMOVDQU64    Z0, (DI)
	VMOVDQU64    Z1, (SI)
	ADDQ         $64, DI
	ADDQ         $64, SI
	ADDQ         $64, DX
	SUBQ         $8, R9
	JGT          labels
	VZEROUPPER
	RET
