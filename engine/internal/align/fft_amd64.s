//go:build !noasm

#include "textflag.h"

// The butterflies of fft.go on four complex numbers at a time. Rows of x and y are xStep and yStep bytes apart. Products are
// rounded before they are added, as the Go loops do it: the same bits.

// TIMES multiplies d by the factor at k(BX): its real part, then its imaginary part negated and as it is.
#define TIMES(k, d, t, c) \
	VBROADCASTSS k(BX), c     \
	VPERMILPS    $0xB1, d, t  \
	VMULPS       c, d, d      \
	VBROADCASTSD (k+4)(BX), c \
	VMULPS       c, t, t      \
	VADDPS       t, d, d

#define BEGIN \
	MOVQ y+0(FP), DI      \
	MOVQ x+8(FP), SI      \
	MOVQ yStep+16(FP), R10 \
	MOVQ xStep+24(FP), R8 \
	MOVQ factors+32(FP), BX \
	MOVQ n+40(FP), CX     \
	LEAQ (R8)(R8*2), R9   \
	LEAQ (R10)(R10*2), R11

// NEXT goes on to the next four columns. The last four may overlap those before: they are done again.
#define NEXT(loop, done) \
	SUBQ $4, CX   \
	JLE  done     \
	ADDQ $32, SI  \
	ADDQ $32, DI  \
	CMPQ CX, $4   \
	JGE  loop     \
	LEAQ -4(CX), DX \ // columns to go back, negative
	LEAQ (SI)(DX*8), SI \
	LEAQ (DI)(DX*8), DI \
	MOVQ $4, CX   \
	JMP  loop

// func butterfly2AVX(y, x *complex64, yStep, xStep int, factors *factors, n int)
TEXT ·butterfly2AVX(SB), NOSPLIT, $0-48
	BEGIN

loop:
	VMOVUPS (SI), Y0
	VMOVUPS (SI)(R8*1), Y1
	VADDPS  Y1, Y0, Y2
	VSUBPS  Y1, Y0, Y3
	TIMES(0, Y3, Y4, Y5)
	VMOVUPS Y2, (DI)
	VMOVUPS Y3, (DI)(R10*1)
	NEXT(loop, done)

done:
	VZEROUPPER
	RET

// func butterfly3AVX(y, x *complex64, yStep, xStep int, factors *factors, n int)
TEXT ·butterfly3AVX(SB), NOSPLIT, $0-48
	BEGIN
	VBROADCASTSS 24(BX), Y14 // 1/2
	VBROADCASTSD 28(BX), Y15 // s, -s

loop:
	VMOVUPS   (SI), Y0
	VMOVUPS   (SI)(R8*1), Y1
	VMOVUPS   (SI)(R8*2), Y2
	VADDPS    Y2, Y1, Y3     // sum
	VSUBPS    Y2, Y1, Y4     // dif
	VMULPS    Y14, Y3, Y5
	VSUBPS    Y5, Y0, Y5     // c
	VPERMILPS $0xB1, Y4, Y4
	VMULPS    Y15, Y4, Y4    // d
	VADDPS    Y3, Y0, Y0
	VADDPS    Y4, Y5, Y1
	VSUBPS    Y4, Y5, Y2
	TIMES(0, Y1, Y6, Y7)
	TIMES(12, Y2, Y8, Y9)
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, (DI)(R10*1)
	VMOVUPS   Y2, (DI)(R10*2)
	NEXT(loop, done)

done:
	VZEROUPPER
	RET

// func butterfly4AVX(y, x *complex64, yStep, xStep int, factors *factors, n int)
TEXT ·butterfly4AVX(SB), NOSPLIT, $0-48
	BEGIN
	VBROADCASTSD 36(BX), Y15 // sign, -sign

