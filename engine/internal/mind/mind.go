// Package mind describes a voxel by the self-similarity of its surroundings, which compares across contrasts.
package mind

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Channels is how many descriptors a voxel has.
const Channels = 12

// grain is the chunk length, in voxels, of the loops here.
const grain = 1 << 16

// pairs are the twelve pairs of face neighbours (x, y, z) at a distance of sqrt(2), whose patches MIND-SSC compares, in
// the order of the authors' published code.
var pairs = [Channels][2][3]int{
	{{0, 0, 1}, {0, -1, 0}},
	{{0, 1, 0}, {0, 0, -1}},
	{{0, -1, 0}, {0, 0, -1}},
	{{0, 1, 0}, {0, 0, 1}},
	{{0, -1, 0}, {-1, 0, 0}},
	{{0, 1, 0}, {1, 0, 0}},
	{{-1, 0, 0}, {0, 0, -1}},
	{{0, 0, 1}, {1, 0, 0}},
	{{0, 1, 0}, {-1, 0, 0}},
	{{1, 0, 0}, {0, -1, 0}},
	{{0, 0, 1}, {-1, 0, 0}},
	{{1, 0, 0}, {0, 0, -1}},
}

// Describe returns MIND-SSC, the self-similarity context of Heinrich et al. (MICCAI 2013): twelve descriptors in 0..1 a
// voxel that compare across modalities as they are. data is a volume of the given size (x, y, z), all finite; the
// result holds the channels one behind the other, each a volume of that size (a tensor of shape (12, z, y, x)).
//
// Each channel is exp(-(d - dmin)/v): d the mean squared difference over cubes of 2*radius+1 voxels around two
// neighbours at the distance dilation, dmin the least of the twelve, v their mean after that subtraction, kept within a
// factor of 1000 of its own mean over the voxels where valid is not zero (nil: all): what lies beyond an image must not
// decide how its descriptors look. At the border the image repeats.
func Describe(data, valid []float32, size [3]int, radius, dilation, threads int) []float32 {
	n := len(data)
	out := make([]float32, Channels*n)
	for c, pair := range pairs {
		filter.Mean(size, radius, 1, threads, func(y, z int, rows [][]float32) {
			squaredDifference(rows[0], data, size, pair, dilation, y, z)
		}, filter.To(size, out[c*n:(c+1)*n]))
	}

	variance := make([]float32, n)
	type total struct {
		sum    float64
		voxels int
	}
	t := parallel.Reduce(n, grain, threads, func(lo, hi int) (t total) {
		contrast(out[lo:], variance[lo:hi], n)
		for i, v := range variance[lo:hi] {
			if valid == nil || valid[lo+i] != 0 {
				t.sum += float64(v)
				t.voxels++
			}
		}
		return t
	}, func(a, b total) total { return total{a.sum + b.sum, a.voxels + b.voxels} })
	mean := t.sum / float64(max(t.voxels, 1))
	floor, ceiling := float32(mean*1e-3), float32(mean*1e3)
	parallel.For(n, grain, threads, func(lo, hi int) {
		describe(out[lo:], variance[lo:hi], n, floor, ceiling)
	})
	return out
}

// contrast takes from the first voxels of out, whose channels are step apart, the least of their channels, and writes
// the mean of what is left.
func contrast(out, variance []float32, step int) {
	for i := contrastVector(out, variance, step); i < len(variance); i++ {
		least, total := out[i], float32(0)
		for c := range Channels {
			d := out[c*step+i]
			least = min(least, d)
			total += d
		}
		for c := range Channels {
			out[c*step+i] -= least
		}
		variance[i] = max(total/Channels-least, 0)
	}
}

// describe turns what contrast left into descriptors.
func describe(out, variance []float32, step int, floor, ceiling float32) {
	for i := decayVector(out, variance, step, floor, ceiling); i < len(variance); i++ {
		v := min(max(variance[i], floor), ceiling)
		for c := range Channels {
			if v > 0 { // zero only where the whole volume is constant: d is 0 there
				out[c*step+i] = decay(out[c*step+i] / v)
			} else {
				out[c*step+i] = 1
			}
		}
	}
}

// decay returns exp(-x) for x >= 0, to 1e-6 of 1: twelve a voxel make math.Exp the greater part of the descriptors'
// time.
func decay(x float32) float32 {
	t := float32(-math.Log2E * x)
	if t < -126 {
		return 0
	}
	k := int32(t - 0.5)
	f := math.Ln2 * (t - float32(k)) // -ln 2 / 2 .. ln 2 / 2
	p := float32(1./120) + float32(f*(1./720))
	p = 1./24 + float32(f*p)
	p = 1./6 + float32(f*p)
	p = 1./2 + float32(f*p)
	p = 1 + float32(f*p)
	p = 1 + float32(f*p)
	return p * math.Float32frombits(uint32(k+127)<<23)
}

// squaredDifference writes (I(p + dilation*pair[0]) - I(p + dilation*pair[1]))^2 for the points p of one row, with the
// border repeated.
func squaredDifference(out, data []float32, size [3]int, pair [2][3]int, dilation, y, z int) {
	nx := size[0]
	at := func(p, offset, n int) int { return min(max(p+dilation*offset, 0), n-1) }
	row := func(o [3]int) []float32 {
		r := at(z, o[2], size[2])*size[1] + at(y, o[1], size[1])
		return data[r*nx : (r+1)*nx]
	}
	a, b := row(pair[0]), row(pair[1])
	ax, bx := pair[0][0], pair[1][0]
	if ax == 0 && bx == 0 {
		for x := range out {
			d := a[x] - b[x]
			out[x] = d * d
		}
		return
	}
	for x := range out {
		d := a[at(x, ax, nx)] - b[at(x, bx, nx)]
		out[x] = d * d
	}
}
