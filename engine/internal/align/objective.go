package align

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
	"gonum.org/v1/gonum/mat"
)

// strainWeight penalises the strain of the linear part. Smoother features agree better, so the score by itself favours
// stretching the moving image wherever its field of view reaches further than the fixed one's.
const strainWeight = 0.4

// leastKnown keeps the outermost voxels, of which nothing is known, from dividing by zero.
const leastKnown = 1e-6

// objective is the score of a transform and its gradient, over a fixed sample of the fixed image's voxels.
type objective struct {
	unit       float64      // mm: the fixed image's voxel, in which the optimiser steps
	points     [][3]float32 // units, relative to center
	features   []float32    // lanes a point: the components, zeros behind
	counted    [8]uint32    // all bits set in those of the last eight lanes that are components
	body       []float32
	known      []float32  // validity
	energy     []float32  // squared norm of the features and of the weighted body, over the validity
	weight     []float32  // voxels that a point stands for
	few        *objective // over some of the points, as many as tell the curvature
	center     [3]float64
	fixedSelf  float64 // overlap of the smoothed body with itself, voxels
	movingSelf float64
	grid       volume.Geometry // of the moving features
	flat       bool            // the images are slices
	toIndex    volume.Affine   // from units
	moving     []float32       // interleaved
	threads    int
}

// newObjective samples about count voxels of fixed, three in four in its body, by where they are and how many: if another
// one enters the body, the sample stays.
func newObjective(fixed, moving *resampled, s samples, count int, seed uint64, threads int) *objective {
	o := &objective{
		unit: aligned.Spacing(fixed.image), center: centroid(fixed), grid: moving.grid, flat: fixed.image.Flat(),
		toIndex: moving.grid.PhysicalToIndex(), moving: s.moving, threads: threads,
	}
	for i := range s.components - (lanes - len(o.counted)) {
		o.counted[i] = math.MaxUint32
	}
	for i := range o.toIndex.M {
		o.toIndex.M[i] *= o.unit
	}
	for i := bodyLane; i < len(s.moving); i += lanes {
		b := float64(s.moving[i])
		o.movingSelf += float64(b * b)
	}
	body := int(fixed.bodyCount)
	inside, outside := make([]int32, 0, body), make([]int32, 0, len(fixed.valid)-body)
	for i, v := range fixed.valid {
		switch {
		case v == 0:
		case fixed.body[i] > 0:
			inside = append(inside, int32(i))
		default:
			outside = append(outside, int32(i))
		}
	}
	few := *o
	few.few = &few
	few.add(fixed, s, inside, outside, min(count, coarsePoints), seed)
	if o.few = &few; count <= coarsePoints {
		return o.few
	}
	o.add(fixed, s, inside, outside, count, seed)
	return o
}

// with returns o as so many threads compute it.
func (o *objective) with(threads int) *objective {
	whole, few := *o, *o.few
	whole.threads, few.threads = threads, threads
	whole.few, few.few = &few, &few
	return &whole
}

// add adds about count of the voxels inside the body of fixed and outside.
func (o *objective) add(fixed *resampled, s samples, inside, outside []int32, count int, seed uint64) {
	toPhysical := fixed.grid.IndexToPhysical()
	add := func(voxels []int32, count int) {
		weight := float32(max(float64(len(voxels))/float64(max(count, 1)), 1))
		for _, voxel := range voxels {
			i := int(voxel)
			if float64(unit(uint64(i), seed)*float64(weight)) >= 1 {
				continue
			}
			at := fixed.grid.Point(i)
			for a := range fixed.image.Axes() {
				at[a] += unit(uint64(3*i+a), seed+1) - 0.5
			}
			p := toPhysical.Apply(at)
			for a := range p {
				p[a] = (p[a] - o.center[a]) / o.unit
			}
			o.points = append(o.points, [3]float32{float32(p[0]), float32(p[1]), float32(p[2])})
			f := between(s.fixed, fixed.grid.Size, at)
			o.features = append(append(o.features, f[:s.components]...), make([]float32, lanes-s.components)...)
			b := f[bodyLane]
			e := bodyWeight * b * b
			for _, v := range f[:s.components] {
				e += float32(v * v)
			}
			o.fixedSelf += float64(weight * b * b)
			o.body = append(o.body, b)
			o.known = append(o.known, f[bodyLane+1])
			o.energy = append(o.energy, e/max(f[bodyLane+1], leastKnown))
			o.weight = append(o.weight, weight)
		}
	}
	add(inside, count-count/4)
	add(outside, count/4)
}

