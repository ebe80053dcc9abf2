//go:build !noasm

#include "textflag.h"

// Of sixteen values that a vector reads, the last four are of the next voxel.
DATA own<>+0(SB)/8, $-1
DATA own<>+8(SB)/8, $-1
DATA own<>+16(SB)/8, $-1
DATA own<>+24(SB)/8, $0
GLOBL own<>(SB), RODATA|NOPTR, $32

DATA unit<>+0(SB)/4, $0x32800000 // 1/one^2, 2^-26
GLOBL unit<>(SB), RODATA|NOPTR, $4

// SLOPE adds up, in eight lanes of out, the difference Y0 times what lies between the channels of the neighbours at R12 and R13.
#define SLOPE(out) \
	VMOVDQU  (R13), Y4     \
	VPSUBW   (R12), Y4, Y4 \
	VPMADDWD Y4, Y0, out

// func forceAVX2(gx, gy, gz *float32, fixed, warped *int16, weight *float32, open *uint8, n, nx, before, after int) int64
//
// A voxel's channels are 24 bytes.
TEXT ·forceAVX2(SB), NOSPLIT, $0-96
	MOVQ    gx+0(FP), R8
	MOVQ    gy+8(FP), R9
	MOVQ    gz+16(FP), R10
	MOVQ    fixed+24(FP), SI
	MOVQ    warped+32(FP), DX
	MOVQ    weight+40(FP), BX
	MOVQ    open+48(FP), DI
	MOVQ    n+56(FP), CX
	XORQ    AX, AX
	VPXOR   X15, X15, X15      // the squares
	VXORPS  X14, X14, X14
	VMOVDQU own<>(SB), Y13
	VBROADCASTSS unit<>(SB), X12

voxels:
	VPXOR    X8, X8, X8
	VPXOR    X9, X9, X9
	VPXOR    X10, X10, X10
	VUCOMISS (BX)(AX*4), X14
	JEQ      store
	VMOVDQU  (SI), Y0
	VPSUBW   (DX), Y0, Y0
	VPAND    Y13, Y0, Y0
	VPMADDWD Y0, Y0, Y7
	MOVBLZX  (DI)(AX*1), R11
	TESTL    $1, R11
	JZ       alongY
	LEAQ     -24(DX), R12
	LEAQ     24(DX), R13
	SLOPE(Y8)

alongY:
	TESTL  $2, R11
	JZ     alongZ
	MOVQ   nx+64(FP), R13
	IMUL3Q $24, R13, R13
	MOVQ   DX, R12
	SUBQ   R13, R12
	ADDQ   DX, R13
	SLOPE(Y9)

alongZ:
	TESTL  $4, R11
	JZ     sum
	MOVQ   before+72(FP), R12
	MOVQ   after+80(FP), R13
	IMUL3Q $24, R12, R12
	IMUL3Q $24, R13, R13
	ADDQ   DX, R12
	ADDQ   DX, R13
	SLOPE(Y10)

sum:
	VPHADDD      Y8, Y7, Y7
	VPHADDD      Y10, Y9, Y9
	VPHADDD      Y9, Y7, Y7
	VEXTRACTI128 $1, Y7, X8
	VPADDD       X8, X7, X7 // the square and the three slopes
	VPMOVSXDQ    X7, X8
	VPADDQ       X8, X15, X15
	VCVTDQ2PS    X7, X7
	VMULPS       X12, X7, X7
	VPERMILPS    $0x55, X7, X8
	VPERMILPS    $0xAA, X7, X9
	VPERMILPS    $0xFF, X7, X10

store:
	VMOVSS X8, (R8)(AX*4)
	VMOVSS X9, (R9)(AX*4)
	VMOVSS X10, (R10)(AX*4)
	ADDQ   $24, SI
	ADDQ   $24, DX
	INCQ   AX
	CMPQ   AX, CX
	JLT    voxels
	VMOVQ  X15, AX
	MOVQ   AX, ret+88(FP)
	VZEROUPPER
	RET

DATA step<>+0(SB)/4, $1.0
DATA step<>+4(SB)/8, $0
DATA step<>+12(SB)/4, $0
GLOBL step<>(SB), RODATA|NOPTR, $16

