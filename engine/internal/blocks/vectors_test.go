package blocks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/guard"
	"github.com/morphseek/morphseek/engine/internal/mind"
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
	if !cpu.AVX2() {
		t.Skip("no such vectors on this processor")
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, width := range []int{3, 5, 7, 8, 9, 11, 13, 15, 16, 17} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			square, labels := width*width, width*width*width
			src, penalty := randomCosts(labels+beyond, 1<<16, r), randomCosts(2*width-1+lanes, 1<<16, r)
			run := func() (lines, row, plane []uint16) {
				lines, row, plane = guard.Slice(t, make([]uint16, labels+lanes)), guard.Slice(t, make([]uint16, square+beyond)), guard.Slice(t, make([]uint16, labels+beyond))
				lowerRows(lines, src, penalty, width, square)
				lower(row, src, penalty, width, width)
				lower(plane, src, penalty, square, width)
				return lines[:labels], row[:square], plane[:labels]
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

// Sums, differences and the least.
func TestRowsByVectorsMatchLoops(t *testing.T) {
	if !cpu.AVX2() {
		t.Skip("no such vectors on this processor")
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{16, 32, 128, 1344} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			a, b := randomCosts(n, 1<<16, r), randomCosts(n, 1<<16, r)
			run := func() (out [][]uint16) {
				for range 4 {
					out = append(out, guard.Slice(t, slices.Clone(a)))
				}
				add(out[0], a, b)
				subtract(out[1], a, b)
				capped(out[2], b, leastOf(b[:n-3]))
				addAbove(out[3], b, leastOf(b), 3000)
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

// Known voxels and others, channels of any value, and a number that no vector has.
func TestDescriptorsByVectorsMatchLoop(t *testing.T) {
	if !cpu.AVX2() {
		t.Skip("no such vectors on this processor")
	}
	const n = 8*40 + 3
	r := rand.New(rand.NewPCG(9, 10))
	channels, valid := make([]float32, mind.Channels*n), make([]float32, n)
	for i := range channels {
		channels[i] = r.Float32()
	}
	for i := range valid {
		valid[i] = float32(r.IntN(3)) / 2
	}
	run := func() []Descriptor {
		codes := guard.Slice(t, make([]Descriptor, n))
		pack(codes, channels, n, valid)
		return codes
	}
	got := run()
	defer cpu.Disable()()
	if !slices.Equal(got, run()) {
		t.Error("descriptors differ")
	}
}
