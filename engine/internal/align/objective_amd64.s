//go:build !noasm

#include "textflag.h"

// FACE reads a face of the cell across z, at p and p+dy: the values along x and y, and their derivatives by x and y.
#define FACE(p, v, gx, gy) \
	VMOVUPS (p), v           \
	VMOVUPS (p)(R8*1), gx    \
	VMOVUPS (p)(R9*1), Y12   \
	VMOVUPS (p)(R10*1), Y13  \
	VSUBPS  v, gx, gx        \ // d00
	VSUBPS  Y12, Y13, Y13    \ // d10
	VMULPS  gx, Y9, gy       \
	VADDPS  gy, v, v         \ // v00
	VMULPS  Y13, Y9, gy      \
	VADDPS  gy, Y12, Y12     \ // v10
	VSUBPS  v, Y12, gy       \ // e
	VMULPS  gy, Y10, Y12     \
	VADDPS  Y12, v, v        \
	VSUBPS  gx, Y13, Y13     \
	VMULPS  Y13, Y10, Y13    \
	VADDPS  Y13, gx, gx

// BLEND reads eight lanes: values Y0 and derivatives Y1, Y2, Y3.
#define BLEND \
	FACE(SI, Y0, Y1, Y2)  \
	FACE(DX, Y3, Y4, Y5)  \
	VSUBPS Y0, Y3, Y3     \ // by z
	VSUBPS Y1, Y4, Y4     \
	VSUBPS Y2, Y5, Y5     \
	VMULPS Y3, Y11, Y6    \
	VADDPS Y6, Y0, Y0     \
	VMULPS Y4, Y11, Y4    \
	VADDPS Y4, Y1, Y1     \
	VMULPS Y5, Y11, Y5    \
	VADDPS Y5, Y2, Y2

// SUM adds up the lanes of four vectors.
#define SUM(a, b, c, d, xa, xt) \
	VHADDPS      b, a, a     \
	VHADDPS      d, c, c     \
	VHADDPS      c, a, a     \
	VEXTRACTF128 $1, a, xt   \
	VADDPS       xt, xa, xa

// func readAVX(r *sample, cell *float32, dx, dy, dz int, f *[3]float32, fixed *[16]float32, counted *[8]uint32)
TEXT ·readAVX(SB), NOSPLIT, $0-64
	MOVQ r+0(FP), DI
	MOVQ cell+8(FP), SI
	MOVQ dx+16(FP), R8
	MOVQ dy+24(FP), R9
	MOVQ dz+32(FP), DX
	MOVQ f+40(FP), AX
	MOVQ fixed+48(FP), BX
	MOVQ counted+56(FP), R11
	LEAQ (R8)(R9*1), R10
	ADDQ SI, DX
	VBROADCASTSS (AX), Y9
	VBROADCASTSS 4(AX), Y10
	VBROADCASTSS 8(AX), Y11

	BLEND
	VMOVUPS (BX), Y4
	VMULPS  Y0, Y4, Y5
	VMULPS  Y1, Y4, Y6
	VMULPS  Y2, Y4, Y7
	VMULPS  Y3, Y4, Y8
	SUM(Y5, Y6, Y7, Y8, X5, X6)
	VMULPS  Y0, Y1, Y1
	VMULPS  Y0, Y2, Y2
	VMULPS  Y0, Y3, Y3
	VMULPS  Y0, Y0, Y0
	SUM(Y0, Y1, Y2, Y3, X0, X6)
	VMOVAPS X5, X14
	VMOVAPS X0, X15

	ADDQ $32, SI
	ADDQ $32, DX
	BLEND
	VEXTRACTF128 $1, Y0, 32(DI)
	VEXTRACTF128 $1, Y1, 48(DI)
	VEXTRACTF128 $1, Y2, 64(DI)
	VEXTRACTF128 $1, Y3, 80(DI)
	VMOVUPS 32(BX), Y4
	VMULPS  Y0, Y4, Y5
	VMULPS  Y1, Y4, Y6
	VMULPS  Y2, Y4, Y7
	VMULPS  Y3, Y4, Y8
	SUM(Y5, Y6, Y7, Y8, X5, X6)
	VADDPS  X5, X14, X14
	VMOVUPS X14, (DI)
	VANDPS  (R11), Y0, Y4
	VMULPS  Y4, Y1, Y1
	VMULPS  Y4, Y2, Y2
	VMULPS  Y4, Y3, Y3
	VMULPS  Y4, Y0, Y0
	SUM(Y0, Y1, Y2, Y3, X0, X6)
	VADDPS  X0, X15, X15
	VMOVUPS X15, 16(DI)
	VZEROUPPER
	RET

DATA one<>+0(SB)/4, $0x3f800000
GLOBL one<>(SB), RODATA|NOPTR, $4

// ROW adds a derivative, times (q, 1), to a row of the gradient.
#define ROW(derivative, row) \
	VBROADCASTSS derivative(SI), X2 \
	VMULPS       X0, X2, X2         \
	VCVTPS2PD    X2, Y2             \
	VADDPD       row(DI), Y2, Y2    \
	VMOVUPD      Y2, row(DI)

// PART adds a part's value and its derivatives.
#define PART(part, value, grad) \
	VXORPS    X3, X3, X3          \
	VCVTSS2SD part(SI), X3, X3    \
	VADDSD    value(DI), X3, X3   \
	VMOVSD    X3, value(DI)       \
	ROW(part+4, grad)             \
	ROW(part+8, grad+32)          \
	ROW(part+12, grad+64)

// func addAVX(t *sums, part *[3][4]float32, q *[3]float32)
TEXT ·addAVX(SB), NOSPLIT, $0-24
	MOVQ t+0(FP), DI
	MOVQ part+8(FP), SI
	MOVQ q+16(FP), AX
	VMOVSD    (AX), X0              // q0 q1
	VMOVSS    8(AX), X1             // q2
	VINSERTPS $0x10, one<>(SB), X1, X1
	VMOVLHPS  X1, X0, X0            // q0 q1 q2 1
	PART(0, 0, 24)
	PART(16, 8, 120)
	PART(32, 16, 216)
	VZEROUPPER
	RET
