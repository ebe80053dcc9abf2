package referee

import (
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/volume"
)

// channel is what the referee knows of a channel of the pair: a referee of its images, or two label maps.
type channel struct {
	weight        float64
	images        *Referee
	fixed, moving *volume.Volume // labels, on grids of their own
}

func channelsOf(pair aligned.Pair, threads int) (out []channel) {
	for _, c := range pair.Channels {
		one := channel{weight: c.Weight}
		if c.Labels > 0 {
			one.fixed, one.moving = c.Fixed, c.Moving
		} else {
			one.images = New(c.Under(pair.Initial), threads)
		}
		out = append(out, one)
	}
	return out
}

// seen is a candidate as it shows in a channel.
type seen struct {
	images State
	apart  float64 // share of what is labelled in either map that the two call differently
}

// lookAt measures a candidate in the channels.
func (r *Referee) lookAt(initial volume.Affine, deform *field.Field) (out []seen) {
	for _, c := range r.channels {
		if c.images != nil {
			out = append(out, seen{images: c.images.Look(initial, deform)})
			continue
		}
		grid := thinned(c.fixed.Geometry, most)
		ours := c.fixed.Resample(grid, volume.IdentityAffine(), volume.Nearest, 0, r.threads).Data
		theirs := field.Total(initial, deform, grid, r.threads).Warp(c.moving, volume.Nearest, 0, r.threads).Data
		either, differ := 0, 0
		for i, l := range ours {
			if l == 0 && theirs[i] == 0 {
				continue
			}
			either++
			if l != theirs[i] {
				differ++
			}
		}
		out = append(out, seen{apart: float64(differ) / float64(max(either, 1))})
	}
	return out
}

// withChannels makes a margin of the pair's images the mean of theirs and the channels', by their weights.
func (r *Referee) withChannels(m Margin, a, b State) Margin {
	whole := 1.0
	for k, c := range r.channels {
		var other Margin
		if c.images != nil {
			other = c.images.Compare(a.channels[k].images, b.channels[k].images)
		} else {
			const floor = 0.01 // of two good maps that differ in single voxels
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

// Channel returns how well a candidate matches in the k-th channel: images by their mean squared local correlation, label maps by the share of what
// is labelled in either map that both call the same (Jaccard's index of all labels).
func (r *Referee) Channel(k int, s State) float64 {
	if c := r.channels[k]; c.images != nil {
		return c.images.Compare(s.channels[k].images, s.channels[k].images).To
	}
	return 1 - s.channels[k].apart
}
