package metric

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// LabelScore is a score of one label.
type LabelScore struct {
	Label int
	Score float64
}

// Dice returns 2|A&B| / (|A|+|B|) of every label but 0 that occurs in a or b, in ascending order. The maps must lie on one
// grid.
func Dice(a, b *volume.Volume, threads int) []LabelScore {
	type pair struct{ a, b int }
	pairs := parallel.Reduce(len(a.Data), grain, threads, func(lo, hi int) map[pair]int {
		m := map[pair]int{}
		x, y, run := a.Data[lo], b.Data[lo], 0 // labels come in runs
		for i := lo; i < hi; i++ {
			if p, q := a.Data[i], b.Data[i]; p != x || q != y {
				m[pair{label(x), label(y)}] += run
				x, y, run = p, q, 0
			}
			run++
		}
		m[pair{label(x), label(y)}] += run
		return m
	}, func(s, t map[pair]int) map[pair]int {
		for p, n := range t {
			s[p] += n
		}
		return s
	})
	sizes, both := map[int]int{}, map[int]int{}
	for p, n := range pairs {
		sizes[p.a] += n
		sizes[p.b] += n
		if p.a == p.b {
			both[p.a] += n
		}
	}
	var scores []LabelScore
	for l, n := range sizes {
		if l != 0 {
			scores = append(scores, LabelScore{l, 2 * float64(both[l]) / float64(n)})
		}
	}
	sortByLabel(scores)
	return scores
}

func sortByLabel(scores []LabelScore) {
	slices.SortFunc(scores, func(s, t LabelScore) int { return s.Label - t.Label })
}

// label rounds a voxel of a label map to the nearest integer; what is not finite counts as background.
func label(x float32) int {
	if !volume.IsFinite(x) {
		return 0
	}
	return int(math.Floor(float64(x) + 0.5))
}

// TRE returns the distance in mm between every point of got and its partner in want; LPS mm, x, y, z interleaved.
func TRE(got, want []float64) []float64 {
	d := make([]float64, len(got)/3)
	for i := range d {
		x, y, z := got[3*i]-want[3*i], got[3*i+1]-want[3*i+1], got[3*i+2]-want[3*i+2]
		d[i] = math.Sqrt(float64(x*x) + float64(y*y) + float64(z*z))
	}
	return d
}