// between reads interleaved features at a continuous index, as the score does; the outermost voxels are never a nearest one.
func between(features []float32, size [3]int, at [3]float64) (f [lanes]float32) {
	var lo [3]int
	var in [3]float32
	for a, x := range at {
		lo[a] = min(int(x), size[a]-2)
		in[a] = float32(x - float64(lo[a]))
	}
	share, _ := eased(in)
	for corner := range 8 {
		i, weight := 0, 1.0
		for a := 2; a >= 0; a-- {
			k := corner >> a & 1
			i = i*size[a] + lo[a] + k
			weight *= [2]float64{1 - float64(share[a]), float64(share[a])}[k]
		}
		if weight > 0 {
			for c := range f {
				f[c] += float32(float32(weight) * features[i*lanes+c])
			}
		}
	}
	return f
}

// unit returns a number from 0 to 1 that looks random, of a voxel's index (the finaliser of SplitMix64, Steele et al.,
// OOPSLA 2014).
func unit(voxel, seed uint64) float64 {
	x := (voxel + 1 + seed<<32) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return math.Ldexp(float64((x^x>>31)>>11), -53)
}

// sums are the parts of the score over points: product, energy and overlap, each with its gradient by the rows of the
// affine in moving index units (3 rows of linear part and translation).
type sums struct {
	value [3]float64
	grad  [3][12]float64
}

const (
	inProduct = iota
	inEnergy
	inOverlap
)

// sums evaluates points lo..hi-1 under index = m (x, 1), x in units about the centre.
func (o *objective) sums(m *[12]float32, lo, hi int) sums {
	var t sums
	nx, ny, nz := o.grid.Size[0], o.grid.Size[1], o.grid.Size[2]
	dx, dy, dz := lanes, lanes*nx, lanes*nx*ny
	var r sample
	for p := lo; p < hi; p++ {
		q := o.points[p]
		x := float32(m[0]*q[0]) + float32(m[1]*q[1]) + float32(m[2]*q[2]) + m[3]
		y := float32(m[4]*q[0]) + float32(m[5]*q[1]) + float32(m[6]*q[2]) + m[7]
		z := float32(m[8]*q[0]) + float32(m[9]*q[1]) + float32(m[10]*q[2]) + m[11]
		if !(x >= 0 && y >= 0 && z >= 0 && x < float32(nx-1) && y < float32(ny-1) && z < float32(nz-1)) {
			continue // beyond the margin, where everything is zero
		}
		ix, iy, iz := int(x), int(y), int(z)
		fx, fy, fz := x-float32(ix), y-float32(iy), z-float32(iz)
		base := iz*dz + iy*dy + ix*dx
		cell := o.moving[base : base+dx+dy+dz+lanes]
		fixed := (*[lanes]float32)(o.features[p*lanes:])
		at, slope := eased([3]float32{fx, fy, fz})
		if !r.vector(cell, dx, dy, dz, at, fixed, &o.counted) {
			r.loop(cell, dx, dy, dz, at, fixed, &o.counted)
		}
		for i, s := range slope {
			r.product[i+1] *= s
			r.energy[i+1] *= s
			r.last[i+1][2] *= s
			r.last[i+1][3] *= s
		}
		b, e, w := o.body[p], o.energy[p], o.weight[p]
		// Smoothed features are a share k of the true ones, k being the smoothed validity: f = kf F and m = km M. The terms
		// of the score are kf km F M, which is f m, and kf km (F F + M M) = km f f / kf + kf m m / km.
		body, known := r.last[0][2], max(r.last[0][3], leastKnown)
		energy, share := r.energy[0]+float32(bodyWeight*body*body), o.known[p]/known
		var part [3][4]float32
		for i := range 4 {
			part[inProduct][i] = w * (r.product[i] + float32(bodyWeight*b*r.last[i][2]))
			rise := float32(2*(r.energy[i]+float32(bodyWeight*body*r.last[i][2]))) - float32(energy/known*r.last[i][3])
			part[inEnergy][i] = w * (float32(share*rise) + float32(e*r.last[i][3]))
			part[inOverlap][i] = w * b * r.last[i][2]
		}
		part[inEnergy][0] = w * (float32(share*energy) + float32(e*r.last[0][3]))
		if !t.vector(&part, &q) {
			t.add(&part, &q)
		}
	}
	return t
}