loop:
	VMOVUPS   (SI), Y0
	VMOVUPS   (SI)(R8*1), Y1
	VMOVUPS   (SI)(R8*2), Y2
	VMOVUPS   (SI)(R9*1), Y3
	VADDPS    Y2, Y0, Y4     // ac
	VADDPS    Y3, Y1, Y5     // bd
	VSUBPS    Y2, Y0, Y6     // dif
	VSUBPS    Y3, Y1, Y7
	VPERMILPS $0xB1, Y7, Y7
	VMULPS    Y15, Y7, Y7    // turn
	VADDPS    Y5, Y4, Y0
	VADDPS    Y7, Y6, Y1
	VSUBPS    Y5, Y4, Y2
	VSUBPS    Y7, Y6, Y3
	TIMES(0, Y1, Y8, Y9)
	TIMES(12, Y2, Y10, Y11)
	TIMES(24, Y3, Y12, Y13)
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, (DI)(R10*1)
	VMOVUPS   Y2, (DI)(R10*2)
	VMOVUPS   Y3, (DI)(R11*1)
	NEXT(loop, done)

done:
	VZEROUPPER
	RET

// func butterfly5AVX(y, x *complex64, yStep, xStep int, factors *factors, n int)
TEXT ·butterfly5AVX(SB), NOSPLIT, $0-48
	BEGIN
	VBROADCASTSS 48(BX), Y12 // c1
	VBROADCASTSS 52(BX), Y13 // c2
	VBROADCASTSD 56(BX), Y14 // s1, -s1
	VBROADCASTSD 64(BX), Y15 // s2, -s2

loop:
	VMOVUPS   (SI), Y0
	VMOVUPS   (SI)(R8*1), Y1
	VMOVUPS   (SI)(R8*2), Y2
	VMOVUPS   (SI)(R9*1), Y3
	VMOVUPS   (SI)(R8*4), Y4
	VADDPS    Y4, Y1, Y5     // p1
	VSUBPS    Y4, Y1, Y6     // m1
	VADDPS    Y3, Y2, Y7     // p2
	VSUBPS    Y3, Y2, Y8     // m2
	VMULPS    Y12, Y5, Y1
	VMULPS    Y13, Y7, Y2
	VADDPS    Y2, Y1, Y1
	VADDPS    Y1, Y0, Y1     // e1
	VMULPS    Y13, Y5, Y2
	VMULPS    Y12, Y7, Y3
	VADDPS    Y3, Y2, Y2
	VADDPS    Y2, Y0, Y2     // e2
	VADDPS    Y5, Y0, Y0
	VADDPS    Y7, Y0, Y0
	VMOVUPS   Y0, (DI)
	VPERMILPS $0xB1, Y6, Y6
	VPERMILPS $0xB1, Y8, Y8
	VMULPS    Y14, Y6, Y3
	VMULPS    Y15, Y8, Y4
	VADDPS    Y4, Y3, Y3     // o1
	VMULPS    Y15, Y6, Y4
	VMULPS    Y14, Y8, Y5
	VSUBPS    Y5, Y4, Y4     // o2
	VADDPS    Y3, Y1, Y5
	VADDPS    Y4, Y2, Y6
	VSUBPS    Y4, Y2, Y7
	VSUBPS    Y3, Y1, Y8
	TIMES(0, Y5, Y0, Y1)
	TIMES(12, Y6, Y2, Y3)
	TIMES(24, Y7, Y4, Y9)
	TIMES(36, Y8, Y10, Y11)
	VMOVUPS   Y5, (DI)(R10*1)
	VMOVUPS   Y6, (DI)(R10*2)
	VMOVUPS   Y7, (DI)(R11*1)
	VMOVUPS   Y8, (DI)(R10*4)
	NEXT(loop, done)

done:
	VZEROUPPER
	RET

// func addProductAVX(dst, a, b *complex64, weight float32, n int)
TEXT ·addProductAVX(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         b+16(FP), DX
	VBROADCASTSS weight+24(FP), Y15
	MOVQ         n+32(FP), CX
	XORQ         AX, AX

loop:
	VMOVSLDUP (SI)(AX*8), Y0       // real parts of a, twice
	VMOVSHDUP (SI)(AX*8), Y1       // imaginary
	VMOVUPS   (DX)(AX*8), Y2
	VPERMILPS $0xB1, Y2, Y3
	VMULPS    Y2, Y0, Y0
	VMULPS    Y3, Y1, Y1
	VADDSUBPS Y1, Y0, Y0
	VMULPS    Y15, Y0, Y0
	VADDPS    (DI)(AX*8), Y0, Y0
	VMOVUPS   Y0, (DI)(AX*8)
	ADDQ      $4, AX
	CMPQ      AX, CX
	JLT       loop
	VZEROUPPER
	RET
