package volume

import (
	"math"
	"slices"
	"sync"
)

// largest is the greatest magnitude that counts as an intensity. Programs mark missing voxels by the greatest float32
// there is, of which no differences can be formed.
const largest = 1e37

// IsFinite reports whether x is an intensity: neither NaN nor an infinity, nor near to one.
func IsFinite(x float32) bool { return x >= -largest && x <= largest }

// intensities are what a registration asks of an image again and again.
type intensities struct {
	once        sync.Once
	least, most float32
	finite      bool // all voxels are
	percentiles []float64
}

// Frozen returns v as a volume whose voxels never change again: their range and the like are computed once.
func (v *Volume) Frozen() *Volume {
	return &Volume{Geometry: v.Geometry, Data: v.Data, frozen: &intensities{}}
}

// known returns the intensities of a frozen volume.
func (v *Volume) known() *intensities {
	v.frozen.once.Do(func() {
		plain := &Volume{Geometry: v.Geometry, Data: v.Data}
		v.frozen.least, v.frozen.most = plain.MinMax()
		v.frozen.percentiles = plain.ends()
		v.frozen.finite = plain.firstUnknown() < 0
	})
	return v.frozen
}

// MinMax returns the least and the greatest finite voxel, or +Inf and -Inf where no voxel is finite.
func (v *Volume) MinMax() (lo, hi float32) {
	if v.frozen != nil {
		return v.known().least, v.known().most
	}
	lo, hi = float32(math.Inf(1)), float32(math.Inf(-1))
	for _, x := range v.Data {
		if x < lo && x >= -largest {
			lo = x
		}
		if x > hi && x <= largest {
			hi = x
		}
	}
	if !IsFinite(lo) || !IsFinite(hi) { // what lies beyond on one side alone
		return float32(math.Inf(1)), float32(math.Inf(-1))
	}
	return lo, hi
}

// Range returns the intensities that count as 0 and 1: the 0.5th and the 99.5th percentile, where they differ.
func (v *Volume) Range() (lo, hi float32) {
	if p := v.ends(); p[3] > p[0] {
		return float32(p[0]), float32(p[3])
	}
	return v.MinMax()
}

// ends returns the 0.5th, the 5th, the 95th and the 99.5th percentile.
func (v *Volume) ends() []float64 {
	if v.frozen != nil {
		return v.known().percentiles
	}
	return v.Percentiles(0.5, 5, 95, 99.5)
}

// firstUnknown returns the index of the first voxel that is not finite; -1: there is none.
func (v *Volume) firstUnknown() int {
	return slices.IndexFunc(v.Data, func(x float32) bool { return !IsFinite(x) })
}

// Finite returns the volume with every NaN and infinity replaced: v itself where all voxels are finite, else a copy.
func (v *Volume) Finite(replacement float32) *Volume {
	if v.frozen != nil && v.known().finite {
		return v
	}
	first := v.firstUnknown()
	if first < 0 {
		return v
	}
	data := slices.Clone(v.Data)
	for i, x := range data[first:] {
		if !IsFinite(x) {
			data[first+i] = replacement
		}
	}
	return &Volume{Geometry: v.Geometry, Data: data}
}

// Filled returns the volume with its least finite voxel in place of those that are NaN or infinite; v itself where
// there are none.
func (v *Volume) Filled() *Volume {
	lo, _ := v.MinMax()
	return v.Finite(lo)
}

const (
	// far is how far beyond the 0.5th and the 99.5th percentile intensities still tell of what was imaged, in distances
	// between these two. Farther out lie failed fits of parameter maps and dead pixels (RATIONALE.md, Voxels that tell
	// nothing).
	far = 3

	// CT scanners fill what they did not reconstruct with a value below that of any tissue: -2000, -3024, -32768. Air is
	// -1000 HU, and its noise is cut off at -1024.
	noTissue, air, airTop = -1100, -1024, -900
	alike                 = 16   // HU up to which such values are one: lossy compression leaves noise
	padding               = 1e-3 // share of the voxels that have it
	nearlyAll             = 0.9  // of what is below all tissue has it

	level  = 1e-3 // of the range: values so near to an end of it are one
	grainy = 0.15 // of the range, the mean step between neighbours of noise, which has .22
)

