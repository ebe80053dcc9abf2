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
	VMULPS       (u)(AX*4), Y14, Y7  \
	VBROADCASTSS base(DI), Y9        \
	VBROADCASTSS last(DI), Y8        \
	CELL(Y7, Y9, Y8, Y5, fraction, Y10) \
	VPBROADCASTD stride(DI), Y10     \
	VPMULLD      Y10, Y5, Y5         \
	VPADDD       Y5, Y4, Y4

// TWO reads the pairs of neighbours in x at the offsets a and b of the row at R11 to out.
#define TWO(a, b, out) \
	VMOVSD  (R11)(a*4), out      \
	VMOVHPS (R11)(b*4), out, out

// PAIR reads eight pairs of neighbours in x at the offsets of the points, and writes to out what lies between them. Each is one
// load of eight bytes, which is faster than a gather of four.
#define PAIR(out, low) \
	TWO(CX, DX, low)                 \ // points 0 and 1
	TWO(R8, R9, X11)                 \ // 2 and 3
	TWO(R10, R12, X12)               \ // 4 and 5
	TWO(R13, SI, X13)                \ // 6 and 7
	VINSERTF128 $1, X12, out, out    \
	VINSERTF128 $1, X13, Y11, Y11    \
	VSHUFPS     $0xDD, Y11, out, Y13 \ // the right ones
	VSHUFPS     $0x88, Y11, out, out \ // the left ones
	VSUBPS      out, Y13, Y13        \
	VMULPS      Y13, Y1, Y13         \
	VADDPS      Y13, out, out

// RUN reads the same from cells that stand side by side.
#define RUN(out) \
	VMOVUPS (R11)(CX*4), out  \
	VMOVUPS 4(R11)(CX*4), Y13 \
	VSUBPS  out, Y13, Y13    \
	VMULPS  Y13, Y1, Y13     \
	VADDPS  Y13, out, out

// LERP writes a + f (b - a) to a.
#define LERP(a, b, f) \
	VSUBPS a, b, b \
	VMULPS b, f, b \
	VADDPS b, a, a

// STORE adds the displacement, where it is to be added, writes Y7 and goes on to the next plane.
#define STORE(label) \
	MOVQ    128(DI)(BX*8), R11       \
	TESTQ   R11, R11                 \
	JZ      label                    \
	VMULPS  (R11)(AX*4), Y14, Y8     \
	VADDPS  Y8, Y7, Y7               \
label:                               \
	MOVQ    104(DI)(BX*8), R11       \
	VMOVUPS Y7, (R11)(AX*4)          \
	INCQ    BX                       \
	CMPQ    BX, 72(DI)

// func rowAVX2(r *row)
TEXT ·rowAVX2(SB), NOSPLIT, $32-8
	MOVQ         r+0(FP), DI
	MOVQ         48(DI), R14
	SHLQ         $2, R14                 // bytes from a row to the next
	VBROADCASTSS one<>(SB), Y15
	VBROADCASTSS 152(DI), Y14            // scale
	VBROADCASTSS 24(DI), Y0
	VADDPS       lanes<>(SB), Y0, Y0     // x of the eight points
	XORQ         AX, AX

points:
	CMPQ         AX, 64(DI)
	JGE          done
	MOVQ         0(DI), R8               // ux
	MOVQ         8(DI), R9               // uy
	MOVQ         16(DI), R10             // uz
	VMULPS       (R8)(AX*4), Y14, Y7
	VBROADCASTSS 36(DI), Y8
	CELL(Y7, Y0, Y8, Y4, Y1, Y10)
	AXIS(R9, 28, 40, 48, Y2)
	AXIS(R10, 32, 44, 56, Y3)
	VMOVD        X4, CX
	VPBROADCASTD X4, Y5
	VCVTTPS2DQ   lanes<>(SB), Y6
	VPADDD       Y6, Y5, Y5
	VPCMPEQD     Y4, Y5, Y5
	VMOVMSKPS    Y5, R11
	XORQ         BX, BX
	CMPL         R11, $0xFF
	JEQ          runs                    // the cells stand side by side
	VMOVDQU      Y4, (SP)
	MOVL         4(SP), DX
	MOVL         8(SP), R8
	MOVL         12(SP), R9
	MOVL         16(SP), R10
	MOVL         20(SP), R12
	MOVL         24(SP), R13
	MOVL         28(SP), SI

planes:
	MOVQ 80(DI)(BX*8), R11
	PAIR(Y7, X7)
	ADDQ R14, R11
	PAIR(Y8, X8)
	LERP(Y7, Y8, Y2)
	MOVQ 80(DI)(BX*8), R11
	ADDQ 160(DI), R11
	PAIR(Y9, X9)
	ADDQ R14, R11
	PAIR(Y10, X10)
	LERP(Y9, Y10, Y2)
	LERP(Y7, Y9, Y3)
	STORE(addPlane)
	JLT  planes
	JMP  next

runs:
	MOVQ 80(DI)(BX*8), R11
	RUN(Y7)
	ADDQ R14, R11
	RUN(Y8)
	LERP(Y7, Y8, Y2)
	MOVQ 80(DI)(BX*8), R11
	ADDQ 160(DI), R11
	RUN(Y9)
	ADDQ R14, R11
	RUN(Y10)
	LERP(Y9, Y10, Y2)
	LERP(Y7, Y9, Y3)
	STORE(addRun)
	JLT  runs

next:
	VBROADCASTSS eight<>(SB), Y7
	VADDPS       Y7, Y0, Y0
	ADDQ         $8, AX
	JMP          points

done:
	VZEROUPPER
	RET
