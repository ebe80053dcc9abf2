//go:build !noasm

#include "textflag.h"

// SLOPE adds up, in four lanes of out, the difference Y0, X1 times what lies between the channels of the neighbours at R12 and R13.
#define SLOPE(out) \
	VMOVUPS      (R13), Y4        \
	VSUBPS       (R12), Y4, Y4    \
	VMULPS       Y4, Y0, Y4       \
	VMOVUPS      32(R13), X5      \
	VSUBPS       32(R12), X5, X5  \
	VMULPS       X5, X1, X5       \
	VEXTRACTF128 $1, Y4, X6       \
	VADDPS       X6, X4, X4       \
	VADDPS       X5, X4, out

// func forceAVX(gx, gy, gz, fixed, warped, weight *float32, open *uint8, n, nx, before, after int) float64
//
// A voxel's channels are 48 bytes. Products are rounded before they are added, as the Go loop does it: the same bits.
TEXT ·forceAVX(SB), NOSPLIT, $0-96
	MOVQ   gx+0(FP), R8
	MOVQ   gy+8(FP), R9
	MOVQ   gz+16(FP), R10
	MOVQ   fixed+24(FP), SI
	MOVQ   warped+32(FP), DX
	MOVQ   weight+40(FP), BX
	MOVQ   open+48(FP), DI
	MOVQ   n+56(FP), CX
	XORQ   AX, AX
	VXORPS X15, X15, X15      // the squares
	VXORPS X14, X14, X14

voxels:
	VXORPS   X8, X8, X8
	VXORPS   X9, X9, X9
	VXORPS   X10, X10, X10
	VXORPS   X7, X7, X7
	VUCOMISS (BX)(AX*4), X14
	JEQ      store
	VMOVUPS  (SI), Y0
	VSUBPS   (DX), Y0, Y0
	VMOVUPS  32(SI), X1
	VSUBPS   32(DX), X1, X1
	VMULPS   Y0, Y0, Y4
	VMULPS   X1, X1, X5
	VEXTRACTF128 $1, Y4, X6
	VADDPS   X6, X4, X4
	VADDPS   X5, X4, X7
	MOVBLZX  (DI)(AX*1), R11
	TESTL    $1, R11
	JZ       alongY
	LEAQ     -48(DX), R12
	LEAQ     48(DX), R13
	SLOPE(X8)

alongY:
	TESTL  $2, R11
	JZ     alongZ
	MOVQ   nx+64(FP), R13
	IMUL3Q $48, R13, R13
	MOVQ   DX, R12
	SUBQ   R13, R12
	ADDQ   DX, R13
	SLOPE(X9)

alongZ:
	TESTL  $4, R11
	JZ     sum
	MOVQ   before+72(FP), R12
	MOVQ   after+80(FP), R13
	IMUL3Q $48, R12, R12
	IMUL3Q $48, R13, R13
	ADDQ   DX, R12
	ADDQ   DX, R13
	SLOPE(X10)

sum:
	// Lanes 0 and 1, and 2 and 3, of the square and the three slopes, then both.
	VHADDPS   X8, X7, X7
	VHADDPS   X10, X9, X9
	VHADDPS   X9, X7, X7
	VPERMILPS $0x55, X7, X8
	VPERMILPS $0xAA, X7, X9
	VPERMILPS $0xFF, X7, X10
	VCVTSS2SD X7, X7, X7
	VADDSD    X7, X15, X15

store:
	VMOVSS X8, (R8)(AX*4)
	VMOVSS X9, (R9)(AX*4)
	VMOVSS X10, (R10)(AX*4)
	ADDQ   $48, SI
	ADDQ   $48, DX
	INCQ   AX
	CMPQ   AX, CX
	JLT    voxels
	VMOVSD X15, ret+88(FP)
	VZEROUPPER
	RET

DATA one<>+0(SB)/4, $1.0
GLOBL one<>(SB), RODATA|NOPTR, $4

// WEIGHT writes the weights of the two sides along an axis, at the eight corners, to out: 1 - f, or f where the mask has a bit.
#define WEIGHT(f, mask, out) \
	VBROADCASTSS (f)(AX*4), out      \
	VSUBPS       out, Y15, Y1        \
	VBLENDPS     mask, out, Y1, out

// CORNER adds the channels at offset from p, times the weight at place in the list of weights.
#define CORNER(place, offset, p) \
	VBROADCASTSS place(SP), Y1         \
	VMULPS       offset(p), Y1, Y4     \
	VADDPS       Y4, Y2, Y2            \
	VMULPS       (offset+32)(p), X1, X5 \
	VADDPS       X5, X3, X3

// func warpAVX(dst, moving *float32, first *int, x, y, z *float32, n, nx, slice int)
//
// Products are rounded before they are added, and added in the order of the Go loop: the same bits.
TEXT ·warpAVX(SB), NOSPLIT, $32-72
	MOVQ         dst+0(FP), DI
	MOVQ         moving+8(FP), SI
	MOVQ         first+16(FP), BX
	MOVQ         x+24(FP), R8
	MOVQ         y+32(FP), R9
	MOVQ         z+40(FP), DX
	MOVQ         n+48(FP), CX
	MOVQ         nx+56(FP), R12
	MOVQ         slice+64(FP), R13
	SHLQ         $2, R12
	SHLQ         $2, R13
	VBROADCASTSS one<>(SB), Y15
	XORQ         AX, AX

voxels:
	WEIGHT(R8, $0xAA, Y6)
	WEIGHT(R9, $0xCC, Y7)
	WEIGHT(DX, $0xF0, Y8)
	VMULPS  Y7, Y6, Y6
	VMULPS  Y8, Y6, Y6
	VMOVUPS Y6, (SP)
	MOVQ    (BX)(AX*8), R10
	LEAQ    (SI)(R10*4), R10
	LEAQ    (R10)(R12*1), R11
	VXORPS  Y2, Y2, Y2
	VXORPS  X3, X3, X3
	CORNER(0, 0, R10)
	CORNER(4, 48, R10)
	CORNER(8, 0, R11)
	CORNER(12, 48, R11)
	ADDQ    R13, R10
	ADDQ    R13, R11
	CORNER(16, 0, R10)
	CORNER(20, 48, R10)
	CORNER(24, 0, R11)
	CORNER(28, 48, R11)
	VMOVUPS Y2, (DI)
	VMOVUPS X3, 32(DI)
	ADDQ    $48, DI
	INCQ    AX
	CMPQ    AX, CX
	JLT     voxels
	VZEROUPPER
	RET