// Plausible returns the volume without what tells nothing of what was imaged: v itself where there is none of that, else a copy.
// In it voxels that lie at equal steps, but for rounding, have no rounding; those far beyond the others, or filled in by a
// program, have the value of the percentile on their side, a CT scanner's padding that of the air beside it; and slices that
// were lost, single voxels whose fit failed, and single ones that are not finite have what lies between those beside them. Other
// voxels that are not finite stay. Measures that compare images by squares, or in bins from the least value to the greatest, see
// little else where there are such voxels.
func (v *Volume) Plausible() *Volume {
	as := v.Frozen() // so that its steps measure it once
	if out := as.stepped().unspoilt().bounded().darkened().whole().bridged(); out != as {
		return out
	}
	return v
}

// unspoilt returns v without single voxels far beyond nearly all others, which are not a number in it: fits of a parameter map
// that failed, so many that percentiles see them. One neighbour may have failed, too; bones and vessels have more. It returns
// v where there are none, or where most of what is as far out belongs together.
func (v *Volume) unspoilt() *Volume {
	const farther = 2 * far // distances between the 5th and the 95th percentile
	p := v.ends()
	beyond := float64(farther * (p[2] - p[1]))
	lo, hi := float32(p[1]-beyond), float32(p[2]+beyond)
	if least, most := v.MinMax(); !(beyond > 0) || least >= lo && most <= hi {
		return v
	}
	var single []int
	all := 0
	for i, x := range v.Data {
		if x >= lo && x <= hi || !IsFinite(x) {
			continue
		}
		at, alike := v.Index(i), 0
		for a, stride := range v.Strides() {
			for _, step := range []int{-1, 1} {
				if k := at[a] + step; k >= 0 && k < v.Size[a] {
					if y := v.Data[i+step*stride]; x < lo && y < lo || x > hi && y > hi {
						alike++
					}
				}
			}
		}
		if all++; alike <= 1 {
			single = append(single, i)
		}
	}
	if 2*len(single) <= all {
		return v
	}
	out := &Volume{Geometry: v.Geometry, Data: slices.Clone(v.Data)}
	for _, i := range single {
		out.Data[i] = float32(math.NaN())
	}
	return out
}

// bounded is Plausible without regard to slices.
func (v *Volume) bounded() *Volume {
	p := v.measured()
	low, high := float32(p[0]), float32(p[1])
	least, most := v.MinMax()
	lo, hi := least, most
	if span := p[1] - p[0]; span > 0 {
		lo, hi = max(lo, float32(p[0]-float64(far*span))), min(hi, float32(p[1]+float64(far*span)))
	}
	if lo <= noTissue && hi > air && v.padded(lo) {
		lo, low = air, v.air()
	}
	if lo == least && hi == most {
		return v
	}
	data := slices.Clone(v.Data)
	for i, x := range data {
		switch {
		case !IsFinite(x):
		case x < lo:
			data[i] = low
		case x > hi:
			data[i] = high
		}
	}
	return &Volume{Geometry: v.Geometry, Data: data}
}

// measured returns the 0.5th and the 99.5th percentile of the voxels. One that is a program's fill, as -9999 beside a map of 0
// to 1, would leave nothing of the contrast: a value far beyond all others does not count, unless these are noise, as in the
// image of a mask.
func (v *Volume) measured() []float64 {
	all := v.ends()
	p := []float64{all[0], all[3]}
	within := p[1] - p[0]
	if middle := v.shareTo(float32(p[0]+float64(0.7*within))) - v.shareTo(float32(p[0]+float64(0.3*within))); !(within > 0) || middle > 0.01 {
		return p // soon seen of nearly all images
	}
	near := float64(level * within)
	for end, counts := range []func(x float32) bool{
		func(x float32) bool { return IsFinite(x) && float64(x) > p[0]+near }, func(x float32) bool { return IsFinite(x) && float64(x) < p[1]-near },
	} {
		var values []float32
		steps, pairs := 0.0, 0.0
		for i, x := range v.Data {
			if !counts(x) {
				continue
			}
			if values = append(values, x); i > 0 && counts(v.Data[i-1]) {
				steps += math.Abs(float64(x - v.Data[i-1]))
				pairs++
			}
		}
		q := Percentiles(values, 0.5, 99.5)
		if span := q[1] - q[0]; math.Abs(q[end]-p[end]) > float64(far*span) && steps < float64(grainy*span*pairs) {
			return q
		}
	}
	return p
}