// eased returns where in a cell of the grid a point at the fractions f is read, and the derivatives of that: x^2 (3 - 2x), so that
// the slope is continuous where a point goes over to the next cell.
func eased(f [3]float32) (at, slope [3]float32) {
	for i, x := range f {
		at[i] = float32(x*x) * (3 - float32(2*x))
		slope[i] = 6 * x * (1 - x)
	}
	return at, slope
}

// add adds a point at q: of each sum its part, then that part's derivatives by x, y and z of the moving index.
func (t *sums) add(part *[3][4]float32, q *[3]float32) {
	for j := range part {
		t.value[j] += float64(part[j][0])
		g := &t.grad[j]
		for r := range 3 {
			d := part[j][r+1]
			g[4*r] += float64(d * q[0])
			g[4*r+1] += float64(d * q[1])
			g[4*r+2] += float64(d * q[2])
			g[4*r+3] += float64(d)
		}
	}
}

// sample is what is read of the moving features at a point: values, then derivatives by x, y and z.
type sample struct {
	product [4]float32    // of the components with the fixed ones
	energy  [4]float32    // of the components with their values
	last    [4][4]float32 // of the last four lanes, body and validity behind two components
}

// loop reads the cell of eight voxels, dx, dy and dz floats apart, at the fractions f.
func (r *sample) loop(cell []float32, dx, dy, dz int, f [3]float32, fixed *[lanes]float32, counted *[8]uint32) {
	var product, energy [4][lanes]float32
	c000, c100 := (*[lanes]float32)(cell), (*[lanes]float32)(cell[dx:])
	c010, c110 := (*[lanes]float32)(cell[dy:]), (*[lanes]float32)(cell[dx+dy:])
	c001, c101 := (*[lanes]float32)(cell[dz:]), (*[lanes]float32)(cell[dx+dz:])
	c011, c111 := (*[lanes]float32)(cell[dy+dz:]), (*[lanes]float32)(cell[dx+dy+dz:])
	for c := range lanes {
		d00, d10 := c100[c]-c000[c], c110[c]-c010[c]
		d01, d11 := c101[c]-c001[c], c111[c]-c011[c]
		v00, v10 := c000[c]+float32(f[0]*d00), c010[c]+float32(f[0]*d10)
		v01, v11 := c001[c]+float32(f[0]*d01), c011[c]+float32(f[0]*d11)
		e0, e1 := v10-v00, v11-v01
		v0, v1 := v00+float32(f[1]*e0), v01+float32(f[1]*e1)
		d0, d1 := d00+float32(f[1]*(d10-d00)), d01+float32(f[1]*(d11-d01))
		gz := v1 - v0
		read := [4]float32{v0 + float32(f[2]*gz), d0 + float32(f[2]*(d1-d0)), e0 + float32(f[2]*(e1-e0)), gz}
		for i, s := range read {
			product[i][c] = fixed[c] * s
			if c < lanes-len(counted) || counted[c-(lanes-len(counted))] != 0 {
				energy[i][c] = read[0] * s
			}
			if c >= lanes-4 {
				r.last[i][c-(lanes-4)] = s
			}
		}
	}
	for i := range product {
		r.product[i], r.energy[i] = sumLanes(&product[i]), sumLanes(&energy[i])
	}
}

