package aligned

import (
	"math"

	"github.com/morphseek/morphseek/engine/volume"
)

// Dark returns the value up to which a border counts as one dark value, of an image of this Range: lossy compression
// and resampling leave noise in it.
func Dark(lo, hi float32) float32 {
	const nearly = 0.01
	return lo + float32(nearly*(hi-lo))
}

// An image was cut out of its surroundings where the other one shows so much tissue in its border, as a share of what
// both show, and it shows at most so much in the border of the other. Tissue is brighter than so much of the range, and
// differs by so much of it from what lies at the image's edges: a contrast may make air bright.
const (
	leastAround = 0.15
	mostBeyond  = 0.03
	leastTissue = 0.10
	fromEdge    = 0.05
)

// CutOut returns a mask of what an image shows that was cut out of its surroundings, as a stripped brain or the sector
// of an ultrasound probe, where the other image has tissue under the pair's initial transform: the cut is no edge of
// the body. Both are nil where neither image is such a cutout of the other.
func (p Pair) CutOut(threads int) (fixed, moving *volume.Volume) {
	fixed, moving = content(p.Fixed), content(p.Moving)
	if fixed == nil && moving == nil {
		return nil, nil
	}
	const side = 64
	g := p.Grid(math.Cbrt(math.Abs(p.Fixed.IndexToPhysical().Det()) * float64(p.Fixed.Voxels()) / (side * side * side)))
	a := kinds(p.Fixed, fixed).Resample(g, volume.IdentityAffine(), volume.Nearest, outside, threads)
	b := kinds(p.Moving, moving).Resample(g, p.Initial, volume.Nearest, outside, threads)
	var both, aroundFixed, aroundMoving float64
	for i, x := range a.Data {
		switch y := b.Data[i]; {
		case x >= dim && y >= dim:
			both++
		case x == empty && y == tissue:
			aroundFixed++
		case y == empty && x == tissue:
			aroundMoving++
		}
	}
	cut := func(around, beyond float64) bool { return around >= leastAround*both && beyond <= mostBeyond*both }
	switch {
	case both > 0 && fixed != nil && cut(aroundFixed, aroundMoving):
		return fixed, nil
	case both > 0 && moving != nil && cut(aroundMoving, aroundFixed):
		return nil, moving
	}
	return nil, nil
}

// The kinds of voxels.
const (
	outside = iota // of the field of view
	empty          // in the dark border
	dim
	tissue
)

// kinds returns the kind of each voxel of v, whose content is known; nil is all of it.
func kinds(v, content *volume.Volume) *volume.Volume {
	out := volume.Zeros(v.Geometry)
	lo, hi := Range(v)
	bright, apart := lo+float32(leastTissue*(hi-lo)), float32(fromEdge*(hi-lo))
	var edge []float32
	for i, x := range v.Data {
		if atEdge(v.Geometry, i) {
			edge = append(edge, x)
		}
	}
	middle := float32(volume.Percentiles(edge, 50)[0])
	for i, x := range v.Data {
		switch {
		case content != nil && content.Data[i] == 0:
			out.Data[i] = empty
		case x > bright && (x > middle+apart || x < middle-apart):
			out.Data[i] = tissue
		default:
			out.Data[i] = dim
		}
	}
	return out
}

// content is 1 except in the dark border of one value, or nearly, that reaches the edges of v; nil where v has none.
func content(v *volume.Volume) *volume.Volume {
	dark := Dark(Range(v))
	out := volume.Zeros(v.Geometry)
	for i := range out.Data {
		out.Data[i] = 1
	}
	var front []int
	reach := func(i int) {
		if x := v.Data[i]; out.Data[i] != 0 && !(x > dark) { // NaN is border, too
			out.Data[i] = 0
			front = append(front, i)
		}
	}
	step := [3]int{1, v.Size[0], v.Size[0] * v.Size[1]}
	axes := v.Axes()
	for i := range v.Data {
		if atEdge(v.Geometry, i) {
			reach(i)
		}
	}
	if len(front) == 0 {
		return nil
	}
	for len(front) > 0 {
		i := front[len(front)-1]
		front = front[:len(front)-1]
		at := v.Index(i)
		for a := range axes {
			if at[a] > 0 {
				reach(i - step[a])
			}
			if at[a] < v.Size[a]-1 {
				reach(i + step[a])
			}
		}
	}
	return out
}

// atEdge says whether voxel i is one of the outermost of a grid.
func atEdge(g volume.Geometry, i int) bool {
	at := g.Index(i)
	for a := range g.Axes() {
		if at[a] == 0 || at[a] == g.Size[a]-1 {
			return true
		}
	}
	return false
}
