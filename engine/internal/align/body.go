package align

import (
	"math"
	"slices"
)

// foreground returns 1 on the body, else 0; without a background all that is valid is body. Voxels within half a bin of the
// threshold count in part: interpolated whole numbers crowd there, and noise would decide.
func foreground(w *resampled, b *background) []float32 {
	near := faces(w.grid.Size)[:2*w.image.Axes()]
	if b == nil {
		b = new(background)
	}
	if !b.known {
		*b = backgroundOf(w, near)
	}
	if !b.dark {
		return slices.Clone(w.valid)
	}
	bin := float32(b.bin * w.unit)
	from := float32(b.threshold*w.unit) - float32(bin/2)
	wide, tight := w.above(from, near), w.above(from+bin, near)
	count := 0.0
	body := make([]float32, len(w.valid))
	for i, in := range wide {
		switch {
		case w.valid[i] == 0:
		case tight[i]:
			body[i] = 1
		case in:
			body[i] = min(max((w.intensity[i]-from)/bin, 0), 1)
		}
		count += float64(body[i])
	}
	if count < float64(1+len(body)/500) {
		return slices.Clone(w.valid)
	}
	return body
}

// above returns what is brighter than threshold: opened, the largest piece, its holes in each slice filled.
func (w *resampled) above(threshold float32, near []int) []bool {
	bright := make([]bool, len(w.valid))
	for i, v := range w.valid {
		bright[i] = v > 0 && w.intensity[i] > threshold
	}
	core := largestComponent(erode(bright, near), near)
	return fillSlices(dilateWithin(core, bright, near), w.grid.Size)
}

// background is what tells an image's background from its body. It is of the image as it is first read: in other frames
// and on other grids the histogram may fall elsewhere.
type background struct {
	known          bool
	dark           bool    // there is one
	threshold, bin float32 // the intensity that ends it, and the width of the histogram's bins there
}

// backgroundOf finds the background: up to where the histogram ceases to fall behind a peak in its lowest quarter. There is
// none where there is no such peak or the border of the field of view is not part of it.
func backgroundOf(w *resampled, near []int) background {
	const bins = 256
	lo, hi := robustRange(w)
	if !(hi > lo) {
		return background{known: true}
	}
	at := func(x float32) int { return min(max(int(float64(x-lo)/float64(hi-lo)*bins), 0), bins-1) }
	var histogram [bins]float64
	total := 0.0
	for i, x := range w.intensity {
		if w.valid[i] > 0 {
			histogram[at(x)]++
			total++
		}
	}
	peak := 0
	for b := range bins / 4 {
		if around(histogram[:], b) > around(histogram[:], peak) {
			peak = b
		}
	}
	if peak == bins/4-1 || !falls(histogram[:]) {
		return background{known: true}
	}
	end := endOf(histogram[:], peak)
	threshold := lo + float32(float64(hi-lo)*(end+0.5)/bins)

	below := 0.0
	for _, n := range histogram[:int(end)+1] {
		below += n
	}
	var border, dark float64
	for i := range w.intensity {
		// On the border a face neighbour is not valid. The outermost voxels never are.
		if w.valid[i] > 0 && slices.ContainsFunc(near, func(d int) bool { return w.valid[i+d] == 0 }) {
			border++
			if w.intensity[i] <= threshold {
				dark++
			}
		}
	}
	return background{true, below >= 0.05*total && dark >= 0.2*border, threshold / w.unit, (hi - lo) / bins / w.unit}
}

// around is the mean of a histogram over the nine bins around b, or those of them that it has.
func around(histogram []float64, b int) (mean float64) {
	part := histogram[max(b-4, 0):min(b+5, len(histogram))]
	for _, n := range part {
		mean += n / float64(len(part))
	}
	return mean
}

// endOf returns where a histogram ceases to fall behind a peak, in bins: where what is around the ninth bin is .9 of what
// is around the first. Means over many voxels, and a place between bins, follow noise continuously.
func endOf(histogram []float64, peak int) float64 {
	const level = 0.9
	before := 0.0
	for b := peak; b < len(histogram)/2; b++ {
		here := around(histogram, b)
		left := around(histogram, b+8) / here
		switch {
		case here == 0 || b == peak && left >= level:
			return float64(b)
		case left < level:
			before = left
		default:
			return float64(b) - (left-level)/(left-before)
		}
	}
	return float64(len(histogram) / 2)
}

