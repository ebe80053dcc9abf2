package refine

import (
	"context"
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Match is how two contrasts compare once one image's intensities are mapped to the other's contrast.
type Match struct {
	Before    Agreement // under the field that descriptors found
	Agreement           // after intensities have gone on from there
	// Apart is the share of the fixed image's voxels, at half the resolution, at which the two fields differ by more than
	// a voxel.
	Apart float64
}

// Matched maps the intensities of one image to the other's contrast, under the displacement that Coarse has found (the
// intensity correction of Guimond et al., IEEE Trans. Med. Imaging 2001), and refines the last coarse resolution again.
// It maps that image of the two which then agrees better with the other. The refinement returned compares intensities.
//
// Errors: Cancelled.
func (r *Refinement) Matched(ctx context.Context, by Regularisation) (*Refinement, Match, error) {
	there, back := r.curves()
	fixed, moving := r.pair, r.pair
	fixed.Fixed, moving.Moving = there.through(fixed.Fixed), back.through(moving.Moving)
	m, before := r.inContrast(fixed)
	if other, a := r.inContrast(moving); a.Correlation > before.Correlation {
		m, before = other, a
	}
	m.done = max(len(m.grids)-2, 0)
	after, err := m.Coarse(ctx, by, true)
	if err != nil {
		return nil, Match{}, err
	}
	return m, Match{before, after, apart(r.v, m.v, r.opt.Threads)}, nil
}

// inContrast returns a refinement of intensities that goes on from where r is, on a pair of one contrast, and how well
// that agrees.
func (r *Refinement) inContrast(pair aligned.Pair) (*Refinement, Agreement) {
	opt := r.opt
	opt.Similarity = NCC
	opt.Iterations = (3*opt.Iterations + 4) / 5 // three fifths: it starts near its end
	m := New(pair, r.start, opt)
	m.v, m.levels = r.v, r.levels
	return m, m.agreement()
}

// apart returns the share of voxels at which two fields differ by more than a voxel.
func apart(a, b *field.Field, threads int) float64 {
	if b == nil {
		return 0
	}
	a = onto(b.Geometry, a, threads)
	far := parallel.Reduce(len(b.X), 1<<16, threads, func(lo, hi int) (n int) {
		for i := lo; i < hi; i++ {
			x, y, z := b.X[i]-a.X[i], b.Y[i]-a.Y[i], b.Z[i]-a.Z[i]
			if float32(x*x)+float32(y*y)+float32(z*z) > 1 {
				n++
			}
		}
		return n
	}, func(a, b int) int { return a + b })
	return float64(far) / float64(len(b.X))
}

// bins is how many bins a curve divides the intensities into.
const bins = 64

// curve maps intensities, 0..1, linearly between its values at the middles of bins.
type curve [bins]float64

// bin returns the bin at or below an intensity, and how far the intensity is from its middle to the next one's.
func bin(x float32) (k int, t float64) {
	p := float64(float64(x)*bins) - 0.5
	if !(p > 0) { // NaN, too
		p = 0
	}
	p = min(p, bins-1)
	k = min(int(p), bins-2)
	return k, p - float64(k)
}

func (c *curve) at(x float32) float32 {
	k, t := bin(x)
	return float32(float64((1-t)*c[k]) + float64(t*c[k+1]))
}

// through returns v, scaled as Images are, mapped by the curve.
func (c *curve) through(v *volume.Volume) *volume.Volume {
	out, read := volume.Zeros(v.Geometry), aligned.Unit(v)
	for r := range v.Size[1] * v.Size[2] {
		row := out.Data[r*v.Size[0]:][:v.Size[0]]
		read(r%v.Size[1], r/v.Size[1], [][]float32{row})
		for i, x := range row {
			row[i] = c.at(x)
		}
	}
	return out
}

// curves returns the mean moving intensity for each fixed one and the reverse, where both are valid under what Coarse has
// found, at the finest resolution: curves of less noisy images would amplify the noise there.
func (r *Refinement) curves() (there, back curve) {
	im := r.at(len(r.grids)-1).Through(r.start, r.opt.Threads)
	g := im.Fixed.Geometry
	warped, valid := make([]float32, g.Voxels()), make([]float32, g.Voxels())
	v := onto(g, r.v, r.opt.Threads)
	im.Warp(warped, v, nil, r.opt.Threads)
	im.Valid(valid, v, r.opt.Threads)
	return regression(im.Fixed.Data, warped, valid, r.opt.Threads), regression(warped, im.Fixed.Data, valid, r.opt.Threads)
}

// regression returns the mean of y by x over valid voxels, smoothed over neighbouring bins.
func regression(x, y, valid []float32, threads int) (c curve) {
	type sums struct{ n, y [bins]float64 }
	s := parallel.Reduce(len(x), 1<<16, threads, func(lo, hi int) (s sums) {
		for i := lo; i < hi; i++ {
			if valid[i] == 0 {
				continue
			}
			k, t := bin(x[i])
			s.n[k] += 1 - t
			s.n[k+1] += t
			s.y[k] += float64((1 - t) * float64(y[i]))
			s.y[k+1] += float64(t * float64(y[i]))
		}
		return s
	}, func(a, b sums) sums {
		for k := range bins {
			a.n[k] += b.n[k]
			a.y[k] += b.y[k]
		}
		return a
	})
	const (
		width = 1.5  // standard deviation of the smoothing, in bins
		least = 1e-9 // weight of distant bins, which fill an empty neighbourhood
	)
	for k := range c {
		n, sum := 0.0, 0.0
		for j := range c {
			d := float64(k-j) / width
			w := math.Exp(-float64(d*d)/2) + least
			n += float64(w * s.n[j])
			sum += float64(w * s.y[j])
		}
		if n > 0 {
			c[k] = sum / n
		}
	}
	return c
}
