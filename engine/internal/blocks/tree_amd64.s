//go:build !noasm

#include "textflag.h"

// func lowerRowsAVX2(dst, src, penalty *uint16, width, lines int)
TEXT ·lowerRowsAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ penalty+16(FP), BX
	MOVQ width+24(FP), R8
	MOVQ lines+32(FP), CX
	LEAQ -2(BX)(R8*2), BX // the penalties of label 0's own place, that of 0 first

line:
	MOVQ         BX, DX
	MOVQ         R8, AX
	VPBROADCASTW (SI), Y2
	VPADDUSW     (DX), Y2, Y0
	JMP          next

label:
	VPBROADCASTW (SI), Y2
	VPADDUSW     (DX), Y2, Y2
	VPMINUW      Y2, Y0, Y0

next:
	ADDQ    $2, SI
	SUBQ    $2, DX
	DECQ    AX
	JNZ     label
	VMOVDQU Y0, (DI)
	LEAQ    (DI)(R8*2), DI
	DECQ    CX
	JNZ     line
	VZEROUPPER
	RET

// func lowerAVX2(dst, rows, penalty *uint16, n, count int)
TEXT ·lowerAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ penalty+16(FP), BX
	MOVQ n+24(FP), R8
	SHLQ $1, R8
	MOVQ count+32(FP), R10

output:
	MOVQ DI, R11
	MOVQ rows+8(FP), SI
	MOVQ n+24(FP), CX

columns:
	MOVQ SI, DX
	MOVQ BX, R9
	MOVQ count+32(FP), AX
	CMPQ CX, $32
	JGT  wide
	VPBROADCASTW (R9), Y4
	VPADDUSW     (DX), Y4, Y0
	JMP          nextNarrow

narrow:
	VPBROADCASTW (R9), Y4
	VPADDUSW     (DX), Y4, Y5
	VPMINUW      Y5, Y0, Y0

nextNarrow:
	ADDQ    R8, DX
	ADDQ    $2, R9
	DECQ    AX
	JNZ     narrow
	VMOVDQU Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $16, CX
	JGT     columns
	JMP     end

wide:
	VPBROADCASTW (R9), Y4
	VPADDUSW     (DX), Y4, Y0
	VPADDUSW     32(DX), Y4, Y1
	VPADDUSW     64(DX), Y4, Y2
	VPADDUSW     96(DX), Y4, Y3
	JMP          nextWide

wideRow:
	VPBROADCASTW (R9), Y4
	VPADDUSW     (DX), Y4, Y5
	VPADDUSW     32(DX), Y4, Y6
	VPADDUSW     64(DX), Y4, Y7
	VPADDUSW     96(DX), Y4, Y8
	VPMINUW      Y5, Y0, Y0
	VPMINUW      Y6, Y1, Y1
	VPMINUW      Y7, Y2, Y2
	VPMINUW      Y8, Y3, Y3

nextWide:
	ADDQ    R8, DX
	ADDQ    $2, R9
	DECQ    AX
	JNZ     wideRow
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	VMOVDQU Y2, 64(DI)
	VMOVDQU Y3, 96(DI)
	ADDQ    $128, SI
	ADDQ    $128, DI
	SUBQ    $64, CX
	JGT     columns

end:
	LEAQ (R11)(R8*1), DI // the row of the next label, whose penalties begin one earlier
	SUBQ $2, BX
	DECQ R10
	JNZ  output
	VZEROUPPER
	RET

// ROWS writes the values at SI OP those at DX to DI, CX of them.
#define ROWS(OP) \
	XORQ    AX, AX             \
loop:                          \
	VMOVDQU (SI)(AX*2), Y0     \
	OP      (DX)(AX*2), Y0, Y0 \
	VMOVDQU Y0, (DI)(AX*2)     \
	ADDQ    $16, AX            \
	CMPQ    AX, CX             \
	JLT     loop               \
	VZEROUPPER                 \
	RET

// func addAVX2(dst, a, b *uint16, n int)
TEXT ·addAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	ROWS(VPADDUSW)

// func subtractAVX2(dst, a, b *uint16, n int)
TEXT ·subtractAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	ROWS(VPSUBW)

// func cappedAVX2(dst, x *uint16, least, most uint16, n int)
TEXT ·cappedAVX2(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         x+8(FP), SI
	VPBROADCASTW least+16(FP), Y1
	VPBROADCASTW most+18(FP), Y2
	MOVQ         n+24(FP), CX
	XORQ         AX, AX

loop:
	VMOVDQU (SI)(AX*2), Y0
	VPSUBW  Y1, Y0, Y0
	VPMINUW Y2, Y0, Y0
	VMOVDQU Y0, (DI)(AX*2)
	ADDQ    $16, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET

// func addAboveAVX2(sum, x *uint16, least, most uint16, n int)
TEXT ·addAboveAVX2(SB), NOSPLIT, $0-32
	MOVQ         sum+0(FP), DI
	MOVQ         x+8(FP), SI
	VPBROADCASTW least+16(FP), Y1
	VPBROADCASTW most+18(FP), Y2
	MOVQ         n+24(FP), CX
	XORQ         AX, AX

loop:
	VMOVDQU (SI)(AX*2), Y0
	VPSUBW  Y1, Y0, Y0
	VPMINUW Y2, Y0, Y0
	VPADDW  (DI)(AX*2), Y0, Y0
	VMOVDQU Y0, (DI)(AX*2)
	ADDQ    $16, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET

// func leastAVX2(x *uint16, n int) uint16
TEXT ·leastAVX2(SB), NOSPLIT, $0-18
	MOVQ    x+0(FP), SI
	MOVQ    n+8(FP), CX
	SUBQ    $16, CX
	VMOVDQU (SI)(CX*2), Y0 // the last vector reads some values again
	XORQ    AX, AX
	JMP     next

loop:
	VPMINUW (SI)(AX*2), Y0, Y0
	ADDQ    $16, AX

next:
	CMPQ         AX, CX
	JLT          loop
	VEXTRACTI128 $1, Y0, X1
	VPMINUW      X1, X0, X0
	VPHMINPOSUW  X0, X0
	VMOVD        X0, AX
	MOVW         AX, ret+16(FP)
	VZEROUPPER
	RET