// falls says whether a histogram falls behind its highest peak in the lowest quarter as behind that of a background: by
// half at once, or to a valley that tissue follows. Where it only rises there, or hardly falls, the darkest voxels are
// the tail of the tissue, and where it goes on falling they are the tissue. It takes nine bins together, for images of
// whole numbers leave bins between them empty.
func falls(histogram []float64) bool {
	const (
		most  = 0.7 // of the peak, in the valley
		sharp = 0.5 // of the peak, in the next nine bins
		rise  = 1.3 // valleys, to the tissue
		least = 0.2 // of the peak, the tissue; less counts
		steep = 4.0 // above so many valleys
	)
	last := len(histogram)/4 - 1
	smooth := func(b, wide int) (sum float64) { // over so many bins to either side
		for _, n := range histogram[max(b-wide, 0):min(b+wide+1, len(histogram))] {
			sum += n
		}
		return sum
	}
	extreme := func(from, to, wide int, sign float64) int {
		at := from
		for b := from; b < to; b++ {
			if sign*smooth(b, wide) > sign*smooth(at, wide) {
				at = b
			}
		}
		return at
	}
	peak := extreme(0, last+1, 4, 1)
	valley := extreme(peak, len(histogram)/2, 4, -1)
	high, low := smooth(peak, 4), smooth(valley, 4)
	if peak == last || low > most*high {
		return false
	}
	if tissue := smooth(extreme(valley, len(histogram), 4, 1), 4); tissue >= max(rise*low, min(least*high, steep*low)) {
		return true
	}
	narrow := extreme(0, last+1, 2, 1)
	return smooth(extreme(narrow, narrow+10, 2, -1), 2) <= sharp*smooth(narrow, 2)
}

// robustRange returns the least valid intensity and one that about a hundredth of the valid voxels exceed.
func robustRange(w *resampled) (float32, float32) {
	lo, top := float32(math.Inf(1)), float32(math.Inf(-1))
	for i, x := range w.intensity {
		if w.valid[i] > 0 {
			lo, top = min(lo, x), max(top, x)
		}
	}
	if !(top > lo) {
		return lo, top
	}
	// Two rounds of counting: outliers may crowd everything else into a few bins of the first.
	hi := top
	for range 3 {
		var counts [1024]float64
		total := 0.0
		for i, x := range w.intensity {
			if w.valid[i] > 0 {
				counts[min(int(float64(x-lo)/float64(hi-lo)*1023), 1023)]++
				total++
			}
		}
		rest := 0.0
		for b := 1023; b >= 0; b-- {
			if rest += counts[b]; rest > total/100 {
				share := (rest - total/100) / counts[b] // of the bin, below the hundredth
				hi = lo + float32(float64(hi-lo)*(float64(b)+0.5+share)/1023)
				break
			}
		}
		// Not greater: one voxel stands out by more than float32 resolves the others.
		if hi >= float32(top*0.5)+float32(lo*0.5) || !(hi > lo) {
			break
		}
		top = hi
	}
	return lo, hi
}

// faces are the offsets of the face neighbours of a voxel that is not one of the outermost. Those are never part of a
// body.
func faces(n [3]int) []int {
	nx, nxy := n[0], n[0]*n[1]
	return []int{-1, 1, -nx, nx, -nxy, nxy}
}

func erode(in []bool, near []int) []bool {
	out := make([]bool, len(in))
	for i, v := range in {
		out[i] = v && !slices.ContainsFunc(near, func(d int) bool { return !in[i+d] })
	}
	return out
}

// dilateWithin adds the face neighbours that lie in limit.
func dilateWithin(in, limit []bool, near []int) []bool {
	out := slices.Clone(in)
	for i, v := range in {
		if v {
			for _, d := range near {
				out[i+d] = out[i+d] || limit[i+d]
			}
		}
	}
	return out
}

// flood takes a voxel and, through the offsets of neighbours, all that it leads to; it returns how many those are. Voxels
// are taken once: take says whether one is, and remembers it.
func flood(from int, near []int, take func(i int) bool) (size int) {
	if !take(from) {
		return 0
	}
	for stack := []int{from}; len(stack) > 0; size++ {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, d := range near {
			if take(i + d) {
				stack = append(stack, i+d)
			}
		}
	}
	return size
}

// largestComponent keeps the largest set connected through faces; the first of equals.
func largestComponent(in []bool, near []int) []bool {
	label := make([]int32, len(in)) // one more than the first voxel of the set
	best, most := int32(0), 0
	for first := range in {
		size := flood(first, near, func(i int) bool {
			taken := in[i] && label[i] == 0
			if taken {
				label[i] = int32(first + 1)
			}
			return taken
		})
		if size > most {
			best, most = int32(first+1), size
		}
	}
	out := make([]bool, len(in))
	for i, v := range in {
		out[i] = v && label[i] == best
	}
	return out
}

// fillSlices fills the holes of every z slice: what the slice's edge does not reach. Lungs are dark and, where the
// field of view cuts them, open above or below, but closed within a slice.
func fillSlices(in []bool, n [3]int) []bool {
	out := slices.Repeat([]bool{true}, len(in))
	area := n[0] * n[1]
	for first := 0; first < len(in); first += area {
		flood(first, faces(n)[:4], func(i int) bool { // the edge is never body, so its first voxel reaches all of it
			outside := i >= first && i < first+area && !in[i] && out[i]
			if outside {
				out[i] = false
			}
			return outside
		})
	}
	return out
}
