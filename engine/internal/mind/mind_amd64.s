//go:build !noasm

#include "textflag.h"

// Eight voxels at a time; the channels of a voxel are step bytes apart. Products are rounded before they are added, as the Go
// loops do it: the same bits.

DATA constants<>+0(SB)/4, $12.0
DATA constants<>+4(SB)/4, $0xbfb8aa3b  // -log2 e
DATA constants<>+8(SB)/4, $-126.0
DATA constants<>+12(SB)/4, $0.5
DATA constants<>+16(SB)/4, $0x3f317218 // ln 2
DATA constants<>+20(SB)/4, $0x3ab60b61 // 1/720
DATA constants<>+24(SB)/4, $0x3c088889 // 1/120
DATA constants<>+28(SB)/4, $0x3d2aaaab // 1/24
DATA constants<>+32(SB)/4, $0x3e2aaaab // 1/6
DATA constants<>+36(SB)/4, $1.0
DATA constants<>+40(SB)/4, $127
GLOBL constants<>(SB), RODATA|NOPTR, $44

#define CONSTANT(k, y) VBROADCASTSS constants<>+k(SB), y

// func contrastAVX2(out, variance *float32, step, n int)
TEXT ·contrastAVX2(SB), NOSPLIT, $0-32
	MOVQ   out+0(FP), DI
	MOVQ   variance+8(FP), DX
	MOVQ   step+16(FP), R8
	MOVQ   n+24(FP), CX
	VXORPS Y15, Y15, Y15
	CONSTANT(0, Y14)

loop:
	VMOVUPS (DI), Y0 // the least
	VXORPS  Y1, Y1, Y1 // the sum
	MOVQ    DI, SI
	MOVQ    $12, AX

sum:
	VMOVUPS (SI), Y2
	VMINPS  Y2, Y0, Y0
	VADDPS  Y2, Y1, Y1
	ADDQ    R8, SI
	DECQ    AX
	JNZ     sum
	MOVQ    DI, SI
	MOVQ    $12, AX

less:
	VMOVUPS (SI), Y2
	VSUBPS  Y0, Y2, Y2
	VMOVUPS Y2, (SI)
	ADDQ    R8, SI
	DECQ    AX
	JNZ     less

	VDIVPS  Y14, Y1, Y1
	VSUBPS  Y0, Y1, Y1
	VMAXPS  Y15, Y1, Y1
	VMOVUPS Y1, (DX)
	ADDQ    $32, DI
	ADDQ    $32, DX
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// func decayAVX2(out, variance *float32, step, n int, floor, ceiling float32)
TEXT ·decayAVX2(SB), NOSPLIT, $0-40
	MOVQ         out+0(FP), DI
	MOVQ         variance+8(FP), DX
	MOVQ         step+16(FP), R8
	MOVQ         n+24(FP), CX
	CONSTANT(4, Y15)
	CONSTANT(8, Y14)
	CONSTANT(12, Y13)
	CONSTANT(16, Y12)
	CONSTANT(20, Y11)
	CONSTANT(24, Y10)
	CONSTANT(28, Y9)
	CONSTANT(32, Y8)
	CONSTANT(36, Y7)

loop:
	VMOVUPS      (DX), Y0
	VBROADCASTSS floor+32(FP), Y1
	VMAXPS       Y1, Y0, Y0
	VBROADCASTSS ceiling+36(FP), Y1
	VMINPS       Y1, Y0, Y0
	MOVQ         DI, SI
	MOVQ         $12, AX

channel:
	VMOVUPS    (SI), Y1
	VDIVPS     Y0, Y1, Y1
	VMULPS     Y15, Y1, Y1     // t
	VCMPPS     $13, Y14, Y1, Y2 // t >= -126
	VSUBPS     Y13, Y1, Y3
	VCVTTPS2DQ Y3, Y3          // k
	VCVTDQ2PS  Y3, Y4
	VSUBPS     Y4, Y1, Y1
	VMULPS     Y12, Y1, Y1     // f
	VMULPS     Y11, Y1, Y4
	VADDPS     Y10, Y4, Y4
	VMULPS     Y4, Y1, Y4
	VADDPS     Y9, Y4, Y4
	VMULPS     Y4, Y1, Y4
	VADDPS     Y8, Y4, Y4
	VMULPS     Y4, Y1, Y4
	VADDPS     Y13, Y4, Y4
	VMULPS     Y4, Y1, Y4
	VADDPS     Y7, Y4, Y4
	VMULPS     Y4, Y1, Y4
	VADDPS     Y7, Y4, Y4      // p
	VPBROADCASTD constants<>+40(SB), Y5
	VPADDD     Y5, Y3, Y3
	VPSLLD     $23, Y3, Y3
	VMULPS     Y3, Y4, Y4
	VANDPS     Y2, Y4, Y4
	VMOVUPS    Y4, (SI)
	ADDQ       R8, SI
	DECQ       AX
	JNZ        channel

	ADDQ       $32, DI
	ADDQ       $32, DX
	SUBQ       $8, CX
	JNZ        loop
	VZEROUPPER
	RET
