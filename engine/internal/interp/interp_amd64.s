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

// CELLS is where the cells of the points AX, ... stand in the row, of which it holds 64.
#define CELLS(at) \
	MOVQ AX, at  \
	ANDQ $63, at \
	SHLQ $4, at  \
	ADDQ DI, at

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
//
// Finding cells takes long from first to last, and reading takes many instructions. So the cells of 64 points are found
// first, which the processor does for several vectors at once.
TEXT ·rowAVX2(SB), NOSPLIT, $8-8
	MOVQ         r+0(FP), DI
	MOVQ         48(DI), R14
	SHLQ         $2, R14                 // bytes from a row to the next
	VBROADCASTSS one<>(SB), Y15
	VBROADCASTSS 152(DI), Y14            // scale
	VBROADCASTSS 24(DI), Y0
	VADDPS       lanes<>(SB), Y0, Y0     // x of the eight points
	XORQ         AX, AX

chunk:
	CMPQ    AX, 64(DI)
	JGE     done
	MOVQ    AX, DX                       // the first point
	LEAQ    64(AX), CX
	CMPQ    CX, 64(DI)
	CMOVQGT 64(DI), CX
	MOVQ    CX, (SP)                     // and the end
	MOVQ    0(DI), R8                    // ux
	MOVQ    8(DI), R9                    // uy
	MOVQ    16(DI), R10                  // uz

cells:
	VMULPS       (R8)(AX*4), Y14, Y7
	VBROADCASTSS 36(DI), Y8
	CELL(Y7, Y0, Y8, Y4, Y1, Y10)
	AXIS(R9, 28, 40, 48, Y2)
	AXIS(R10, 32, 44, 56, Y3)
	CELLS(BX)
	VMOVUPS      Y1, 168(BX)
	VMOVUPS      Y2, 200(BX)
	VMOVUPS      Y3, 232(BX)
	VMOVDQU      Y4, 264(BX)
	VBROADCASTSS eight<>(SB), Y7
	VADDPS       Y7, Y0, Y0
	ADDQ         $8, AX
	CMPQ         AX, CX
	JLT          cells
	MOVQ         DX, AX

points:
	CELLS(R11)
	VMOVUPS      168(R11), Y1
	VMOVUPS      200(R11), Y2
	VMOVUPS      232(R11), Y3
	MOVL         264(R11), CX
	VPBROADCASTD 264(R11), Y5
	VCVTTPS2DQ   lanes<>(SB), Y6
	VPADDD       Y6, Y5, Y5
	VPCMPEQD     264(R11), Y5, Y5
	VMOVMSKPS    Y5, DX
	XORQ         BX, BX
	CMPL         DX, $0xFF
	JEQ          runs                    // the cells stand side by side
	MOVL         268(R11), DX
	MOVL         272(R11), R8
	MOVL         276(R11), R9
	MOVL         280(R11), R10
	MOVL         284(R11), R12
	MOVL         288(R11), R13
	MOVL         292(R11), SI

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
	ADDQ $8, AX
	CMPQ AX, (SP)
	JLT  points
	JMP  chunk

done:
	VZEROUPPER
	RET
