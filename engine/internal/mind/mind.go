// Package mind describes a voxel by the self-similarity of its surroundings, which compares across contrasts.
package mind

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Channels is how many descriptors a voxel has.
const Channels = 12

// Kernel says what a voxel is compared by.
type Kernel struct {
	Dilation int     // how far the patches lie from the voxel
	Least    float64 // the variance that a voxel has at least, over the image's mean: Published or Steady
}

// Published is the least variance of the authors' code. By Steady noise of a thousandth of the range does not decide how a
// region without structure looks (RATIONALE.md, Steadiness).
const (
	Published = 0.001
	Steady    = 0.01
)

// highest is the variance that a voxel has at most, over the image's mean.
const highest = 1000

// patch is the radius of the patches: cubes of three voxels a side.
const patch = 1

// grain is the chunk length, in voxels, of the loops here.
const grain = 1 << 16

// difference is a mean squared difference between the image and itself moved by step times the dilation (x, y, z). Two
// channels read it, at their own places.
type difference struct {
	step  [3]int
	reads [2]channel
}

// channel is one of the twelve pairs of face neighbours at a distance of sqrt(2), whose patches MIND-SSC compares: the
// neighbour that the other lies step from. Channels are numbered as in the authors' published code.
type channel struct {
	index     int
	neighbour [3]int
}

var differences = []difference{
	{[3]int{0, 1, 1}, [2]channel{{0, [3]int{0, -1, 0}}, {1, [3]int{0, 0, -1}}}},
	{[3]int{0, -1, 1}, [2]channel{{2, [3]int{0, 0, -1}}, {3, [3]int{0, 1, 0}}}},
	{[3]int{1, -1, 0}, [2]channel{{4, [3]int{-1, 0, 0}}, {5, [3]int{0, 1, 0}}}},
	{[3]int{-1, 0, 1}, [2]channel{{6, [3]int{0, 0, -1}}, {7, [3]int{1, 0, 0}}}},
	{[3]int{1, 1, 0}, [2]channel{{8, [3]int{-1, 0, 0}}, {9, [3]int{0, -1, 0}}}},
	{[3]int{1, 0, 1}, [2]channel{{10, [3]int{-1, 0, 0}}, {11, [3]int{0, 0, -1}}}},
}

// Describe returns MIND-SSC, the self-similarity context of Heinrich et al. (MICCAI 2013): twelve descriptors in 0..1 a
// voxel that compare across modalities as they are. data is a volume of the given size (x, y, z), all finite; the
// result holds the channels one behind the other, each a volume of that size (a tensor of shape (12, z, y, x)).
//
// Each channel is exp(-(d - dmin)/v): d the mean squared difference between the kernel's patches around two neighbours,
// dmin the least of the twelve, v their mean after that subtraction, kept between k.Least and 1000 times its own mean over
// the voxels where valid is not zero (nil: all): what lies beyond an image must not decide how its descriptors look.
// Beyond its border the image repeats.
func Describe(data, valid []float32, size [3]int, k Kernel, threads int) []float32 {
	out := make([]float32, Channels*len(data))
	DescribeTo(out, data, valid, size, k, threads)
	return out
}

// DescribeTo is Describe into out.
func DescribeTo(out, data, valid []float32, size [3]int, k Kernel, threads int) {
	n := len(data)
	grown, margin := size, [3]int{k.Dilation, k.Dilation, k.Dilation} // so far the neighbours lie beyond the image
	if size[2] == 1 {
		margin[2] = 0
	}
	for a := range grown {
		grown[a] += 2 * margin[a]
	}
	for _, d := range differences {
		filter.Mean(grown, patch, 1, threads, func(y, z int, rows [][]float32) {
			squaredDifference(rows[0], data, size, margin, d.step, y-margin[1], z-margin[2])
		}, func(y, z int, rows [][]float32) {
			for _, c := range d.reads {
				x, y, z := margin[0]+margin[0]*c.neighbour[0], y-margin[1]-margin[1]*c.neighbour[1], z-margin[2]-margin[2]*c.neighbour[2]
				if y >= 0 && y < size[1] && z >= 0 && z < size[2] {
					copy(out[c.index*n+(z*size[1]+y)*size[0]:][:size[0]], rows[0][x:])
				}
			}
		})
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
	floor, ceiling := float32(mean*k.Least), float32(mean*highest)
	parallel.For(n, grain, threads, func(lo, hi int) {
		describe(out[lo:], variance[lo:hi], n, floor, ceiling)
	})
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
				out[c*step+i] = Decay(out[c*step+i] / v)
			} else {
				out[c*step+i] = 1
			}
		}
	}
}

// Decay returns exp(-x) for x >= 0, to 1e-6 of 1: twelve a voxel make math.Exp the greater part of the descriptors'
// time.
func Decay(x float32) float32 {
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

// squaredDifference writes (I(p + margin*step) - I(p))^2 for the points p = (x, y, z) of one row, x from -margin on. Beyond its
// border the image I repeats.
func squaredDifference(out, data []float32, size, margin, step [3]int, y, z int) {
	nx := size[0]
	row := func(y, z int) []float32 {
		return data[(min(max(z, 0), size[2]-1)*size[1]+min(max(y, 0), size[1]-1))*nx:][:nx]
	}
	here, there := row(y, z), row(y+margin[1]*step[1], z+margin[2]*step[2])
	first := -margin[0]
	along := margin[0] * step[0]
	at := func(x int) int { return min(max(x, 0), nx-1) }
	rim := func(from, to int) {
		for i := from; i < to; i++ {
			d := there[at(first+i+along)] - here[at(first+i)]
			out[i] = d * d
		}
	}
	lo, hi := min(2*margin[0], len(out)), max(len(out)-2*margin[0], 0)
	if lo >= hi {
		rim(0, len(out))
		return
	}
	rim(0, lo)
	a, b := here[lo+first:hi+first], there[lo+first+along:hi+first+along]
	for i, x := range b {
		d := x - a[i]
		out[lo+i] = d * d
	}
	rim(hi, len(out))
}
