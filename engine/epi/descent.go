package epi

import (
	"context"
	"math"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// How the field is found.
const (
	stiffness = 8e-3 // what a unit gradient of the field costs, where the images reach 1
	steepest  = 0.9  // slope along the axis: at 1 the images fold
	rounds    = 10   // Gauss-Newton steps at a resolution
	inner     = 24   // iterations of conjugate gradients in each
	smallest  = 12   // least number of voxels along an axis at a coarser resolution
	enough    = 5e-3 // root mean square length of a step, voxels, below which none follows
)

// shiftOf returns the field d in voxels along an axis: one's image is at x+d, other's at x-d. progress is told the fraction
// done.
// Errors: Cancelled.
func shiftOf(
	ctx context.Context, one, other *volume.Volume, axis, threads int, progress func(fraction float64),
) (*volume.Volume, error) {
	top := max(one.Percentiles(99)[0], other.Percentiles(99)[0])
	if !(top > 0) { // what is shown takes less than a hundredth of the image
		_, a := one.MinMax()
		_, b := other.MinMax()
		top = float64(max(a, b))
	}
	scale := float32(1 / max(top, 1e-30))
	factors := []int{1}
	for f := 2; f <= 8; f *= 2 {
		if one.Size[axis]/f < smallest {
			break
		}
		factors = append([]int{f}, factors...)
	}
	var d *volume.Volume
	for k, f := range factors {
		a, b := coarse(one, f, threads), coarse(other, f, threads)
		next := volume.Zeros(a.Geometry)
		if d != nil {
			next = d.ResampleRepeated(a.Geometry, volume.IdentityAffine(), threads)
			ratio := float32(d.Spacing[axis] / a.Spacing[axis])
			for i := range next.Data {
				next.Data[i] *= ratio
			}
		}
		l := newLevel(a, b, next, axis, scale, threads)
		for round := range rounds {
			if err := ctx.Err(); err != nil {
				return nil, fault.Wrap(fault.Cancelled, err, "the correction was cancelled")
			}
			progress((float64(k) + float64(round)/rounds) / float64(len(factors)))
			if !l.step() {
				break
			}
		}
		d = next
	}
	return d, nil
}

// coarse returns the means of about f voxels along every axis that has enough of them.
func coarse(v *volume.Volume, f, threads int) *volume.Volume {
	if f == 1 {
		return v
	}
	g, sigma := v.Geometry, [3]float64{}
	for a, n := range v.Size {
		if m := n / f; m >= smallest {
			g.Size[a], g.Spacing[a] = m, v.Spacing[a]*float64(n)/float64(m)
			sigma[a] = 0.5 * math.Sqrt(float64(f*f)-1)
		}
	}
	smooth := volume.Zeros(v.Geometry)
	filter.Gaussian(v.Size, sigma, 1, threads, filter.From(v.Size, v.Data), filter.To(v.Size, smooth.Data))
	return smooth.ResampleRepeated(g.CenteredAt(v.Center()), volume.IdentityAffine(), threads)
}

// modulated writes to dst the image at x + sign d(x), times 1 + sign d'(x): the image as it would be without
// distortion. It is interpolated by cubics, within the range of the voxels around.
func modulated(dst []float32, image, d *volume.Volume, axis int, sign float32, threads int) {
	each(d, axis, threads, func(line lineOf) {
		for k := range line.n {
			i := line.at(k)
			value, _ := line.read(image.Data, float32(k)+float32(sign*d.Data[i]))
			dst[i] = value * (1 + float32(sign*line.slope(d.Data, k)))
		}
	})
}

// lineOf is a row of voxels along the axis, the index-th of its grid.
type lineOf struct{ index, first, stride, n int }

func (l lineOf) at(k int) int { return l.first + k*l.stride }

// slope returns the derivative of data at voxel k: central differences inside, one-sided at the ends.
func (l lineOf) slope(data []float32, k int) float32 {
	lo, hi := max(k-1, 0), min(k+1, l.n-1)
	return (data[l.at(hi)] - data[l.at(lo)]) / float32(hi-lo)
}

// read returns data at x voxels along the line, by Catmull and Rom's cubic, and its derivative. Beyond the ends the
// last voxel holds.
func (l lineOf) read(data []float32, x float32) (value, slope float32) {
	if !(x > 0) {
		return data[l.at(0)], 0
	}
	if x >= float32(l.n-1) {
		return data[l.at(l.n-1)], 0
	}
	k := int(x)
	t := x - float32(k)
	p0, p1, p2, p3 := data[l.at(max(k-1, 0))], data[l.at(k)], data[l.at(k+1)], data[l.at(min(k+2, l.n-1))]
	a := float32(0.5 * (p3 - p0 + float32(3*(p1-p2))))
	b := p0 - float32(2.5*p1) + float32(2*p2) - float32(0.5*p3)
	c := float32(0.5 * (p2 - p0))
	value = float32((float32((float32(a*t)+b)*t)+c)*t) + p1
	slope = float32((float32(3*a*t)+float32(2*b))*t) + c
	return min(max(value, min(p0, p1, p2, p3)), max(p0, p1, p2, p3)), slope
}

// each calls do with every line along the axis of a grid.
func each(v *volume.Volume, axis, threads int, do func(lineOf)) {
	stride := v.Strides()
	b, c := (axis+1)%3, (axis+2)%3
	parallel.Each(v.Size[b]*v.Size[c], 16, threads, func(i int) {
		do(lineOf{i, i%v.Size[b]*stride[b] + i/v.Size[b]*stride[c], stride[axis], v.Size[axis]})
	})
}

// level is the descent at one resolution.
type level struct {
	one, other *volume.Volume
	d          *volume.Volume
	axis       int
	scale      float32
	threads    int
	across     [3]float32 // what a difference between neighbours along each axis costs

	// Of the linear difference at d, r + p delta + q delta': what a step is made of.
	r, p, q []float32
}

func newLevel(one, other, d *volume.Volume, axis int, scale float32, threads int) *level {
	l := &level{one: one, other: other, d: d, axis: axis, scale: scale, threads: threads}
	for a := range 3 {
		ratio := d.Spacing[axis] / d.Spacing[a]
		l.across[a] = float32(stiffness * ratio * ratio)
	}
	n := len(d.Data)
	l.r, l.p, l.q = make([]float32, n), make([]float32, n), make([]float32, n)
	return l
}

// cost returns the value at d, infinite where it folds; with linear it writes r, p and q.
func (l *level) cost(d []float32, linear bool) float64 {
	sums := make([]float64, l.d.Size[(l.axis+1)%3]*l.d.Size[(l.axis+2)%3])
	size, stride := l.d.Size, l.d.Strides()
	each(l.d, l.axis, l.threads, func(line lineOf) {
		sum := 0.0
		for k := range line.n {
			i := line.at(k)
			slope := line.slope(d, k)
			if !(slope < steepest && slope > -steepest) {
				sum = math.Inf(1)
			}
			v1, s1 := line.read(l.one.Data, float32(k)+d[i])
			v2, s2 := line.read(l.other.Data, float32(k)-d[i])
			v1, s1, v2, s2 = float32(v1*l.scale), float32(s1*l.scale), float32(v2*l.scale), float32(s2*l.scale)
			r := float32(v1*(1+slope)) - float32(v2*(1-slope))
			if linear {
				l.r[i], l.p[i], l.q[i] = r, float32(s1*(1+slope))+float32(s2*(1-slope)), v1+v2
			}
			sum += float64(float64(r) * float64(r))
			for a := range 3 {
				if i/stride[a]%size[a] < size[a]-1 {
					u := d[i+stride[a]] - d[i]
					sum += float64(l.across[a] * u * u)
				}
			}
		}
		sums[line.index] = sum
	})
	total := 0.0
	for _, s := range sums {
		total += s
	}
	return total / 2
}

// forward writes p x + q x' to dst.
func (l *level) forward(dst, x []float32) {
	each(l.d, l.axis, l.threads, func(line lineOf) {
		for k := range line.n {
			i := line.at(k)
			dst[i] = float32(l.p[i]*x[i]) + float32(l.q[i]*line.slope(x, k))
		}
	})
}

// back writes the transpose of forward applied to y, plus the stiffness applied to x, to dst.
func (l *level) back(dst, y, x []float32) {
	size, stride := l.d.Size, l.d.Strides()
	each(l.d, l.axis, l.threads, func(line lineOf) {
		for k := range line.n {
			dst[line.at(k)] = l.p[line.at(k)] * y[line.at(k)]
		}
		for k := range line.n {
			lo, hi := max(k-1, 0), min(k+1, line.n-1)
			part := l.q[line.at(k)] * y[line.at(k)] / float32(hi-lo)
			dst[line.at(hi)] += part
			dst[line.at(lo)] -= part
		}
		for k := range line.n {
			i := line.at(k)
			sum := float32(0)
			for a := range 3 {
				at := i / stride[a] % size[a]
				if at > 0 {
					sum += float32(l.across[a] * (x[i] - x[i-stride[a]]))
				}
				if at < size[a]-1 {
					sum += float32(l.across[a] * (x[i] - x[i+stride[a]]))
				}
			}
			dst[i] += sum
		}
	})
}

func (l *level) dot(a, b []float32) float64 {
	return parallel.Sum(len(a), 1<<14, l.threads, func(lo, hi int) (sum float64) {
		for i := lo; i < hi; i++ {
			sum += float64(float64(a[i]) * float64(b[i]))
		}
		return sum
	})
}

// step takes a Gauss-Newton step and says whether another one may gain.
func (l *level) step() bool {
	n := len(l.d.Data)
	now := l.cost(l.d.Data, true)
	gradient, delta := make([]float32, n), make([]float32, n)
	l.back(gradient, l.r, l.d.Data)
	residual, direction, image, product := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	weight := make([]float32, n) // one over about the diagonal
	whole := float32(0)
	for a := range 3 {
		whole += 2 * l.across[a]
	}
	for i := range weight {
		weight[i] = 1 / (float32(l.p[i]*l.p[i]) + float32(0.5*l.q[i]*l.q[i]) + whole)
		residual[i] = -gradient[i]
		direction[i] = weight[i] * residual[i]
		product[i] = direction[i]
	}
	rho := l.dot(residual, direction)
	first := rho
	for range inner {
		if !(rho > 1e-6*first) {
			break
		}
		l.forward(image, direction)
		l.back(product, image, direction)
		alpha := float32(rho / l.dot(direction, product))
		for i := range delta {
			delta[i] += float32(alpha * direction[i])
			residual[i] -= float32(alpha * product[i])
			product[i] = weight[i] * residual[i]
		}
		next := l.dot(residual, product)
		beta := float32(next / rho)
		for i := range direction {
			direction[i] = product[i] + float32(beta*direction[i])
		}
		rho = next
	}
	trial := make([]float32, n)
	for t := float32(1); t > 0.01; t /= 2 {
		for i := range trial {
			trial[i] = l.d.Data[i] + float32(t*delta[i])
		}
		if l.cost(trial, false) < now {
			copy(l.d.Data, trial)
			return float64(t)*math.Sqrt(l.dot(delta, delta)/float64(n)) > enough
		}
	}
	return false
}
