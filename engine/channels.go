package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/volume"
)

// Channel is one more image of both sides of a pair, or one more label map: each lies on a grid of its own in the space of its side's image.
type Channel struct {
	Name          string // for messages; empty: its number
	Fixed, Moving *volume.Volume
	Weight        float64 // beside the 1 of the pair's own images; 0: 1
	Labels        bool    // they are label maps: whole numbers, 0 is background
}

// limits of channels.
const (
	mostChannels = 16
	mostWeight   = 1000
	mostLabels   = 4096
)

// channelName is what messages call the k-th channel.
func (p Pair) channelName(k int) string {
	if name := p.Channels[k].Name; name != "" {
		return name
	}
	return fmt.Sprintf("channel %d", k+2) // the pair's own images are the first
}

// checkChannels reports the first fault of the channels.
func (p Pair) checkChannels() error {
	if n := len(p.Channels); n > mostChannels {
		return fault.New(fault.InvalidArgument, "%d channels are given beside the first; %d are the most", n, mostChannels)
	}
	for k, c := range p.Channels {
		name := p.channelName(k)
		if w := c.Weight; !(w >= 0 && w <= mostWeight) {
			return fault.New(fault.InvalidArgument, "the weight of %s is %g; it must be from 0 (which is 1) to %d", name, w, mostWeight)
		}
		for _, side := range []struct {
			name        string
			image, main *volume.Volume
		}{{"fixed", c.Fixed, p.Fixed}, {"moving", c.Moving, p.Moving}} {
			called, check := name+", "+side.name, side.image.Check
			if c.Labels {
				check = side.image.CheckShape
			}
			if err := check(called); err != nil {
				return err
			}
			if !meet(side.image.Geometry, side.main.Geometry) {
				return fault.New(fault.NoOverlap, "%s volume lies outside the %s image: all channels of one side are of one patient in one space; check its header", called, side.name)
			}
			if !c.Labels {
				continue
			}
			for _, x := range side.image.Data {
				if !(x >= 0 && x < 1<<24) || x != float32(math.Trunc(float64(x))) {
					return fault.New(fault.InvalidArgument, "%s volume holds %g, which is no label; labels are whole numbers, 0 for the background", called, x)
				}
			}
		}
		if !c.Labels {
			continue
		}
		switch n := len(commonLabels(c)); {
		case n == 0:
			return fault.New(fault.InvalidArgument, "the fixed and the moving labels of %s have no label in common; give maps with the same numbers for the same structures", name)
		case n > mostLabels:
			return fault.New(fault.InvalidArgument, "the label maps of %s have %d labels in common; %d are the most", name, n, mostLabels)
		}
	}
	return nil
}

// meet says whether a box around one grid meets the other grid.
func meet(a, b volume.Geometry) bool {
	toIndex := b.PhysicalToIndex().After(a.IndexToPhysical())
	lo, hi := [3]float64{math.Inf(1), math.Inf(1), math.Inf(1)}, [3]float64{math.Inf(-1), math.Inf(-1), math.Inf(-1)}
	for corner := range 8 {
		var at [3]float64
		for k := range 3 {
			at[k] = float64((corner >> k & 1) * (a.Size[k] - 1))
		}
		for k, x := range toIndex.Apply(at) {
			lo[k], hi[k] = min(lo[k], x), max(hi[k], x)
		}
	}
	for k, n := range b.Size {
		if hi[k] < 0 || lo[k] > float64(n-1) {
			return false
		}
	}
	return true
}

// commonLabels are those that both maps of a channel have, rising.
func commonLabels(c Channel) (common []float32) {
	of := func(v *volume.Volume) map[float32]bool {
		found := map[float32]bool{}
		last := float32(0)
		for _, x := range v.Data {
			if x != last && x != 0 {
				found[x] = true
			}
			last = x
		}
		return found
	}
	fixed, moving := of(c.Fixed), of(c.Moving)
	for l := range fixed {
		if moving[l] {
			common = append(common, l)
		}
	}
	slices.Sort(common)
	return common
}

