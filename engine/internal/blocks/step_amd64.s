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

DATA bytes<>+0(SB)/4, $6.0
DATA bytes<>+4(SB)/4, $0.5
DATA bytes<>+8(SB)/4, $5.0
DATA bytes<>+12(SB)/4, $51.0
DATA bytes<>+16(SB)/4, $0xff000000 // the last byte of a known descriptor
GLOBL bytes<>(SB), RODATA|NOPTR, $20

// BYTE writes the bytes of a channel of eight voxels, shifted to their place, to y, and goes on to the next channel.
#define BYTE(y) \
	VMOVUPS    (SI), y     \
	VMULPS     Y15, y, y   \
	VSUBPS     Y14, y, y   \
	VMAXPS     Y11, y, y   \
	VMINPS     Y13, y, y   \
	VMULPS     Y12, y, y   \
	VADDPS     Y14, y, y   \
	VCVTTPS2DQ y, y        \
	ADDQ       R8, SI

// FOUR writes the bytes of four channels to y.
#define FOUR(y) \
	BYTE(y)         \
	BYTE(Y4)        \
	VPSLLD $8, Y4, Y4 \
	VPOR   Y4, y, y \
	BYTE(Y4)        \
	VPSLLD $16, Y4, Y4 \
	VPOR   Y4, y, y \
	BYTE(Y4)        \
	VPSLLD $24, Y4, Y4 \
	VPOR   Y4, y, y \
	VPAND  Y9, y, y

// func packAVX2(codes *Descriptor, channels, valid *float32, step, n int)
TEXT ·packAVX2(SB), NOSPLIT, $0-40
	MOVQ         codes+0(FP), DI
	MOVQ         channels+8(FP), BX
	MOVQ         valid+16(FP), DX
	MOVQ         step+24(FP), R8
	MOVQ         n+32(FP), CX
	VBROADCASTSS bytes<>+0(SB), Y15
	VBROADCASTSS bytes<>+4(SB), Y14
	VBROADCASTSS bytes<>+8(SB), Y13
	VBROADCASTSS bytes<>+12(SB), Y12
	VXORPS       Y11, Y11, Y11
	VBROADCASTSS bytes<>+16(SB), Y10

loop:
	VCMPPS      $4, (DX), Y11, Y9 // valid is not zero
	MOVQ        BX, SI
	FOUR(Y0)
	FOUR(Y1)
	FOUR(Y2)
	VPAND       Y9, Y10, Y3
	VPUNPCKLDQ  Y1, Y0, Y4 // the halves of voxels 0 and 1, 4 and 5
	VPUNPCKHDQ  Y1, Y0, Y5 // of 2 and 3, 6 and 7
	VPUNPCKLDQ  Y3, Y2, Y6
	VPUNPCKHDQ  Y3, Y2, Y7
	VPUNPCKLQDQ Y6, Y4, Y0 // voxels 0 and 4
	VPUNPCKHQDQ Y6, Y4, Y1
	VPUNPCKLQDQ Y7, Y5, Y2
	VPUNPCKHQDQ Y7, Y5, Y3
	VMOVDQU      X0, (DI)
	VMOVDQU      X1, 16(DI)
	VMOVDQU      X2, 32(DI)
	VMOVDQU      X3, 48(DI)
	VEXTRACTI128 $1, Y0, 64(DI)
	VEXTRACTI128 $1, Y1, 80(DI)
	VEXTRACTI128 $1, Y2, 96(DI)
	VEXTRACTI128 $1, Y3, 112(DI)
	ADDQ $32, BX
	ADDQ $32, DX
	ADDQ $128, DI
	SUBQ $8, CX
	JNZ  loop
	VZEROUPPER
	RET
