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

// Mean returns the mean score; NaN of none.
func Mean(scores []LabelScore) float64 {
	total := 0.0
	for _, s := range scores {
		total += s.Score
	}
	return total / float64(len(scores))
}

// Dice returns 2|A&B| / (|A|+|B|) of every label but 0 that occurs in a or b, in ascending order. Labels are rounded to the
// nearest integer. The maps must lie on one grid.
func Dice(a, b *volume.Volume, threads int) []LabelScore {
	type count struct{ a, b, both int }
	counts := parallel.Reduce(len(a.Data), grain, threads, func(lo, hi int) map[int]*count {
		m := map[int]*count{}
		get := func(l int) *count {
			if m[l] == nil {
				m[l] = &count{}
			}
			return m[l]
		}
		for i := lo; i < hi; i++ {
			la, lb := label(a.Data[i]), label(b.Data[i])
			if la == 0 && lb == 0 {
				continue
			}
			get(la).a++
			get(lb).b++
			if la == lb {
				get(la).both++
			}
		}
		return m
	}, func(s, t map[int]*count) map[int]*count {
		for l, c := range t {
			if s[l] == nil {
				s[l] = c
				continue
			}
			s[l].a += c.a
			s[l].b += c.b
			s[l].both += c.both
		}
		return s
	})
	var scores []LabelScore
	for l, c := range counts {
		if l != 0 {
			scores = append(scores, LabelScore{l, 2 * float64(c.both) / float64(c.a+c.b)})
		}
	}
	slices.SortFunc(scores, func(s, t LabelScore) int { return s.Label - t.Label })
	return scores
}

// label rounds a voxel of a label map.
func label(x float32) int { return int(math.Round(float64(x))) }

// TRE returns the distance in mm between every point of got and its partner in want; LPS mm, x, y, z interleaved.
func TRE(got, want []float64) []float64 {
	d := make([]float64, len(got)/3)
	for i := range d {
		x, y, z := got[3*i]-want[3*i], got[3*i+1]-want[3*i+1], got[3*i+2]-want[3*i+2]
		d[i] = math.Sqrt(x*x + y*y + z*z)
	}
	return d
}
