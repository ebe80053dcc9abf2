//go:build !noasm

#include "textflag.h"

// func lowerRowsAVX(dst, src, penalty *float32, width, lines int)
TEXT ·lowerRowsAVX(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ penalty+16(FP), BX
	MOVQ width+24(FP), R8
	MOVQ lines+32(FP), CX
	LEAQ -4(BX)(R8*4), BX // the penalties of label 0's own place, that of 0 first

line:
	MOVQ         BX, DX
	MOVQ         R8, AX
	VBROADCASTSS (SI), Y2
	VADDPS       (DX), Y2, Y0
	VADDPS       32(DX), Y2, Y1
	JMP          next

label:
	VBROADCASTSS (SI), Y2
	VADDPS       (DX), Y2, Y3
	VADDPS       32(DX), Y2, Y4
	VMINPS       Y3, Y0, Y0
	VMINPS       Y4, Y1, Y1

next:
	ADDQ    $4, SI
	SUBQ    $4, DX
	DECQ    AX
	JNZ     label
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	LEAQ    (DI)(R8*4), DI
	DECQ    CX
	JNZ     line
	VZEROUPPER
	RET

// func lowerAVX(dst, rows, penalty *float32, n, count, outputs int)
TEXT ·lowerAVX(SB), NOSPLIT, $0-48
	MOVQ outputs+40(FP), R10
	MOVQ dst+0(FP), DI
	MOVQ penalty+16(FP), BX

output:
	MOVQ DI, R11
	MOVQ rows+8(FP), SI
	MOVQ n+24(FP), CX
	MOVQ CX, R8
	SHLQ $2, R8

columns:
	MOVQ    SI, DX
	MOVQ    BX, R9
	MOVQ    count+32(FP), AX
	CMPQ    CX, $32
	JGE     wide
	VBROADCASTSS (R9), Y4
	VADDPS  (DX), Y4, Y0
	JMP     nextNarrow

narrow:
	VBROADCASTSS (R9), Y4
	VADDPS       (DX), Y4, Y5
	VMINPS       Y5, Y0, Y0

nextNarrow:
	ADDQ    R8, DX
	ADDQ    $4, R9
	DECQ    AX
	JNZ     narrow
	VMOVUPS Y0, (DI)
	SUBQ    $8, CX
	JLE     end
	ADDQ    $32, SI
	ADDQ    $32, DI

rest:
	CMPQ    CX, $8
	JGE     columns
	LEAQ    -8(CX), DX // the last vector does some columns again
	LEAQ    (SI)(DX*4), SI
	LEAQ    (DI)(DX*4), DI
	MOVQ    $8, CX
	JMP     columns

wide:
	VBROADCASTSS (R9), Y4
	VADDPS  (DX), Y4, Y0
	VADDPS  32(DX), Y4, Y1
	VADDPS  64(DX), Y4, Y2
	VADDPS  96(DX), Y4, Y3
	JMP     nextWide

wideRow:
	VBROADCASTSS (R9), Y4
	VADDPS       (DX), Y4, Y5
	VADDPS       32(DX), Y4, Y6
	VADDPS       64(DX), Y4, Y7
	VADDPS       96(DX), Y4, Y8
	VMINPS       Y5, Y0, Y0
	VMINPS       Y6, Y1, Y1
	VMINPS       Y7, Y2, Y2
	VMINPS       Y8, Y3, Y3

nextWide:
	ADDQ    R8, DX
	ADDQ    $4, R9
	DECQ    AX
	JNZ     wideRow
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	SUBQ    $32, CX
	JLE     end
	ADDQ    $128, SI
	ADDQ    $128, DI
	JMP     rest

end:
	LEAQ (R11)(R8*1), DI // the row of the next label, whose penalties begin one earlier
	SUBQ $4, BX
	DECQ R10
	JNZ  output
	VZEROUPPER
	RET

// func subtractAVX(dst, a, b *float32, n int)
TEXT ·subtractAVX(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	XORQ AX, AX

loop:
	VMOVUPS (SI)(AX*4), Y0
	VSUBPS  (DX)(AX*4), Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	ADDQ    $8, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET

// func lessAVX(dst, x *float32, least float32, n int)
TEXT ·lessAVX(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         x+8(FP), SI
	VBROADCASTSS least+16(FP), Y1
	MOVQ         n+24(FP), CX
	XORQ         AX, AX

loop:
	VMOVUPS (SI)(AX*4), Y0
	VSUBPS  Y1, Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	ADDQ    $8, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET

// func shareAVX(sum, x *float32, least, share float32, n int)
TEXT ·shareAVX(SB), NOSPLIT, $0-32
	MOVQ         sum+0(FP), DI
	MOVQ         x+8(FP), SI
	VBROADCASTSS least+16(FP), Y1
	VBROADCASTSS share+20(FP), Y2
	MOVQ         n+24(FP), CX
	XORQ         AX, AX

loop:
	VMOVUPS (SI)(AX*4), Y0
	VSUBPS  Y1, Y0, Y0
	VMULPS  Y0, Y2, Y0
	VADDPS  (DI)(AX*4), Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	ADDQ    $8, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET

// func leastAVX(lanes, x *float32, n int)
TEXT ·leastAVX(SB), NOSPLIT, $0-24
	MOVQ    lanes+0(FP), DI
	MOVQ    x+8(FP), SI
	MOVQ    n+16(FP), CX
	VMOVUPS (SI), Y0
	VMOVUPS (SI), Y1
	XORQ    AX, AX

loop:
	VMINPS (SI)(AX*4), Y0, Y0
	VMINPS 32(SI)(AX*4), Y1, Y1
	ADDQ   $16, AX
	CMPQ   AX, CX
	JLT    loop
	VMINPS  Y1, Y0, Y0
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET
