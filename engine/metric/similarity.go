// Package metric measures how well two images or label maps agree. Images are compared voxel by voxel and must lie on
// one grid; masks may be nil (all voxels) and select where they are not zero. No figure depends on the number of
// threads.
package metric

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// grain is the chunk length, in voxels, of the reductions here.
const grain = 1 << 16

func selected(mask *volume.Volume, i int) bool { return mask == nil || mask.Data[i] != 0 }

// NormalizedMutualInformation returns Studholme's (H(A)+H(B))/H(A,B), from the joint histogram over the mask with bins
// equal bins between each image's least and greatest selected voxel (numpy's histogram2d). It is 1 for independent
// images.
func NormalizedMutualInformation(a, b, mask *volume.Volume, bins, threads int) float64 {
	type span struct{ loA, hiA, loB, hiB float32 }
	inf := float32(math.Inf(1))
	empty := span{inf, -inf, inf, -inf}
	r := parallel.Reduce(len(a.Data), grain, threads, func(lo, hi int) span {
		s := empty
		for i := lo; i < hi; i++ {
			if selected(mask, i) {
				s.loA, s.hiA = min(s.loA, a.Data[i]), max(s.hiA, a.Data[i])
				s.loB, s.hiB = min(s.loB, b.Data[i]), max(s.hiB, b.Data[i])
			}
		}
		return s
	}, func(s, t span) span {
		return span{min(s.loA, t.loA), max(s.hiA, t.hiA), min(s.loB, t.loB), max(s.hiB, t.hiB)}
	})
	if !(r.loA < r.hiA && r.loB < r.hiB) {
		return 1 // a constant image tells nothing
	}
	bin := func(x, lo, hi float32) int {
		return min(int((float64(x)-float64(lo))/(float64(hi)-float64(lo))*float64(bins)), bins-1)
	}
	joint := parallel.Reduce(len(a.Data), 1<<20, threads, func(lo, hi int) []int {
		h := make([]int, bins*bins)
		for i := lo; i < hi; i++ {
			if selected(mask, i) {
				h[bin(a.Data[i], r.loA, r.hiA)*bins+bin(b.Data[i], r.loB, r.hiB)]++
			}
		}
		return h
	}, func(s, t []int) []int {
		for i := range s {
			s[i] += t[i]
		}
		return s
	})
	total := 0
	inA, inB := make([]int, bins), make([]int, bins)
	for i, n := range joint {
		total += n
		inA[i/bins] += n
		inB[i%bins] += n
	}
	hA, hB, hAB := entropy(inA, total), entropy(inB, total), entropy(joint, total)
	return (hA + hB) / hAB
}

// entropy returns the entropy, in nats, of a histogram whose counts add up to total.
func entropy(counts []int, total int) (h float64) {
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(total)
			h -= float64(p * math.Log(p))
		}
	}
	return h
}
