//go:build !noasm

#include "textflag.h"

DATA half<>+0(SB)/4, $0.5
GLOBL half<>(SB), RODATA|NOPTR, $4

// PLANE writes to out the plane at R10 plus its slope along the displacement Y0, Y1, Y2, plus the displacement scaled.
#define PLANE(k, along, out) \
	MOVQ    24+8*k(DI), R10          \
	VMOVUPS 4(R10)(AX*4), Y4         \
	VSUBPS  -4(R10)(AX*4), Y4, Y4    \
	VMULPS  Y0, Y4, Y4               \
	LEAQ    (R10)(CX*1), R11         \
	VMOVUPS (R11)(AX*4), Y5          \
	LEAQ    (R10)(DX*1), R11         \
	VSUBPS  (R11)(AX*4), Y5, Y5      \
	VMULPS  Y1, Y5, Y5               \
	VADDPS  Y5, Y4, Y4               \
	LEAQ    (R10)(R8*1), R11         \
	VMOVUPS (R11)(AX*4), Y5          \
	LEAQ    (R10)(R9*1), R11         \
	VSUBPS  (R11)(AX*4), Y5, Y5      \
	VMULPS  Y2, Y5, Y5               \
	VADDPS  Y5, Y4, Y4               \
	VMULPS  Y13, Y4, Y4              \
	VMULPS  along, Y14, Y5           \
	VADDPS  (R10)(AX*4), Y5, Y5      \
	VADDPS  Y4, Y5, out

// func advectAVX(a *advection)
TEXT ·advectAVX(SB), NOSPLIT, $0-8
	MOVQ         a+0(FP), DI
	MOVQ         72(DI), CX              // bytes to the row after, and the one before
	MOVQ         80(DI), DX
	MOVQ         88(DI), R8              // to that of the slice after, and before
	MOVQ         96(DI), R9
	VBROADCASTSS 120(DI), Y14
	VBROADCASTSS half<>(SB), Y13
	VMULPS       Y14, Y13, Y13
	MOVQ         104(DI), AX

points:
	CMPQ    AX, 112(DI)
	JGE     done
	MOVQ    0(DI), R10
	MOVQ    8(DI), R11
	MOVQ    16(DI), R12
	VMOVUPS (R10)(AX*4), Y0
	VMOVUPS (R11)(AX*4), Y1
	VMOVUPS (R12)(AX*4), Y2
	PLANE(0, Y0, Y8)
	PLANE(1, Y1, Y9)
	PLANE(2, Y2, Y10)
	MOVQ    48(DI), R10
	MOVQ    56(DI), R11
	MOVQ    64(DI), R12
	VMOVUPS Y8, (R10)(AX*4)
	VMOVUPS Y9, (R11)(AX*4)
	VMOVUPS Y10, (R12)(AX*4)
	ADDQ    $8, AX
	JMP     points

done:
	VZEROUPPER
	RET