// Hounsfield reports whether v is a body in Hounsfield units: air near -1000, soft tissue near 0, next to nothing
// beyond what the scale reaches. It goes by some hundred thousand voxels; a scanner's padding does not count.
func (v *Volume) Hounsfield() bool {
	const (
		sample                     = 1 << 17
		softest, hardest           = -150, 150
		densest                    = 4096 // of twelve bits
		leastAir, leastSoft, stray = 0.01, 0.05, 0.001
	)
	all, airy, soft, beyond := 0.0, 0.0, 0.0, 0.0
	for i := 0; i < len(v.Data); i += max(1, len(v.Data)/sample) {
		x := v.Data[i]
		if !(x >= noTissue) {
			continue
		}
		all++
		switch {
		case x <= airTop:
			airy++
		case x >= softest && x <= hardest:
			soft++
		case x > densest:
			beyond++
		}
	}
	return airy > leastAir*all && soft > leastSoft*all && beyond <= stray*all
}

// air returns the median of the voxels of a CT that show air; that of a scanner that cuts them off, where none does.
func (v *Volume) air() float32 {
	var values []float32
	for _, x := range v.Data {
		if x > noTissue && x <= airTop {
			values = append(values, x)
		}
	}
	if len(values) == 0 {
		return air
	}
	return float32(Percentiles(values, 50)[0])
}

// padded says whether a scanner filled a part of v with about the value lo, below that of any tissue.
func (v *Volume) padded(lo float32) bool {
	filled := v.shareTo(lo + alike)
	return filled >= padding && filled >= nearlyAll*v.shareTo(noTissue)
}

// shareTo returns the share of the voxels whose value is x or less.
func (v *Volume) shareTo(x float32) float64 {
	n := 0
	for _, y := range v.Data {
		if y <= x {
			n++
		}
	}
	return float64(n) / float64(len(v.Data))
}

// Percentiles returns the ps-th percentiles (0..100) of the finite voxels.
func (v *Volume) Percentiles(ps ...float64) []float64 { return Percentiles(v.Data, ps...) }

// Percentiles returns the ps-th percentiles (0..100) of the finite values, exactly as numpy.percentile does with its
// linear rule; NaN where no value is finite. Two counting passes over 16-bit digits of the values' bits select the
// order statistics, so the cost is linear in the number of values.
func Percentiles(values []float32, ps ...float64) []float64 {
	const digits = 1 << 16
	high, total := make([]int, digits), 0
	for _, x := range values {
		if IsFinite(x) {
			high[orderedBits(x)>>16]++
			total++
		}
	}
	if total == 0 {
		return slices.Repeat([]float64{math.NaN()}, len(ps))
	}

	// digit returns the digit of the value of rank k, and its rank among those with that digit.
	digit := func(counts []int, k int) (d, within int) {
		for k >= counts[d] {
			k -= counts[d]
			d++
		}
		return d, k
	}
	place := make([]uint8, digits) // of a high digit's counts in low, from 1; 0: they do not matter
	low := [][]int{nil}
	ranks := make([][2]int, len(ps)) // that a percentile lies between
	for i, p := range ps {
		k := int(position(p, total))
		ranks[i] = [2]int{k, min(k+1, total-1)}
		for _, k := range ranks[i] {
			if d, _ := digit(high, k); place[d] == 0 {
				place[d] = uint8(len(low))
				low = append(low, make([]int, digits))
			}
		}
	}
	for _, x := range values {
		if b := orderedBits(x); place[b>>16] != 0 && IsFinite(x) {
			low[place[b>>16]][b&(digits-1)]++
		}
	}
	value := func(k int) float64 {
		d, within := digit(high, k)
		l, _ := digit(low[place[d]], within)
		return float64(fromOrderedBits(uint32(d)<<16 | uint32(l)))
	}
	out := make([]float64, len(ps))
	for i, p := range ps {
		pos := position(p, total)
		a, b := value(ranks[i][0]), value(ranks[i][1])
		out[i] = a + float64((b-a)*(pos-math.Floor(pos)))
	}
	return out
}

// position returns where the p-th percentile of n sorted values lies, in 0..n-1.
func position(p float64, n int) float64 {
	return float64(min(max(p, 0), 100) / 100 * float64(n-1))
}

// orderedBits maps floats to integers of the same order.
func orderedBits(x float32) uint32 {
	b := math.Float32bits(x)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

func fromOrderedBits(b uint32) float32 {
	return math.Float32frombits(b ^ (^uint32(int32(b)>>31) | 1<<31))
}
