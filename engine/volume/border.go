package volume

import (
	"math"
	"slices"
)

// Border is what most of the outermost voxels have.
type Border struct {
	Middle float64 // their median
	Noise  float64 // standard deviation, as far as it is normal
	Reach  float64 // from the middle, of that noise
	Share  float64 // of the outermost voxels, within reach
}

// around is the share of the outermost voxels that a border has, at least, which surrounds all that an image shows.
const around = 0.9

// spreads is how many standard deviations of its noise a border reaches.
const spreads = 4

// Border measures the outermost voxels.
func (v *Volume) Border() Border {
	lo, hi := v.Range()
	edge, b := v.edge()
	b.Reach = max(float64(spreads*b.Noise), float64(level*(hi-lo)))
	b.Share = b.shareOf(edge)
	return b
}

// edge returns the outermost voxels, and their middle and noise.
func (v *Volume) edge() (values []float32, b Border) {
	const normal = 1.4826 // the standard deviation over the median one
	v.outermost(func(i int) { values = append(values, v.Data[i]) })
	b.Middle = Percentiles(values, 50)[0]
	apart := make([]float32, len(values))
	for i, x := range values {
		apart[i] = float32(math.Abs(float64(x) - b.Middle))
	}
	b.Noise = normal * Percentiles(apart, 50)[0]
	return values, b
}

// has says whether x is within the noise about the middle.
func (b Border) has(x float32) bool { return math.Abs(float64(x)-b.Middle) <= b.Reach }

// shareOf returns the share of some voxels that the border has.
func (b Border) shareOf(values []float32) float64 {
	count := 0
	for _, x := range values {
		if b.has(x) {
			count++
		}
	}
	return float64(count) / float64(len(values))
}

// DarkBorder returns the value up to which a border counts as one dark value: lossy compression and resampling leave noise in it.
// DarkBorder measures the noise of one that surrounds all that v shows; more than such programs leave tells air, which is imaged.
func (v *Volume) DarkBorder() float32 {
	const (
		nearly       = 0.01          // of the range, anywhere
		tissue       = 0.1           // of the range
		little, much = 0.0125, 0.015 // of the range, the noise: from one to the other it counts less and less
	)
	lo, hi := v.Range()
	dark, s := float64(lo+float32(nearly*(hi-lo))), v.Border()
	if s.Share < around || s.Middle > float64(lo+float32(tissue*(hi-lo))) {
		return float32(dark)
	}
	counts := min(max((much-s.Noise/float64(hi-lo))/(much-little), 0), 1)
	return float32(dark + float64(counts*max(s.Middle+s.Reach-dark, 0)))
}

// darkened returns v with its least voxel in place of a border of one value amid the tissue's: programs that normalise what lies
// in a mask leave 0 outside. It returns v where there is none.
func (v *Volume) darkened() *Volume {
	const (
		widest = 0.02 // of the range, which the noise of such a border may fill
		most   = 0.5  // of the outermost voxels, at least, have the border's value
		apart  = 0.1  // of the range, from the border: the noise of air is nearer
		least  = 0.01 // of all voxels are as far, ...
		beside = 0.2  // ... of which so many are darker, and as many brighter
	)
	lowest, highest := v.MinMax()
	if _, b := v.edge(); !(b.Middle > float64(lowest)) || float64(spreads*b.Noise) > float64(widest*(highest-lowest)) {
		return v // soon seen of nearly all images
	}
	lo, hi := v.Range()
	s := v.Border()
	if s.Reach > float64(widest*(hi-lo)) || s.Share < most {
		return v
	}
	away := float64(apart * (hi - lo))
	darker, brighter := 0.0, 0.0
	for _, x := range v.Data {
		switch {
		case float64(x) < s.Middle-away:
			darker++
		case float64(x) > s.Middle+away:
			brighter++
		}
	}
	if others := darker + brighter; others < least*float64(len(v.Data)) || min(darker, brighter) < beside*others {
		return v
	}
	data := slices.Clone(v.Data)
	for i, border := range v.FromEdge(func(i int) bool { return s.has(v.Data[i]) }) {
		if border {
			data[i] = lowest
		}
	}
	return &Volume{Geometry: v.Geometry, Data: data}
}

// FromEdge returns for each voxel whether the outermost ones lead to it, through faces and voxels of one kind.
func (v *Volume) FromEdge(isKind func(i int) bool) []bool {
	reached := make([]bool, len(v.Data))
	nx, slice := v.Size[0], v.Size[0]*v.Size[1]
	type run struct{ from, to int } // of a row
	var front []run
	isNew := func(i int) bool { return !reached[i] && isKind(i) }
	reach := func(i int) {
		if !isNew(i) {
			return
		}
		r := run{i, i + 1}
		for r.from%nx > 0 && isNew(r.from-1) {
			r.from--
		}
		for r.to%nx > 0 && isNew(r.to) {
			r.to++
		}
		for k := r.from; k < r.to; k++ {
			reached[k] = true
		}
		front = append(front, r)
	}
	v.outermost(reach)
	for len(front) > 0 {
		r := front[len(front)-1]
		front = front[:len(front)-1]
		beside := func(step int) {
			for i := r.from + step; i < r.to+step; i++ {
				reach(i)
			}
		}
		y := r.from / nx % v.Size[1]
		if y > 0 {
			beside(-nx)
		}
		if y < v.Size[1]-1 {
			beside(nx)
		}
		if r.from >= slice {
			beside(-slice)
		}
		if r.to+slice <= len(v.Data) {
			beside(slice)
		}
	}
	return reached
}

// outermost calls f with the index of each of the outermost voxels of a grid, in order.
func (g Geometry) outermost(f func(i int)) {
	for r := range g.Size[1] * g.Size[2] {
		y, z, step := r%g.Size[1], r/g.Size[1], max(g.Size[0]-1, 1)
		if y == 0 || y == g.Size[1]-1 || !g.Flat() && (z == 0 || z == g.Size[2]-1) {
			step = 1
		}
		for x := 0; x < g.Size[0]; x += step {
			f(r*g.Size[0] + x)
		}
	}
}
