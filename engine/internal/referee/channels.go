package referee

import (
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/volume"
)

// channel is a channel of the pair: a referee of its images, or two label maps.
type channel struct {
	weight        float64
	images        *Referee
	fixed, moving *volume.Volume // labels, on grids of their own
	labels        int
}

func channelsOf(pair aligned.Pair, threads int) (out []channel) {
	for _, c := range pair.Channels {
		one := channel{weight: c.Weight}
		if c.Labels > 0 {
			one.fixed, one.moving, one.labels = c.Fixed, c.Moving, c.Labels
		} else {
			one.images = New(c.Under(pair.Initial), threads)
		}
		out = append(out, one)
	}
	return out
}

// seen is a candidate measured in a channel.
type seen struct {
	images State
	apart  float64 // 1 less the mean of the labels' Jaccard indices
}

// lookAt measures a candidate in the channels.
func (r *Referee) lookAt(initial volume.Affine, deform *field.Field) (out []seen) {
	for _, c := range r.channels {
		if c.images != nil {
			out = append(out, seen{images: c.images.Look(initial, deform)})
			continue
		}
		grid := thinned(c.fixed.Geometry, most[c.fixed.Axes()])
		ours := c.fixed.Resample(grid, volume.IdentityAffine(), volume.Nearest, 0, r.threads).Data
		theirs := field.Total(initial, deform, grid, r.threads).Warp(c.moving, volume.Nearest, 0, r.threads).Data
		out = append(out, seen{apart: apart(ours, theirs, c.labels)})
	}
	return out
}

// apart is 1 less the mean of the Jaccard indices of the labels 1 to n. Each counts alike, however large it is.
func apart(a, b []float32, n int) float64 {
	either, both := make([]int, n+1), make([]int, n+1)
	for i, l := range a {
		k, other := int(l), int(b[i])
		either[k]++
		if k == other {
			both[k]++
		} else {
			either[other]++
		}
	}
	sum := 0.0
	for k := 1; k <= n; k++ {
		if either[k] > 0 { // a small one may lie between the voxels
			sum += 1 - float64(both[k])/float64(either[k])
		}
	}
	return sum / float64(n)
}

// withChannels makes a margin of the pair's images, which count own, the mean of theirs and the channels', by their
// weights.
func (r *Referee) withChannels(m Margin, own float64, a, b State) Margin {
	whole := own
	for k, c := range r.channels {
		var other Margin
		if c.images != nil {
			other = c.images.Compare(a.channels[k].images, b.channels[k].images)
		} else {
			const floor = 0.01 // even good maps differ in single voxels
			from, to := a.channels[k].apart, b.channels[k].apart
			other = Margin{Distance: math.Log((from + floor) / (to + floor)), Correlation: from - to}
		}
		m.Distance += float64(c.weight * other.Distance)
		m.Correlation += float64(c.weight * other.Correlation)
		whole += c.weight
	}
	m.Distance /= whole
	m.Correlation /= whole
	return m
}

// Channel returns how well a candidate matches in the k-th channel: images by their mean squared local correlation,
// label maps by the mean of the labels' Jaccard indices.
func (r *Referee) Channel(k int, s State) float64 {
	if c := r.channels[k]; c.images != nil {
		return c.images.Compare(s.channels[k].images, s.channels[k].images).To
	}
	return 1 - s.channels[k].apart
}
