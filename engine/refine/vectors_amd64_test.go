package refine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// Without the processor's vectors the Go loops run: the same bits.
func TestVectorsMatchLoops(t *testing.T) {
	if !cpu.X86.HasAVX2 {
		t.Skip("no AVX2")
	}
	for _, size := range [][3]int{{21, 18, 16}, {24, 9, 10}, {7, 12, 12}} {
		g := volume.Geometry{Size: size, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity}
		fixed, moving, mask := volume.Zeros(g), volume.Zeros(g), volume.Zeros(g)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range fixed.Data {
			fixed.Data[i], moving.Data[i] = r.Float32(), r.Float32()
			if r.IntN(20) > 0 {
				mask.Data[i] = 1
			}
		}
		u, step := wave(g, 2), field.New(g)
		for i := range step.Data {
			step.Data[i] = r.Float32() - 0.5
		}
		im := Pair{Fixed: fixed, Moving: moving, MovingMask: mask, Initial: volume.IdentityAffine()}.At(g, margin, 1)
		for _, name := range []Similarity{NCC, MIND} {
			run := func(vectors bool) (value float64, longest float32, force []float32) {
				defer func(avx, avx2 bool) { cpu.X86.HasAVX, cpu.X86.HasAVX2 = avx, avx2 }(cpu.X86.HasAVX, cpu.X86.HasAVX2)
				s, err := newSimilarity(name, im, 1)
				if err != nil {
					t.Fatal(err)
				}
				cpu.X86.HasAVX, cpu.X86.HasAVX2 = vectors, vectors
				f := field.New(g)
				s.validate(u)
				value = s.force(f, field.New(g), u)
				for r := range size[1] * size[2] {
					row := [][]float32{step.X[r*size[0]:][:size[0]], step.Y[r*size[0]:][:size[0]], step.Z[r*size[0]:][:size[0]]}
					longest = max(longest, longestSquare(row))
				}
				return value, longest, f.Data
			}
			value, longest, force := run(true)
			wantValue, wantLongest, wantForce := run(false)
			if value != wantValue || longest != wantLongest || !slices.Equal(force, wantForce) {
				t.Errorf("%s, size %v: similarity %g, longest square %g; by loops %g, %g; forces equal: %v",
					name, size, value, longest, wantValue, wantLongest, slices.Equal(force, wantForce))
			}
		}
	}
}
