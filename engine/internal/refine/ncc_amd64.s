//go:build !noasm

#include "textflag.h"

// Eight voxels at a time. Products are rounded before they are added, as the Go loops do it: the same bits.

DATA constants<>+0(SB)/4, $0x7fffffff // all but the sign
DATA constants<>+4(SB)/4, $1.0
DATA constants<>+8(SB)/4, $0.5
DATA constants<>+12(SB)/4, $1
DATA constants<>+16(SB)/4, $2
DATA constants<>+20(SB)/4, $4
GLOBL constants<>(SB), RODATA|NOPTR, $24

#define CONSTANT(k, y) VBROADCASTSS constants<>+k(SB), y

// func momentsAVX(first, second, both, f, m, overN *float32, n int)
TEXT ·momentsAVX(SB), NOSPLIT, $0-56
	MOVQ   first+0(FP), DI
	MOVQ   second+8(FP), R8
	MOVQ   both+16(FP), R9
	MOVQ   f+24(FP), SI
	MOVQ   m+32(FP), DX
	MOVQ   overN+40(FP), BX
	MOVQ   n+48(FP), CX
	XORQ   AX, AX
	VXORPS Y15, Y15, Y15

loop:
	VCMPPS  $4, (BX)(AX*4), Y15, Y0 // where it is not 0
	VANDPS  (DX)(AX*4), Y0, Y0
	VMULPS  Y0, Y0, Y1
	VMULPS  (SI)(AX*4), Y0, Y2
	VMOVUPS Y0, (DI)(AX*4)
	VMOVUPS Y1, (R8)(AX*4)
	VMOVUPS Y2, (R9)(AX*4)
	ADDQ    $8, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET

// func correlateAVX(da, dc, flat, first, second, both, overN, meanF, overB *float32, n int, floor float32)
TEXT ·correlateAVX(SB), NOSPLIT, $0-84
	MOVQ         da+0(FP), DI
	MOVQ         dc+8(FP), R8
	MOVQ         flat+16(FP), R9
	MOVQ         first+24(FP), SI
	MOVQ         second+32(FP), DX
	MOVQ         both+40(FP), BX
	MOVQ         overN+48(FP), R10
	MOVQ         meanF+56(FP), R11
	MOVQ         overB+64(FP), R12
	MOVQ         n+72(FP), CX
	VBROADCASTSS floor+80(FP), Y15
	CONSTANT(0, Y14)
	CONSTANT(4, Y13)
	XORQ         AX, AX

loop:
	VMOVUPS (R10)(AX*4), Y0     // 1/n
	VMOVUPS (R11)(AX*4), Y1     // mean f
	VMULPS  (SI)(AX*4), Y0, Y2  // mean m
	VMULPS  (BX)(AX*4), Y0, Y3
	VMULPS  Y1, Y2, Y4
	VSUBPS  Y4, Y3, Y3          // A
	VMULPS  (DX)(AX*4), Y0, Y4
	VMULPS  Y2, Y2, Y5
	VSUBPS  Y5, Y4, Y4
	VADDPS  Y15, Y4, Y4
	VDIVPS  Y4, Y13, Y4         // 1/C
	VANDPS  Y14, Y3, Y5
	VMULPS  (R12)(AX*4), Y5, Y5
	VMULPS  Y4, Y5, Y5          // |A|/(BC)
	VMULPS  Y5, Y3, Y6
	VMOVUPS Y6, (SI)(AX*4)
	VADDPS  Y0, Y0, Y0
	VMULPS  Y5, Y0, Y0          // p
	VMULPS  Y3, Y0, Y3
	VMULPS  Y4, Y3, Y3          // q
	VMOVUPS Y0, (DI)(AX*4)
	VMOVUPS Y3, (R8)(AX*4)
	VMULPS  Y2, Y3, Y2
	VMULPS  Y1, Y0, Y1
	VSUBPS  Y1, Y2, Y2
	VMOVUPS Y2, (R9)(AX*4)
	ADDQ    $8, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET

// DIFFERENCE writes to out, where open has the bit, the force Y0 times the difference of the neighbours stride bytes before and
// after those at R11.
#define DIFFERENCE(bit, stride, out) \
	VPAND    bit, Y2, Y3           \
	VPCMPEQD bit, Y3, Y3           \
	MOVQ     R11, R12              \
	SUBQ     stride, R12           \
	VMOVUPS  (R11)(stride*1), Y4   \
	VSUBPS   (R12), Y4, Y4         \
	VMULPS   Y4, Y0, Y4            \
	VANDPS   Y3, Y4, Y4            \
	MOVQ     out, R12              \
	VMOVUPS  Y4, (R12)(AX*4)

// func gradientAVX2(gx, gy, gz, da, dc, flat, f, m *float32, open *uint8, nx, slice, from, to int)
TEXT ·gradientAVX2(SB), NOSPLIT, $0-104
	MOVQ         da+24(FP), R8
	MOVQ         dc+32(FP), R9
	MOVQ         flat+40(FP), R10
	MOVQ         f+48(FP), SI
	MOVQ         m+56(FP), DX
	MOVQ         open+64(FP), BX
	MOVQ         nx+72(FP), DI
	MOVQ         slice+80(FP), R13
	MOVQ         from+88(FP), AX
	MOVQ         to+96(FP), CX
	SHLQ         $2, DI
	SHLQ         $2, R13
	CONSTANT(8, Y15)
	CONSTANT(12, Y14)
	CONSTANT(16, Y13)
	CONSTANT(20, Y12)

loop:
	VMOVUPS   (R8)(AX*4), Y0
	VMULPS    (SI)(AX*4), Y0, Y0
	VMOVUPS   (R9)(AX*4), Y1
	VMULPS    (DX)(AX*4), Y1, Y1
	VSUBPS    Y1, Y0, Y0
	VADDPS    (R10)(AX*4), Y0, Y0
	VMULPS    Y15, Y0, Y0
	VPMOVZXBD (BX)(AX*1), Y2
	LEAQ      (DX)(AX*4), R11
	MOVQ      CX, to+96(FP) // a register for the stride along x
	MOVQ      $4, CX
	DIFFERENCE(Y14, CX, gx+0(FP))
	MOVQ      to+96(FP), CX
	DIFFERENCE(Y13, DI, gy+8(FP))
	DIFFERENCE(Y12, R13, gz+16(FP))
	ADDQ      $8, AX
	CMPQ      AX, CX
	JLT       loop
	VZEROUPPER
	RET

// func longestAVX(lanes *[8]float32, x, y, z *float32, n int)
TEXT ·longestAVX(SB), NOSPLIT, $0-40
	MOVQ   lanes+0(FP), DI
	MOVQ   x+8(FP), SI
	MOVQ   y+16(FP), DX
	MOVQ   z+24(FP), BX
	MOVQ   n+32(FP), CX
	XORQ   AX, AX
	VXORPS Y0, Y0, Y0

loop:
	VMOVUPS (SI)(AX*4), Y1
	VMULPS  Y1, Y1, Y1
	VMOVUPS (DX)(AX*4), Y2
	VMULPS  Y2, Y2, Y2
	VADDPS  Y2, Y1, Y1
	VMOVUPS (BX)(AX*4), Y2
	VMULPS  Y2, Y2, Y2
	VADDPS  Y2, Y1, Y1
	VMAXPS  Y0, Y1, Y0 // NaN: what was
	ADDQ    $8, AX
	CMPQ    AX, CX
	JLT     loop
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET

// func sumAVX(lanes *[8]float64, row *float32, n int)
TEXT ·sumAVX(SB), NOSPLIT, $0-24
	MOVQ    lanes+0(FP), DI
	MOVQ    row+8(FP), SI
	MOVQ    n+16(FP), CX
	XORQ    AX, AX
	VMOVUPD (DI), Y0
	VMOVUPD 32(DI), Y1

loop:
	VCVTPS2PD (SI)(AX*4), Y2
	VCVTPS2PD 16(SI)(AX*4), Y3
	VADDPD    Y2, Y0, Y0
	VADDPD    Y3, Y1, Y1
	ADDQ      $8, AX
	CMPQ      AX, CX
	JLT       loop
	VMOVUPD   Y0, (DI)
	VMOVUPD   Y1, 32(DI)
	VZEROUPPER
	RET
