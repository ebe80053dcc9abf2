//go:build !noasm

#include "textflag.h"

DATA lanes<>+0(SB)/4, $0.0
DATA lanes<>+4(SB)/4, $1.0
DATA lanes<>+8(SB)/4, $2.0
DATA lanes<>+12(SB)/4, $3.0
DATA lanes<>+16(SB)/4, $4.0
DATA lanes<>+20(SB)/4, $5.0
DATA lanes<>+24(SB)/4, $6.0
DATA lanes<>+28(SB)/4, $7.0
GLOBL lanes<>(SB), RODATA|NOPTR, $32

DATA one<>+0(SB)/4, $1.0
GLOBL one<>(SB), RODATA|NOPTR, $4

DATA eight<>+0(SB)/4, $8.0
GLOBL eight<>(SB), RODATA|NOPTR, $4

// CELL finds the cells of eight points along an axis: from the displacement u, the position base and the axis' last index, the
// index (int32) of the voxel below, and the fraction. The last cell holds the border. u and t are overwritten.
#define CELL(u, base, last, index, fraction, t) \
	VXORPS     t, t, t           \
	VSUBPS     base, t, t        \ // -base
	VMAXPS     t, u, u           \ // NaN: the bound
	VSUBPS     base, last, t     \
	VMINPS     t, u, u           \
	VROUNDPS   $1, u, t          \ // down
	VSUBPS     t, u, fraction    \
	VADDPS     t, base, u        \ // the index
	VSUBPS     Y15, last, t      \
	VMINPS     t, u, t           \
	VSUBPS     t, u, u           \ // 1 at the border, else 0
	VADDPS     u, fraction, fraction \
	VCVTTPS2DQ t, index

// AXIS finds the cells of the points AX, ... along y or z, and adds what they are apart in the plane to the offsets Y4; the fields
// of the row are given by their places in it.
#define AXIS(u, base, last, stride, fraction) \
	VMULPS       (u)(AX*4), Y12, Y7  \
	VBROADCASTSS base(DI), Y9        \
	VBROADCASTSS last(DI), Y8        \
	CELL(Y7, Y9, Y8, Y5, fraction, Y10) \
	VPBROADCASTD stride(DI), Y10     \
	VPMULLD      Y10, Y5, Y5         \
	VPADDD       Y5, Y4, Y4

// PAIR reads eight pairs of neighbours in x from p, at the offsets X5 (points 0, 1, 4, 5) and X6 (2, 3, 6, 7), and writes to out
// what lies between them.
#define PAIR(p, out, t) \
	VPCMPEQD   Y14, Y14, Y14         \
	VGATHERDPD Y14, (p)(X5*4), out   \
	VPCMPEQD   Y14, Y14, Y14         \
	VGATHERDPD Y14, (p)(X6*4), t     \
	VSHUFPS    $0xDD, t, out, Y13    \ // the right ones
	VSHUFPS    $0x88, t, out, out    \ // the left ones
	VSUBPS     out, Y13, Y13         \
	VMULPS     Y13, Y1, Y13          \
	VADDPS     Y13, out, out

// RUN reads the same from cells that stand side by side, the first at the offset DX.
#define RUN(p, out) \
	VMOVUPS (p)(DX*4), out   \
	VMOVUPS 4(p)(DX*4), Y13  \
	VSUBPS  out, Y13, Y13    \
	VMULPS  Y13, Y1, Y13     \
	VADDPS  Y13, out, out

// LERP writes a + f (b - a) to a.
#define LERP(a, b, f) \
	VSUBPS a, b, b \
	VMULPS b, f, b \
	VADDPS b, a, a

// func rowAVX2(r *row)
TEXT ·rowAVX2(SB), NOSPLIT, $0-8
	MOVQ         r+0(FP), DI
	MOVQ         0(DI), R8               // ux
	MOVQ         8(DI), R9               // uy
	MOVQ         16(DI), R10             // uz
	MOVQ         64(DI), CX              // n
	VBROADCASTSS one<>(SB), Y15
	VBROADCASTSS 152(DI), Y12            // scale
	VBROADCASTSS 24(DI), Y0
	VADDPS       lanes<>(SB), Y0, Y0     // x of the eight points
	XORQ         AX, AX

points:
	CMPQ         AX, CX
	JGE          done
	VMULPS       (R8)(AX*4), Y12, Y7
	VBROADCASTSS 36(DI), Y8
	CELL(Y7, Y0, Y8, Y4, Y1, Y10)
	AXIS(R9, 28, 40, 48, Y2)
	AXIS(R10, 32, 44, 56, Y3)
	VMOVD        X4, DX
	VPBROADCASTD X4, Y5
	VCVTTPS2DQ   lanes<>(SB), Y6
	VPADDD       Y6, Y5, Y5
	VPCMPEQD     Y4, Y5, Y5
	VMOVMSKPS    Y5, R11
	VPERMQ       $0xD8, Y4, Y5           // points 0 1 4 5 2 3 6 7
	VEXTRACTI128 $1, Y5, X6
	XORQ         BX, BX
	CMPL         R11, $0xFF
	JEQ          planes
	MOVQ         $-1, DX                 // the cells do not stand side by side

planes:
	MOVQ  80(DI)(BX*8), R11 // the four rows around the points
	MOVQ  48(DI), R12
	LEAQ  (R11)(R12*4), R12
	MOVQ  56(DI), SI
	LEAQ  (R11)(SI*4), R13
	LEAQ  (R12)(SI*4), SI
	TESTQ DX, DX
	JGE   run
	PAIR(R11, Y7, Y11)
	PAIR(R12, Y8, Y11)
	PAIR(R13, Y9, Y11)
	PAIR(SI, Y10, Y11)
	JMP   between

run:
	RUN(R11, Y7)
	RUN(R12, Y8)
	RUN(R13, Y9)
	RUN(SI, Y10)

between:
	LERP(Y7, Y8, Y2)
	LERP(Y9, Y10, Y2)
	LERP(Y7, Y9, Y3)
	MOVQ   128(DI)(BX*8), R12
	TESTQ  R12, R12
	JZ     store
	VMULPS (R12)(AX*4), Y12, Y8
	VADDPS Y8, Y7, Y7

store:
	MOVQ    104(DI)(BX*8), R12
	VMOVUPS Y7, (R12)(AX*4)
	INCQ    BX
	CMPQ    BX, 72(DI)
	JLT     planes

	VBROADCASTSS eight<>(SB), Y7
	VADDPS       Y7, Y0, Y0
	ADDQ         $8, AX
	JMP          points

done:
	VZEROUPPER
	RET
