package volume

import (
	"math"
	"slices"
)

// Shown returns the box around what v shows. Planes at an edge that repeat the next one, or have no finite voxel, are outside:
// a file's padding tells nothing. Of blank ones some stay, but for a frame's: beside it the image fills its whole width. Where a
// border of one value surrounds all that v shows, as many lie beyond v where it has fewer, or was cut close: the border went on.
// Planes along an axis that are all alike stay inside.
func (v *Volume) Shown() Box {
	const (
		alike = 0.002   // of the range, which padding does not change as it does percentiles; a scanner's noise is larger
		kept  = 4       // blank planes, ...
		share = 1. / 16 // ... or so many of the box's, if that is less
		still = 0.015   // of the range, the noise of a border that goes on
	)
	least, greatest := v.MinMax()
	most := float64(alike) * (float64(greatest) - float64(least))
	border := v.Border()
	from, to := v.Range()
	goesOn := border.Share >= around && border.Reach <= float64(still*(to-from))
	b := Box{Hi: v.Size}
	inner := b // without blank planes
	for a := range v.Axes() {
		lo, hi := 0, v.Size[a]
		for hi-lo > 2 && v.tellsNothing(a, lo, lo+1, most) {
			lo++
		}
		for hi-lo > 2 && v.tellsNothing(a, hi-1, hi-2, most) {
			hi--
		}
		if hi-lo <= 2 {
			continue
		}
		b.Lo[a], b.Hi[a], inner.Lo[a], inner.Hi[a] = lo, hi, lo, hi
		if v.isBlank(a, lo, most) {
			inner.Lo[a]++
		}
		if v.isBlank(a, hi-1, most) {
			inner.Hi[a]--
		}
	}
	for a := range v.Axes() {
		lo, hi := b.Lo[a], b.Hi[a]
		if hi-lo <= 2 {
			continue
		}
		blank := min(kept, max(int(share*float64(hi-lo)), 1))
		outside := func(k, inwards, within int, isBlank bool) int { // planes of the box beyond plane k, of which v has so many
			switch {
			case !isBlank && goesOn && v.isGrazed(a, k, inwards, border):
				return blank
			case !isBlank:
				return 0
			case inner.Hi[a]-inner.Lo[a] > 2 && v.isFramed(a, k, k+inwards, inner, most):
				return -1
			case goesOn:
				return blank - 1
			}
			return min(blank-1, within)
		}
		b.Lo[a] = lo - outside(lo, 1, lo, inner.Lo[a] > lo)
		b.Hi[a] = hi + outside(hi-1, -1, v.Size[a]-hi, inner.Hi[a] < hi)
	}
	return b
}

// isGrazed says whether what v shows ends in plane k across an axis, as a round body does that its image was cut close to: of the
// plane at most half as much differs from the border as of the one two planes farther in.
func (v *Volume) isGrazed(axis, k, inwards int, border Border) bool {
	const least = 0.005 // of the inner plane
	part := func(k int) (share float64) {
		plane, _ := v.plane(axis, k)
		return 1 - border.shareOf(plane)
	}
	inside := part(k + 2*inwards)
	return inside >= least && part(k) <= inside/2
}

// isFramed says whether a blank plane across an axis is of a frame that a program put around an image: within b nearly all
// voxels of the next plane differ from it. Beside a body's end few do.
func (v *Volume) isFramed(axis, blank, next int, b Box, most float64) bool {
	const nearly = 0.9
	b.Lo[axis], b.Hi[axis] = blank, blank+1
	frame := b.Crop(v.Data, v.Size)
	b.Lo[axis], b.Hi[axis] = next, next+1
	differ := 0
	for i, x := range b.Crop(v.Data, v.Size) {
		if math.Abs(float64(x)-float64(frame[i])) > most {
			differ++
		}
	}
	return float64(differ) >= nearly*float64(len(frame))
}

