package refine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/guard"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// Without the processor's vectors the Go loops run: the same bits.
func TestVectorsMatchLoops(t *testing.T) {
	if !cpu.AVX2() {
		t.Skip("no vectors on this processor")
	}
	for _, size := range [][3]int{{21, 18, 16}, {24, 9, 10}, {7, 12, 12}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			g := testkit.Grid(size)
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
			im := aligned.Pair{Fixed: fixed, Moving: moving, MovingMask: mask, Initial: volume.IdentityAffine()}.At(g, margin, aligned.ZeroEdge, 1)
			for _, name := range []Similarity{NCC, MIND} {
				run := func(vectors bool) (value float64, longest float32, force []float32) {
					s := testkit.Must(newSimilarity(name, im, 1))(t)
					if !vectors {
						defer cpu.Disable()()
					}
					f := guarded(t, g)
					switch s := s.(type) {
					case *ncc:
						s.warped = guard.Slice(t, s.warped)
					case *ssd:
						s.warped = guard.Slice(t, s.warped)
					}
					s.validate(u)
					value = s.force(f, u, unheard)
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
		})
	}
}

// guarded is a field of zeros whose components stand between guard words.
func guarded(t *testing.T, g volume.Geometry) *field.Field {
	f := field.New(g)
	f.X, f.Y, f.Z = guard.Slice(t, f.X), guard.Slice(t, f.Y), guard.Slice(t, f.Z)
	return f
}

// Rows of any length, and what is near them stays as it was.
func TestRowsByVectorsMatchLoops(t *testing.T) {
	if !cpu.AVX2() {
		t.Skip("no vectors on this processor")
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 7, 8, 9, 16, 23, 64, 67} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			random := func() []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = r.Float32()
				}
				return x
			}
			g := testkit.Grid([3]int{n, 1, 1})
			fixed, warped, overN, meanF, overB, sums := random(), random(), random(), random(), random(), [][]float32{random(), random(), random()}
			overN[n/2] = 0
			got, want := cpu.Both(func() [][]float32 {
				s := &ncc{Images: aligned.Images{Fixed: &volume.Volume{Geometry: g, Data: fixed}}, warped: warped, overN: overN, meanF: meanF, overB: overB, sums: make([]float64, 1)}
				row := func(values []float32) []float32 { return guard.Slice(t, values) }
				moments := [][]float32{row(sums[0]), row(sums[1]), row(sums[2])}
				s.moments(0, 0, moments)
				for k := range s.terms {
					s.terms[k] = row(make([]float32, n))
				}
				first := row(sums[0])
				s.correlate(0, 0, [][]float32{first, sums[1], sums[2]})
				return append(append(moments, s.terms[:]...), first)
			})
			for k := range got {
				if !slices.Equal(got[k], want[k]) {
					t.Errorf("row %d differs, of the moments and the correlation", k)
				}
			}
		})
	}
}