// sumLanes adds up in the order of the vectors: by pairs, and one half of the lanes after the other.
func sumLanes(x *[lanes]float32) float32 {
	var half [lanes / 8]float32
	for i := range half {
		v := x[8*i:][:8]
		half[i] = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))
	}
	return half[0] + half[1]
}

func (t sums) plus(o sums) sums {
	for j := range t.value {
		t.value[j] += o.value[j]
		for i := range t.grad[j] {
			t.grad[j][i] += o.grad[j][i]
		}
	}
	return t
}

// centred is an affine about the objective's centre, in units: x (from the centre) -> M x + T.
func (o *objective) centred(a volume.Affine) volume.Affine {
	c := volume.Affine{M: a.M, T: a.Apply(o.center)}
	for i := range c.T {
		c.T[i] /= o.unit
	}
	return c
}

// absolute undoes centred.
func (o *objective) absolute(c volume.Affine) volume.Affine {
	for i := range c.T {
		c.T[i] *= o.unit
	}
	return c.After(volume.Affine{M: volume.Identity, T: [3]float64{-o.center[0], -o.center[1], -o.center[2]}})
}

// score returns the score of the centred affine c and its gradient by the linear part (row-major) and the translation.
func (o *objective) score(c volume.Affine) (score float64, gradM [9]float64, gradT [3]float64) {
	index := o.toIndex.After(c)
	var m [12]float32
	for r := range 3 {
		for k := range 3 {
			m[4*r+k] = float32(index.M[3*r+k])
		}
		m[4*r+3] = float32(index.T[r])
	}
	const grain = 1 << 10
	t := parallel.Reduce(len(o.points), grain, o.threads, func(lo, hi int) sums { return o.sums(&m, lo, hi) }, sums.plus)

	// S = 2 P / E * min(B / min(FF, MM/|det M|), 1)^0.3; dS is a combination of dP, dE, dB and d det. FF and MM are B of
	// each body with itself, less than its volume, for B is smoothed. If B were divided by volumes, an image compared with
	// itself would gain by being stretched.
	p, e, b := t.value[inProduct], t.value[inEnergy], t.value[inOverlap]
	det := c.Det()
	if !(e > 0 && b > 0 && o.fixedSelf > 0 && o.movingSelf > 0 && det != 0) {
		return 0, gradM, gradT
	}
	fixedSelf, movingSelf := math.Log(o.fixedSelf), math.Log(o.movingSelf/math.Abs(det))
	smaller, _, byMoving := softMin(fixedSelf, movingSelf, bend)
	share, byShare, _ := softMin(math.Log(b)-smaller, 0, bend/8) // an image and itself are beyond that
	factor, power := math.Exp(float64(overlapPower*share)), float64(overlapPower*byShare)
	score = 2 * p / e * factor
	weights := [3]float64{2 / e * factor, -score / e, power * score / b}
	var g [12]float64 // by the rows of m
	for j, w := range weights {
		for i := range g {
			g[i] += float64(w * t.grad[j][i])
		}
	}
	for k := range 3 { // m = toIndex c
		for r := range 3 {
			for j := range 3 {
				gradM[3*k+j] += float64(o.toIndex.M[3*r+k] * g[4*r+j])
			}
			gradT[k] += float64(o.toIndex.M[3*r+k] * g[4*r+3])
		}
	}
	if inverse, err := c.Inverse(); err == nil { // -log MM = log |det| + const, and d log|det M| = M^-T
		for k := range 3 {
			for j := range 3 {
				gradM[3*k+j] += float64(power * byMoving * score * inverse.M[3*j+k])
			}
		}
	}
	return score, gradM, gradT
}

// bend is the difference of logarithms up to which the overlap and the bodies count as nearly equal.
const bend = 0.1

// softMin returns the less of two numbers, with a bend for the kink where they are nearly equal: an optimum may lie
// there. It returns the derivatives by both, too.
func softMin(a, b, bend float64) (least, byA, byB float64) {
	d := a - b
	apart, slope := math.Abs(d), math.Copysign(1, d)
	if apart < bend {
		apart, slope = float64(d*d)/(2*bend)+float64(bend/2), d/bend
	}
	return float64((a + b - apart) / 2), float64((1 - slope) / 2), float64((1 + slope) / 2)
}

