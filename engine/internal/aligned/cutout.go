package aligned

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/volume"
)

// An image was cut out of its surroundings where the other one shows so much tissue in its border, as a share of what
// both show, and it shows at most so much in the border of the other. Tissue is brighter than so much of the range, and
// differs by so much of it from what lies at the image's edges, and by more than the noise there, if that is little: a
// contrast may make air bright.
const (
	leastAround = 0.15
	mostBeyond  = 0.03
	leastTissue = 0.10
	fromEdge    = 0.05
	mostNoise   = 0.03
)

// CutOut returns a mask of what an image shows that was cut out (a stripped brain, the sector of a probe) of tissue that
// the other has under the initial transform: the cut is no edge of the body. Else both are nil.
func (p Pair) CutOut(threads int) (fixed, moving *volume.Volume) {
	fixed, fixedCut := content(p.Fixed)
	moving, movingCut := content(p.Moving)
	if !fixedCut && !movingCut {
		return nil, nil
	}
	const side = 64
	g := p.Grid(math.Cbrt(math.Abs(p.Fixed.IndexToPhysical().Det()) * float64(p.Fixed.Voxels()) / (side * side * side)))
	a := kinds(p.Fixed, fixed, g, volume.IdentityAffine(), threads)
	b := kinds(p.Moving, moving, g, p.Initial, threads)
	var both, aroundFixed, aroundMoving float64
	for i, x := range a {
		switch y := b[i]; {
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
	case both > 0 && fixedCut && cut(aroundFixed, aroundMoving):
		return fixed, nil
	case both > 0 && movingCut && cut(aroundMoving, aroundFixed):
		return nil, moving
	}
	return nil, nil
}

// A voxel is of one of these kinds.
const (
	outside = iota // of the field of view
	empty          // in the dark border
	dim
	tissue
)

// kinds returns the kinds of the voxels of v, whose content is known, that are nearest to those of g under a.
func kinds(v, content *volume.Volume, g volume.Geometry, a volume.Affine, threads int) []int {
	lo, hi := v.Range()
	bright, apart, border := lo+float32(leastTissue*(hi-lo)), float64(fromEdge*(hi-lo)), v.Border()
	if border.Noise <= float64(mostNoise*(hi-lo)) {
		apart = max(apart, border.Reach)
	}
	const beyond = -1
	shown, values := content.Resample(g, a, volume.Nearest, beyond, threads), v.Resample(g, a, volume.Nearest, 0, threads)
	out := make([]int, len(values.Data))
	for i, x := range values.Data {
		switch {
		case shown.Data[i] == beyond:
			out[i] = outside
		case shown.Data[i] == 0:
			out[i] = empty
		case x > bright && math.Abs(float64(x)-border.Middle) > apart:
			out[i] = tissue
		default:
			out[i] = dim
		}
	}
	return out
}

// content is 1 except in the dark border of one value, or nearly, that reaches the edges of v. bordered says whether v
// has one.
func content(v *volume.Volume) (out *volume.Volume, bordered bool) {
	dark := v.DarkBorder()
	out = &volume.Volume{Geometry: v.Geometry, Data: slices.Repeat([]float32{1}, len(v.Data))}
	for i, border := range v.FromEdge(func(i int) bool { return !(v.Data[i] > dark) }) { // NaN is border, too
		if border {
			out.Data[i], bordered = 0, true
		}
	}
	return out, bordered
}

// Known returns a mask of an image without its holes: voxels that are not finite, but for those of its dark border. It is the
// mask itself, which may be nil, where there are none, or nothing would be left.
func Known(v, mask *volume.Volume) *volume.Volume {
	if v.Finite(0) == v {
		return mask
	}
	known, _ := content(v)
	holes, left := false, false
	for i, x := range v.Data {
		hole := known.Data[i] != 0 && !volume.IsFinite(x)
		switch holes = holes || hole; {
		case hole:
			known.Data[i] = 0
		case mask != nil:
			known.Data[i] = mask.Data[i]
		default:
			known.Data[i] = 1
		}
		left = left || known.Data[i] != 0
	}
	if !holes || !left {
		return mask
	}
	return known
}
