package search

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/morphseek/morphseek/engine/volume"
)

// Without vectors that count bits the Go loop runs: the same costs.
func TestCostsByVectorsMatchLoop(t *testing.T) {
	if !cpu.X86.HasAVX512VPOPCNTDQ {
		t.Skip("the processor does not count bits in vectors")
	}
	r := rand.New(rand.NewPCG(1, 1))
	codes := func(size [3]int, margin int) []uint64 {
		out := make([]uint64, (size[0]+2*margin)*(size[1]+2*margin)*(size[2]+2*margin))
		for i := range out {
			if out[i] = r.Uint64() >> 4; r.IntN(5) == 0 {
				out[i] = unknown
			}
		}
		return out
	}
	for _, l := range append(slices.Clone(levels), rounds[1].level) {
		size := [3]int{17, 14, 12}
		s := &step{level: l, grid: volume.Geometry{Size: size, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity}, margin: l.reach(), threads: 1,
			fixed: codes(size, 0), moving: codes(size, l.reach()), image: make([]float32, size[0]*size[1]*size[2])}
		run := func(vectors bool) []float32 {
			defer func(has bool) { cpu.X86.HasAVX512VPOPCNTDQ = has }(cpu.X86.HasAVX512VPOPCNTDQ)
			cpu.X86.HasAVX512VPOPCNTDQ = vectors
			p, control := newPatch(s, s.byPhase()), s.control()
			width := 2*l.radius + 1
			labels := width * width * width
			out := make([]float32, control.Voxels()*labels)
			for node := range control.Voxels() {
				p.costs(out[node*labels:(node+1)*labels], control.Size, node)
			}
			return out
		}
		if !slices.Equal(run(true), run(false)) {
			t.Errorf("level %v: costs differ", l)
		}
	}
}