// tellsNothing says whether plane k across an axis has no finite voxel, or repeats another one: the mean of their
// difference over a square is at most most everywhere.
func (v *Volume) tellsNothing(axis, k, other int, most float64) bool {
	p, nx := v.plane(axis, k)
	q, _ := v.plane(axis, other)
	finite, alike := false, true
	for i, x := range p {
		finite = finite || IsFinite(x)
		switch {
		case IsFinite(x) && IsFinite(q[i]):
			p[i] -= q[i]
		case IsFinite(x) != IsFinite(q[i]):
			alike = false
		default:
			p[i] = 0
		}
	}
	return !finite || alike && isWithin(p, nx, most)
}

// isBlank says whether the means over squares of plane k across an axis differ by at most most from its own.
func (v *Volume) isBlank(axis, k int, most float64) bool {
	p, nx := v.plane(axis, k)
	mean, n := 0.0, 0.0
	for _, x := range p {
		if IsFinite(x) {
			mean += float64(x)
			n++
		}
	}
	for i, x := range p {
		if p[i] = 0; IsFinite(x) {
			p[i] = float32(float64(x) - mean/n)
		}
	}
	return isWithin(p, nx, most)
}

// plane returns a copy of plane k across an axis, and how long its rows are.
func (v *Volume) plane(axis, k int) (values []float32, nx int) {
	b := Box{Hi: v.Size}
	b.Lo[axis], b.Hi[axis] = k, k+1
	nx = v.Size[0]
	if axis == 0 {
		nx = v.Size[1]
	}
	return b.Crop(v.Data, v.Size), nx
}

// isWithin says whether the mean over any square of a plane with rows of nx voxels, which counts as zero beyond its edges,
// is at most most. Noise hardly moves such means.
func isWithin(plane []float32, nx int, most float64) bool {
	const side = 8
	ny, wide := len(plane)/nx, nx+1
	sums := make([]float64, wide*(ny+1)) // of all voxels before and above
	for y := range ny {
		row := 0.0
		for x, value := range plane[y*nx:][:nx] {
			row += float64(value)
			sums[(y+1)*wide+x+1] = sums[y*wide+x+1] + row
		}
	}
	for y := range ny + side - 1 { // the square's last row
		above, below := max(y+1-side, 0)*wide, min(y+1, ny)*wide
		for x := range nx + side - 1 {
			before, behind := max(x+1-side, 0), min(x+1, nx)
			if math.Abs(sums[below+behind]-sums[above+behind]-sums[below+before]+sums[above+before]) > side*side*most {
				return false
			}
		}
	}
	return true
}

// Cropped returns the part of v in a box, frozen where v is; nil (no mask) stays nil. Planes beyond v have the median of its
// outermost one.
func (v *Volume) Cropped(b Box) *Volume {
	if v == nil || b == (Box{Hi: v.Size}) {
		return v
	}
	whole := v
	for a := range v.Size {
		below, above := max(-b.Lo[a], 0), max(b.Hi[a]-v.Size[a], 0)
		whole = whole.extended(a, below, above)
		b.Lo[a], b.Hi[a] = b.Lo[a]+below, b.Hi[a]+below
	}
	part := &Volume{Geometry: whole.Part(b).rounded(), Data: b.Crop(whole.Data, whole.Size)}
	if v.frozen != nil {
		return part.Frozen()
	}
	return part
}

// extended returns v with so many planes more below and above it along an axis, of the median of the outermost one.
func (v *Volume) extended(axis, below, above int) *Volume {
	if below == 0 && above == 0 {
		return v
	}
	b := Box{Hi: v.Size}
	b.Lo[axis], b.Hi[axis] = -below, v.Size[axis]+above
	out := Zeros(v.Part(b))
	first, last := v.middleOf(axis, 0), v.middleOf(axis, v.Size[axis]-1)
	for i := range out.Data {
		at := out.Index(i)
		at[axis] -= below
		switch k := at[axis]; {
		case k < 0:
			out.Data[i] = first
		case k >= v.Size[axis]:
			out.Data[i] = last
		default:
			out.Data[i] = v.Data[(at[2]*v.Size[1]+at[1])*v.Size[0]+at[0]]
		}
	}
	return out
}