// strain returns how far the linear map m is from a rotation, and its gradient by m: the squared norm of the Hencky
// strain, the logarithms of m's singular values. Halving and doubling cost the same.
func strain(m [9]float64) (value float64, grad [9]float64) {
	var svd mat.SVD
	if !svd.Factorize(mat.NewDense(3, 3, m[:]), mat.SVDFull) {
		return math.Inf(1), grad
	}
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	for i, s := range svd.Values(nil) {
		s = max(s, 1e-6)
		l := math.Log(s)
		value += float64(l * l)
		for r := range 3 {
			for c := range 3 {
				grad[3*r+c] += float64(2 * l / s * u.At(r, i) * v.At(c, i))
			}
		}
	}
	return value, grad
}

// rotation is exp([w]x) (Rodrigues) with its derivatives by the three components of w.
func rotation(w [3]float64) (r [9]float64, d [3][9]float64) {
	theta2 := volume.Dot(w, w)
	theta := math.Sqrt(theta2)
	// R = I + a [w] + b [w]^2; a and b are even functions of theta, and a' / theta, b' / theta are da and db.
	var a, b, da, db float64
	if theta < 1e-3 {
		a, b = 1-theta2/6, 0.5-theta2/24
		da, db = -1.0/3+theta2/30, -1.0/12+theta2/180
	} else {
		sin, cos := math.Sincos(theta)
		a, b = sin/theta, (1-cos)/theta2
		da = (cos - a) / theta2
		db = (a - 2*b) / theta2
	}
	k := [9]float64{0, -w[2], w[1], w[2], 0, -w[0], -w[1], w[0], 0}
	kk := volume.Product(k, k)
	generators := [3][9]float64{{0, 0, 0, 0, 0, -1, 0, 1, 0}, {0, 0, 1, 0, 0, 0, -1, 0, 0}, {0, -1, 0, 1, 0, 0, 0, 0, 0}}
	for i := range r {
		r[i] = float64(a*k[i]) + float64(b*kk[i])
	}
	for i := range 3 {
		r[4*i]++
	}
	for axis, g := range generators {
		gk, kg := volume.Product(g, k), volume.Product(k, g)
		for i := range r {
			d[axis][i] = float64(w[axis]*(float64(da*k[i])+float64(db*kk[i]))) + float64(a*g[i]) + float64(b*(gk[i]+kg[i]))
		}
	}
	return r, d
}

// radius is the root mean square distance of the body's points from the centre, units.
func (o *objective) radius() float64 {
	total, n := 0.0, 0.0
	for i, p := range o.points {
		w := float64(o.weight[i] * o.body[i])
		total += float64(w * float64(float32(p[0]*p[0])+float32(p[1]*p[1])+float32(p[2]*p[2])))
		n += w
	}
	return max(math.Sqrt(total/max(n, 1)), 1)
}

// clusterRadius is the mean distance over the corners, mm, up to which two transforms count as one position.
func (o *objective) clusterRadius() float64 { return o.radius() / 4 * o.unit }

// corners are those of the box around the sample, LPS mm.
func (o *objective) corners() [][3]float64 {
	lo, hi := o.points[0], o.points[0]
	for _, p := range o.points {
		for a := range 3 {
			lo[a], hi[a] = min(lo[a], p[a]), max(hi[a], p[a])
		}
	}
	corners := make([][3]float64, 8)
	for c := range corners {
		for a := range 3 {
			corners[c][a] = float64(float64([2]float32{lo[a], hi[a]}[c>>a&1])*o.unit) + o.center[a]
		}
	}
	return corners
}

// centroid is the centre of mass of the body, LPS mm.
func centroid(w *resampled) [3]float64 {
	var c [3]float64
	for i, b := range w.body {
		for a, x := range w.grid.Point(i) {
			c[a] += float64(float64(b) * x)
		}
	}
	for a := range 3 {
		c[a] /= w.bodyCount
	}
	return w.grid.IndexToPhysical().Apply(c)
}
