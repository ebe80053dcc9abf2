//go:build !noasm

#include "textflag.h"

DATA last<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA last<>+8(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL last<>(SB), RODATA|NOPTR, $16

// ADD adds the distances of the descriptors at place to sums, and subtracts their masks from known.
#define ADD(place, sums, known) \
	VMOVDQU place, Y2     \
	VPSHUFB Y7, Y2, Y3    \
	VPAND   Y6, Y3, Y4    \
	VPSADBW Y4, Y2, Y2    \
	VPADDQ  Y2, sums, sums \
	VPSUBQ  Y3, known, known

// func rowAVX2(sums, valid *uint64, moving, codes *Descriptor, at *int, n, width, offset int)
TEXT ·rowAVX2(SB), NOSPLIT, $0-64
	MOVQ           sums+0(FP), DI
	MOVQ           valid+8(FP), SI
	MOVQ           moving+16(FP), DX
	MOVQ           codes+24(FP), BX
	MOVQ           at+32(FP), R8
	MOVQ           n+40(FP), CX
	MOVQ           width+48(FP), R9
	MOVQ           offset+56(FP), AX
	SHLQ           $4, AX
	ADDQ           AX, DX
	VBROADCASTI128 last<>+0(SB), Y7

labels:
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y8, Y8, Y8
	VPXOR Y9, Y9, Y9
	MOVQ  BX, R11
	XORQ  AX, AX

samples:
	MOVQ           (R8)(AX*8), R10
	SHLQ           $4, R10
	VBROADCASTI128 (R11), Y6
	ADD((DX)(R10*1), Y0, Y1)
	ADD(32(DX)(R10*1), Y8, Y9)
	ADDQ           $16, R11
	INCQ           AX
	CMPQ           AX, CX
	JLT            samples
	VMOVDQU        Y0, (DI)
	VMOVDQU        Y8, 32(DI)
	VMOVDQU        Y1, (SI)
	VMOVDQU        Y9, 32(SI)
	ADDQ           $64, DI
	ADDQ           $64, SI
	ADDQ           $64, DX
	SUBQ           $4, R9
	JGT            labels
	VZEROUPPER
	RET
