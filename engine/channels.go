package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/bias"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/volume"
)

// addChannels makes of the caller's channels what the stages read.
func (p *problem) addChannels(n *notes, flat Pair) {
	if len(flat.Channels) > 0 && p.net != nil {
		n.warn("The network reads the first images alone; the channels count in the search and the refinement.")
	}
	onto := func(mask, v *volume.Volume) *volume.Volume {
		if mask == nil {
			return nil
		}
		return mask.Resample(v.Geometry, volume.IdentityAffine(), volume.Nearest, 0, p.opt.Threads)
	}
	for k, c := range flat.Channels {
		if !c.Labels {
			c.Fixed, c.Moving = c.Fixed.Plausible().Filled(), c.Moving.Plausible().Filled()
		}
		channel := aligned.Channel{Weight: cmp.Or(c.Weight, 1)}
		channel.Fixed, channel.Moving = c.Fixed.Canonical(), c.Moving.Canonical()
		if !c.Labels {
			channel.Fixed, channel.Moving = bias.Corrected(channel.Fixed, p.opt.Threads), bias.Corrected(channel.Moving, p.opt.Threads)
		}
		channel.FixedMask, channel.MovingMask = onto(p.pair.FixedMask, channel.Fixed), onto(p.pair.MovingMask, channel.Moving)
		if c.Labels {
			shared := common(c.Fixed.Labels(), c.Moving.Labels())
			channel.Labels = len(shared)
			n.number(&channel, flat.ChannelName(k), shared)
		}
		p.pair.Channels = append(p.pair.Channels, channel)
	}
}

// number renumbers the common labels of a channel from 1 on. Labels of one map alone become unknown there, so nothing
// pulls at them.
func (n *notes) number(c *aligned.Channel, name string, common []float32) {
	number := make(map[float32]float32, len(common))
	for i, l := range common {
		number[l] = float32(i + 1)
	}
	alone := map[float32]bool{}
	for _, side := range []struct{ labels, mask **volume.Volume }{{&c.Fixed, &c.FixedMask}, {&c.Moving, &c.MovingMask}} {
		numbered, mask := volume.Zeros((*side.labels).Geometry), *side.mask
		if mask == nil {
			mask = &volume.Volume{Geometry: numbered.Geometry, Data: slices.Repeat([]float32{1}, numbered.Voxels())}
		}
		for i, l := range (*side.labels).Data {
			if l == 0 {
				continue
			}
			numbered.Data[i] = number[l]
			if numbered.Data[i] == 0 {
				mask.Data[i] = 0
				alone[l] = true
			}
		}
		*side.labels, *side.mask = numbered, mask
	}
	if len(alone) == 0 {
		return
	}
	var names []string
	for _, l := range slices.Sorted(maps.Keys(alone)) {
		names = append(names, fmt.Sprintf("%.0f", l))
	}
	const named = 10
	if more := len(names) - named; more > 0 {
		names = append(names[:named], fmt.Sprintf("%d more", more))
	}
	n.warn(fmt.Sprintf("Labels that one map of %s alone has drive nothing: %s.", name, strings.Join(names, ", ")))
}

// channelMetrics says how the channels came to match.
func (p *problem) channelMetrics(st state) (all []ChannelMetrics) {
	for k, c := range p.pair.Channels {
		m := ChannelMetrics{Name: p.request.ChannelName(k), Weight: c.Weight, Similarity: string(refine.MIND), Labels: c.Labels}
		switch {
		case c.Labels > 0:
			m.Similarity = "labels"
		case st.intensities[k]:
			m.Similarity = string(refine.NCC)
			if p.opt.Similarity == string(refine.MSE) {
				m.Similarity = p.opt.Similarity
			}
		}
		m.Before, m.After = p.referee().Channel(k, st.start()), p.referee().Channel(k, st.end())
		all = append(all, m)
	}
	return all
}
