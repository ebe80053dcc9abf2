package refine

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// mixture is several similarities of one pair, its own images' first, scaled to log-likelihoods (correlations by window,
// differences by their first mean): a weight means the same for all, and noise hardly counts.
type mixture struct {
	parts   []part
	g       *field.Field // of one part
	threads int
}

// part is one similarity and its weight.
type part struct {
	similarity
	weight float64
	least  float64 // mean difference that it is scaled by at least
	scale  float64 // of its values and its force; 0 before its first value
}

func mix(parts []part, g volume.Geometry, threads int) *mixture {
	return &mixture{parts: parts, g: field.New(g), threads: threads}
}

func (m *mixture) validate(u *field.Field) {
	for _, p := range m.parts {
		p.validate(u)
	}
}

func (m *mixture) voxels() int { return m.parts[0].voxels() }

func (m *mixture) part() int { return m.g.Size[2] }

func (m *mixture) reach() filter.Band { return nil }

func (m *mixture) force(g, u *field.Field, done func(from, to int)) float64 {
	total, n := 0.0, float64(m.voxels())
	for k := range m.parts {
		p, into := &m.parts[k], m.g
		if k == 0 {
			into = g
		}
		sum, voxels := p.similarity.force(into, u, func(_, _ int) {}), float64(p.voxels())
		if voxels == 0 {
			if k == 0 {
				clear(g.Data)
			}
			continue
		}
		mean := sum / voxels
		if p.scale == 0 {
			p.scale = p.weight
			if _, ok := p.similarity.(*ssd); ok {
				p.scale /= max(-mean, p.least)
			}
		}
		total += float64(p.scale * mean)
		scale := float32(p.scale * n / (voxels * perValue(p.similarity)))
		add := float32(1)
		if k == 0 {
			add = 0
		}
		parallel.For(len(g.Data), 1<<16, m.threads, func(lo, hi int) {
			dst, src := g.Data[lo:hi], into.Data[lo:hi]
			for i, x := range src {
				dst[i] = float32(add*dst[i]) + float32(scale*x)
			}
		})
	}
	done(0, g.Size[2])
	return total * n
}

// perValue is the factor by which the force of a similarity exceeds the derivative of its value.
func perValue(s similarity) float64 {
	if s, ok := s.(*ssd); ok {
		return float64(s.channels)
	}
	return 1
}

// leastLacking is how far from a perfect match a channel is taken to be at least: one that matches perfectly must not
// outweigh all others.
const leastLacking = 0.02

// leastLabelsLacking is leastLacking for label maps, as a share of their difference from an empty map: even contours
// that match lie parts of a voxel apart.
const leastLabelsLacking = 0.2

// channels returns the similarity of the pair with its channels: s itself where there are none.
func (r *Refinement) channels(s similarity, g volume.Geometry, by Regularisation) (similarity, error) {
	if len(r.pair.Channels) == 0 {
		return s, nil
	}
	parts := []part{{similarity: s, weight: 1, least: least(s)}}
	for _, c := range r.pair.Channels {
		pair := c.Under(r.pair.Initial)
		var other similarity
		weight := c.Weight
		if c.Labels > 0 {
			s := newLabels(pair, g, c.Labels, r.start, r.opt.Threads)
			other, weight = s, weight*s.bordering()
		} else {
			var err error
			if other, err = newSimilarity(r.opt.of(c), r.sharpened(pair.At(g, margin, aligned.RepeatedEdge, r.opt.Threads), by), r.opt.Threads); err != nil {
				return nil, err
			}
		}
		one := part{similarity: other, weight: weight, least: least(other)}
		if c.Labels > 0 {
			one.least *= leastLabelsLacking / leastLacking
		}
		parts = append(parts, one)
	}
	for _, p := range parts {
		if s, ok := p.similarity.(*ncc); ok {
			s.likely = true
		}
	}
	return mix(parts, g, r.opt.Threads), nil
}

// of is the similarity by which a channel is compared.
func (o Options) of(c aligned.Channel) Similarity {
	switch {
	case !c.Intensities:
		return MIND
	case o.Similarity == MSE:
		return MSE
	}
	return NCC
}

// least is the mean difference that a similarity is scaled by at least.
func least(s similarity) float64 {
	if s, ok := s.(*ssd); ok {
		return leastLacking * s.content()
	}
	return 0
}

// content is the variance of the fixed image's channels: the mean squared difference from a constant image.
func (s *ssd) content() float64 {
	n := s.Fixed.Voxels()
	sum, square := make([]float64, s.channels), 0.0
	for i, x := range s.fixed[:n*s.channels] {
		sum[i%s.channels] += float64(x)
		square += float64(int32(x) * int32(x))
	}
	for _, x := range sum {
		square -= x * x / float64(n)
	}
	return max(square/float64(one*one*n*s.channels), 1e-9)
}

// bordering is the share of the voxels that differ from a neighbour. The other voxels of a label map say nothing about
// how it lies.
func (s *ssd) bordering() float64 {
	const apart = one / 20
	size, strides, c, n := s.Fixed.Size, s.Fixed.Strides(), s.channels, 0
	for i := range s.Fixed.Voxels() {
		at := s.Fixed.Index(i)
		differs := false
		for a, step := range strides {
			if at[a] == size[a]-1 {
				continue
			}
			here, there := s.fixed[i*c:(i+1)*c], s.fixed[(i+step)*c:(i+step+1)*c]
			for k, x := range here {
				if d := x - there[k]; d > apart || d < -apart {
					differs = true
				}
			}
		}
		if differs {
			n++
		}
	}
	return float64(n) / float64(s.Fixed.Voxels())
}

// newLabels compares label maps by minus the mean squared difference of their planes (aligned.Planes), which are smooth
// across the borders.
func newLabels(pair aligned.Pair, g volume.Geometry, labels int, start *field.Field, threads int) *ssd {
	im, fixed, moving := pair.LabelsAt(g, margin, labels, start, threads)
	const channels = mind.Channels // the number that the assembly is written for
	return newSSD(im, channels, interleaved(fixed, channels, 0, threads), interleaved(moving, channels, beyond(im.Moving.Size), threads), threads)
}

// beyond is how many voxels after the last warpVector reads, with weight 0.
func beyond(size [3]int) int { return 1 + size[0] + size[0]*size[1] }