// prepareChannels makes of the caller's channels what the stages read.
func (r *registration) prepareChannels() {
	if len(r.pair.Channels) > 0 && r.model != nil {
		r.warn("The network reads the first images alone; the channels count in the search and the refinement.")
	}
	onto := func(mask, v *volume.Volume) *volume.Volume {
		if mask == nil {
			return nil
		}
		return mask.Resample(v.Geometry, volume.IdentityAffine(), volume.Nearest, 0, r.opt.Threads)
	}
	for k, c := range r.pair.Channels {
		made := aligned.Channel{Weight: c.Weight, Intensities: true}
		if made.Weight == 0 {
			made.Weight = 1
		}
		made.Fixed, made.Moving = c.Fixed, c.Moving
		if !c.Labels {
			made.Fixed, made.Moving = allFinite(c.Fixed.Plausible()), allFinite(c.Moving.Plausible())
		}
		made.Fixed, made.Moving = made.Fixed.Canonical(), made.Moving.Canonical()
		made.FixedMask, made.MovingMask = onto(r.canonical.FixedMask, made.Fixed), onto(r.canonical.MovingMask, made.Moving)
		if c.Labels {
			common := commonLabels(c)
			made.Labels, made.Intensities = len(common), false
			r.number(&made, k, common)
		}
		r.canonical.Channels = append(r.canonical.Channels, made)
	}
}

// number renumbers the common labels of a channel from 1 on. Labels of one map alone become unknown there, so nothing pulls at them.
func (r *registration) number(c *aligned.Channel, k int, common []float32) {
	number := make(map[float32]float32, len(common))
	for i, l := range common {
		number[l] = float32(i + 1)
	}
	alone := map[float32]bool{}
	for _, side := range []struct{ labels, mask **volume.Volume }{{&c.Fixed, &c.FixedMask}, {&c.Moving, &c.MovingMask}} {
		numbered, mask := volume.Zeros((*side.labels).Geometry), *side.mask
		if mask == nil {
			mask = volume.Zeros(numbered.Geometry)
			for i := range mask.Data {
				mask.Data[i] = 1
			}
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
	for l := range alone {
		names = append(names, fmt.Sprintf("%.0f", l))
	}
	slices.Sort(names)
	const named = 10
	if more := len(names) - named; more > 0 {
		names = append(names[:named], fmt.Sprintf("%d more", more))
	}
	r.warn(fmt.Sprintf("Labels that one map of %s alone has drive nothing: %s.", r.pair.channelName(k), strings.Join(names, ", ")))
}

// alignByChannels aligns the channels too, notes whether their intensities compare, and takes the alignment of one where it brings all of them
// clearly closer than that of the pair's own images does.
func (r *registration) alignByChannels(found *align.Result, method align.Method) (*align.Result, error) {
	refines := method == align.Rigid || method == align.Affine
	judge := r.judges()
	var best referee.State
	for k := range r.canonical.Channels {
		c := &r.canonical.Channels[k]
		by := align.Affine // to see whether intensities compare, where nothing is to be aligned
		if refines {
			by = method
		}
		other, err := r.alignBy(c.Under(volume.IdentityAffine()), by, r.startsAt(refines, found), nil)
		if fault.CodeOf(err) == fault.Cancelled {
			return nil, err
		}
		if err != nil { // this channel cannot be aligned
			c.Intensities = false
			continue
		}
		if c.Labels == 0 {
			c.Intensities = r.opt.Similarity == "auto" && intensitiesCompare(other.SameModality, other.Score) || r.opt.Similarity != "auto" && r.opt.Similarity != string(refine.MIND)
		}
		if !refines {
			continue
		}
		if best.Unknown() {
			best = judge.Look(found.Transform, nil)
		}
		state := judge.Look(other.Transform, nil)
		if m := judge.Compare(best, state); worthwhile(m) {
			r.because(fmt.Sprintf("the alignment of %s brings all channels closer (%+.2f) than that of the first", r.pair.channelName(k), gain(m)))
			other.SameModality, other.Confidence, other.Score, other.Rigid = found.SameModality, max(found.Confidence, other.Confidence), max(found.Score, other.Score), nil
			found, best = other, state
		}
	}
	return found, nil
}

// startsAt is where the alignment of a channel starts: the caller's transform or, where nothing else is to be aligned, the one that stays.
func (r *registration) startsAt(refines bool, found *align.Result) *volume.Affine {
	if refines {
		return r.pair.Initial
	}
	return &found.Transform
}

// channelMetrics says how the channels came to match.
func (r *registration) channelMetrics() {
	if len(r.canonical.Channels) == 0 {
		return
	}
	for k, c := range r.canonical.Channels {
		m := ChannelMetrics{Name: r.pair.channelName(k), Weight: c.Weight, Similarity: string(refine.MIND), Labels: c.Labels}
		switch {
		case c.Labels > 0:
			m.Similarity = "labels"
		case c.Intensities:
			m.Similarity = string(refine.NCC)
			if r.opt.Similarity == string(refine.MSE) {
				m.Similarity = r.opt.Similarity
			}
		}
		m.Before, m.After = r.referee.Channel(k, r.start), r.referee.Channel(k, r.end)
		r.metrics.Channels = append(r.metrics.Channels, m)
	}
}
