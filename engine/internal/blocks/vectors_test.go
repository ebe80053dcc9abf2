package blocks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/guard"
	"github.com/morphseek/morphseek/engine/volume"
)

// Without vectors the Go loop runs: the same costs.
func TestCostsByVectorsMatchLoop(t *testing.T) {
	if !cpu.AVX2() {
		t.Skip("no such vectors on this processor")
	}
	r := rand.New(rand.NewPCG(1, 1))
	codes := func(size [3]int, margin int) []Descriptor {
		out := make([]Descriptor, (size[0]+2*margin)*(size[1]+2*margin)*(size[2]+2*margin))
		for i := range out {
			if r.IntN(5) > 0 {
				out[i] = Descriptor{r.Uint64(), r.Uint64() | known}
			}
		}
		return out
	}
	for _, l := range []Level{{6, 5, 2, 36}, {5, 5, 1, 36}, {3, 2, 1, 12}, rounds[1].level} {
		t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) {
			size := [3]int{17, 14, 12}
			grid := volume.Geometry{Size: size, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity}
			s := &Step{Level: l, Grid: grid, Margin: l.Reach(), Threads: 1,
				Fixed: codes(size, 0), Moving: codes(size, l.Reach()), Image: make([]float32, size[0]*size[1]*size[2])}
			run := func(vectors bool) []float32 {
				if !vectors {
					defer cpu.Disable()()
				}
				p, control := newPatch(s, s.byPhase()), s.Control(s.Grid)
				width := 2*l.Radius + 1
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
		})
	}
}

// Lines and rows of any length that a level has, and what is near them stays as it was.
func TestLowerByVectorsMatchesLoop(t *testing.T) {
	if !cpu.AVX() {
		t.Skip("no vectors on this processor")
	}
	r := rand.New(rand.NewPCG(5, 6))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	for _, width := range []int{3, 5, 7, 8, 9, 11, 13, 15, 16, 17} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			src, penalty := random(width*width*width), random(2*width-1+vectorPad)
			run := func() (lines, row, plane []float32) {
				lines = guard.Slice(t, make([]float32, len(src)))
				lowerRows(lines, src, penalty, width)
				row, plane = guard.Slice(t, make([]float32, width*width)), guard.Slice(t, make([]float32, len(src)))
				lower(row, src, penalty, width, width)
				lower(plane, src, penalty, width*width, width)
				return lines, row, plane
			}
			lines, row, plane := run()
			restore := cpu.Disable()
			wantLines, wantRow, wantPlane := run()
			restore()
			if !slices.Equal(lines, wantLines) {
				t.Errorf("width %d: lines differ", width)
			}
			if !slices.Equal(row, wantRow) || !slices.Equal(plane, wantPlane) {
				t.Errorf("width %d: rows differ", width)
			}
		})
	}
}

// Sums, differences and the least, of any length.
func TestRowsByVectorsMatchLoops(t *testing.T) {
	if !cpu.AVX() {
		t.Skip("no vectors on this processor")
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{1, 7, 8, 15, 16, 17, 33, 125} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			a, b := make([]float32, n), make([]float32, n)
			for i := range a {
				a[i], b[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
			}
			run := func() (out [][]float32) {
				for range 4 {
					out = append(out, guard.Slice(t, slices.Clone(a)))
				}
				filter.Add(out[0], b)
				subtract(out[1], a, b)
				less(out[2], b, leastOf(a))
				addShare(out[3], b, leastOf(b), 0.3)
				return out
			}
			got := run()
			restore := cpu.Disable()
			want := run()
			restore()
			for k := range got {
				if !slices.Equal(got[k], want[k]) {
					t.Errorf("operation %d of %d values differs", k, n)
				}
			}
		})
	}
}