DATA one<>+0(SB)/4, $1.0
DATA one<>+4(SB)/4, $32768.0 // full
DATA one<>+8(SB)/4, $0.5
GLOBL one<>(SB), RODATA|NOPTR, $12

// WEIGHT writes the weights of the two sides along an axis, at the eight corners, to out: 1 - f, or f where the mask has a bit. f is
// the lane of X4.
#define WEIGHT(lane, mask, x, out) \
	VPERMILPS    lane, X4, x     \
	VBROADCASTSS x, out          \
	VSUBPS       out, Y15, Y1    \
	VBLENDPS     mask, out, Y1, out

// CORNER adds the channels at offset from p, times the weight at place in the list of weights, to sum.
#define CORNER(place, offset, p, sum) \
	VPBROADCASTW place(SP), Y1         \
	VPMULHRSW    offset(p), Y1, Y1     \
	VPADDW       Y1, sum, sum

// func warpAVX2(dst, moving *int16, r *row)
TEXT ·warpAVX2(SB), NOSPLIT, $16-24
	MOVQ         dst+0(FP), DI
	MOVQ         moving+8(FP), SI
	MOVQ         r+16(FP), BX
	MOVQ         0(BX), R8
	MOVQ         8(BX), R9
	MOVQ         16(BX), DX
	VMOVUPS      24(BX), X11 // the point without its displacement
	VMOVUPS      40(BX), X10
	VMOVDQU      56(BX), X9
	MOVQ         72(BX), CX
	VPEXTRD      $1, X9, R12
	VPEXTRD      $2, X9, R13
	IMUL3Q       $24, R12, R12
	IMUL3Q       $24, R13, R13
	VMOVUPS      step<>(SB), X12
	VBROADCASTSS one<>+0(SB), Y15
	VBROADCASTSS one<>+4(SB), Y14
	VBROADCASTSS one<>+8(SB), Y13
	XORQ         AX, AX

voxels:
	VMOVSS       (R8)(AX*4), X4
	VINSERTPS    $0x10, (R9)(AX*4), X4, X4
	VINSERTPS    $0x20, (DX)(AX*4), X4, X4
	VADDPS       X4, X11, X4
	VADDPS       X12, X11, X11
	VXORPS       X5, X5, X5
	VMAXPS       X5, X4, X4 // NaN: 0
	VMINPS       X10, X4, X4
	VCVTTPS2DQ   X4, X5
	VCVTDQ2PS    X5, X6
	VSUBPS       X6, X4, X4 // beyond the voxel
	VPMULLD      X9, X5, X5
	VPHADDD      X5, X5, X5
	VPHADDD      X5, X5, X5
	VMOVD        X5, R10
	IMUL3Q       $24, R10, R10
	ADDQ         SI, R10
	LEAQ         (R10)(R12*1), R11
	WEIGHT($0x00, $0xAA, X6, Y6)
	WEIGHT($0x55, $0xCC, X7, Y7)
	WEIGHT($0xAA, $0xF0, X8, Y8)
	VMULPS       Y7, Y6, Y6
	VMULPS       Y8, Y6, Y6
	VMULPS       Y14, Y6, Y6
	VADDPS       Y13, Y6, Y6
	VCVTTPS2DQ   Y6, Y6
	VEXTRACTI128 $1, Y6, X7
	VPACKSSDW    X7, X6, X6
	VMOVDQU      X6, (SP)
	VPXOR        Y2, Y2, Y2
	VPXOR        Y3, Y3, Y3
	CORNER(0, 0, R10, Y2)
	CORNER(2, 24, R10, Y3)
	CORNER(4, 0, R11, Y2)
	CORNER(6, 24, R11, Y3)
	ADDQ         R13, R10
	ADDQ         R13, R11
	CORNER(8, 0, R10, Y2)
	CORNER(10, 24, R10, Y3)
	CORNER(12, 0, R11, Y2)
	CORNER(14, 24, R11, Y3)
	VPADDW       Y3, Y2, Y2
	VMOVDQU      X2, (DI)
	VEXTRACTI128 $1, Y2, X2
	VMOVQ        X2, 16(DI) // of the sixteen values four are another voxel's
	ADDQ         $24, DI
	INCQ         AX
	CMPQ         AX, CX
	JLT          voxels
	VZEROUPPER
	RET
