package engine

import (
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// alignBy aligns a pair by a method, from a transform or, by nil, from nothing; progress may be nil.
func (p *problem) alignBy(e *env, pair aligned.Pair, method align.Method, from *volume.Affine, progress func(float64)) (*align.Result, error) {
	return p.alignAs(e, pair, align.Options{Method: method, Initial: from, Progress: progress})
}

// alignAs is alignBy with options of the alignment, to which it adds the pair's masks and what was asked of all stages.
func (p *problem) alignAs(e *env, pair aligned.Pair, opt align.Options) (*align.Result, error) {
	opt.FixedMask, opt.MovingMask, opt.Threads, opt.Seed = pair.FixedMask, pair.MovingMask, p.opt.Threads, p.opt.Seed
	return align.Align(e.ctx, pair.Fixed.Filled(), pair.Moving.Filled(), opt)
}

// turned returns the angle, degrees, between an initial transform and where it started.
func (p *problem) turned(initial volume.Affine) float64 {
	if p.initial != nil {
		back, err := p.initial.Inverse()
		if err != nil { // it was checked
			return 0
		}
		initial = initial.After(back)
	}
	return initial.Turn()
}

// given returns where the alignment starts: the caller's transform, or how the headers lay the images.
func (p *problem) given() volume.Affine {
	if p.initial != nil {
		return *p.initial
	}
	return volume.IdentityAffine()
}

// overBody returns the mean and the 95th percentile of v over the fixed mask or, without one, over the voxels where the
// fixed image is brighter than its mean: the air around a body has no features, so its uncertainty means nothing.
func (p *problem) overBody(v *volume.Volume) (mean, p95 float64) {
	level := parallel.Sum(len(p.fixed.Data), 1<<16, p.opt.Threads, func(lo, hi int) float64 {
		sum := 0.0
		for _, x := range p.fixed.Data[lo:hi] {
			sum += float64(x)
		}
		return sum
	}) / float64(len(p.fixed.Data))
	var inside []float32
	for i, x := range v.Data {
		if mask := p.fixedMask; mask != nil && mask.Data[i] != 0 || mask == nil && float64(p.fixed.Data[i]) > level {
			inside = append(inside, x)
			mean += float64(x)
		}
	}
	return mean / float64(len(inside)), volume.Percentiles(inside, 95)[0]
}