// middleOf returns the median of plane k across an axis.
func (v *Volume) middleOf(axis, k int) float32 {
	plane, _ := v.plane(axis, k)
	return float32(Percentiles(plane, 50)[0])
}

// whole returns v with up to two planes side by side that hold one value, between others that hold more, replaced by what lies
// between these: a lost slice is an edge across all of the body, by which images would be matched. It returns v where there are
// none.
func (v *Volume) whole() *Volume {
	const (
		widest = 2    // planes; a wider gap may be between two bodies
		alike  = 0.01 // of the range, which exceeds the noise on a constant
	)
	least, greatest := v.MinMax()
	out, most := v, float32(alike*(float64(greatest)-float64(least)))
	for a := range v.Axes() {
		b := Box{Hi: v.Size}
		last := -1 // plane that is not lost
		for k := range v.Size[a] {
			if b.Lo[a], b.Hi[a] = k, k+1; v.isConstant(b, most) {
				continue
			}
			if last >= 0 && last < k-1 && k-last-1 <= widest {
				if out == v {
					out = &Volume{Geometry: v.Geometry, Data: slices.Clone(v.Data)}
				}
				out.bridge(a, last, k)
			}
			last = k
		}
	}
	return out
}

// bridged returns v with voxels that are not finite, one or two in a row between two that are, as what lies between these: a
// fit that failed is no dark tissue. It returns v where there are none.
func (v *Volume) bridged() *Volume {
	const widest = 2
	out, first := v, v.firstUnknown()
	for i := max(first, 0); first >= 0 && i < len(v.Data); i++ {
		if IsFinite(v.Data[i]) {
			continue
		}
		at, sum, n := v.Index(i), float32(0), float32(0)
		for a, stride := range v.Strides() {
			beside := func(step, most int) (k int) { // voxels to the next finite one
				for k = 1; k <= min(most, widest) && !IsFinite(v.Data[i+k*step]); k++ {
				}
				return k
			}
			before, behind := beside(-stride, at[a]), beside(stride, v.Size[a]-1-at[a])
			if before > at[a] || behind >= v.Size[a]-at[a] || before+behind-1 > widest {
				continue
			}
			x, y := v.Data[i-before*stride], v.Data[i+behind*stride]
			sum += x + float32((y-x)*float32(before)/float32(before+behind))
			n++
		}
		if n == 0 {
			continue
		}
		if out == v {
			out = &Volume{Geometry: v.Geometry, Data: slices.Clone(v.Data)}
		}
		out.Data[i] = sum / n
	}
	return out
}

// isConstant says whether the finite voxels in a box differ by at most most.
func (v *Volume) isConstant(b Box, most float32) bool {
	lo, hi := float32(math.Inf(1)), float32(math.Inf(-1))
	for z := b.Lo[2]; z < b.Hi[2]; z++ {
		for y := b.Lo[1]; y < b.Hi[1]; y++ {
			for _, x := range v.Data[(z*v.Size[1]+y)*v.Size[0]:][b.Lo[0]:b.Hi[0]] {
				if IsFinite(x) {
					lo, hi = min(lo, x), max(hi, x)
				}
				if hi-lo > most {
					return false
				}
			}
		}
	}
	return true
}

// bridge sets the planes across an axis between two of them to what lies between these.
func (v *Volume) bridge(axis, from, to int) {
	stride := v.Strides()[axis]
	for i := range v.Data {
		if k := v.Index(i)[axis]; k > from && k < to {
			a, b := v.Data[i-(k-from)*stride], v.Data[i+(to-k)*stride]
			v.Data[i] = a + float32((b-a)*float32(k-from)/float32(to-from))
		}
	}
}
