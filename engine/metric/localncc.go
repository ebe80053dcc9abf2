package metric

import (
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// LocalNCC returns the mean over the mask of the squared local correlation cov(a,b)^2 / (var(a) var(b)), 0..1, in cubic
// windows of 2*radius+1 voxels cut off at the border (Avants et al., MedIA 2008). Only voxels inside the mask enter a
// window's statistics; a window in which an image is constant counts 0.
//
// Windows slide by running sums, so the cost a voxel does not depend on the radius.
func LocalNCC(a, b, mask *volume.Volume, radius, threads int) float64 {
	loA, hiA := a.MinMax()
	loB, hiB := b.MinMax()
	if !(loA < hiA && loB < hiB) {
		return 0
	}
	w := windows{
		a: a, b: b, mask: mask, radius: radius,
		shiftA: (float64(loA) + float64(hiA)) / 2, scaleA: 2 / (float64(hiA) - float64(loA)),
		shiftB: (float64(loB) + float64(hiB)) / 2, scaleB: 2 / (float64(hiB) - float64(loB)),
	}
	const slab = 16 // slices a chunk: fixed, so that the sums do not depend on the threads
	type result struct {
		n     int
		total float64
	}
	r := parallel.Reduce(a.Size[2], slab, threads, func(lo, hi int) (r result) {
		r.total, r.n = w.slab(lo, hi)
		return r
	}, func(s, t result) result { return result{s.n + t.n, s.total + t.total} })
	if r.n == 0 {
		return 0
	}
	return r.total / float64(r.n)
}

// windows computes box sums of (1, a, b, aa, bb, ab) over intensities scaled to -1..1.
type windows struct {
	a, b, mask                     *volume.Volume
	radius                         int
	shiftA, scaleA, shiftB, scaleB float64
}

const channels = 6

// slab returns the sum of the squared correlations over the selected voxels of slices lo..hi-1, and their number.
func (w *windows) slab(lo, hi int) (total float64, n int) {
	nx, ny, nz := w.a.Size[0], w.a.Size[1], w.a.Size[2]
	plane := nx * ny
	ring := make([][]float64, 2*w.radius+1) // the in-plane sums of the slices in the window
	for i := range min(len(ring), nz) {
		ring[i] = make([]float64, channels*plane)
	}
	column := make([]float64, channels*plane) // their sum
	row, rows := make([]float64, channels*nx), make([]float64, channels*plane)
	add := func(z int, sign float64) {
		for i, v := range ring[z%len(ring)] {
			column[i] += sign * v
		}
	}
	from := max(lo-w.radius, 0)
	for z := from; z < min(lo+w.radius, nz); z++ {
		w.slice(ring[z%len(ring)], rows, row, z)
		add(z, 1)
	}
	for z := lo; z < hi; z++ {
		if old := z - w.radius - 1; old >= from {
			add(old, -1)
		}
		if next := z + w.radius; next < nz {
			w.slice(ring[next%len(ring)], rows, row, next)
			add(next, 1)
		}
		for i := range plane {
			if !selected(w.mask, z*plane+i) {
				continue
			}
			n++
			s := column[channels*i : channels*i+channels]
			va, vb := s[3]-s[1]*s[1]/s[0], s[4]-s[2]*s[2]/s[0]
			const flat = 1e-9 // of the squared half range, times the voxels in the window
			if va > flat*s[0] && vb > flat*s[0] {
				cov := s[5] - s[1]*s[2]/s[0]
				total += min(cov*cov/(va*vb), 1)
			}
		}
	}
	return total, n
}

// slice writes the in-plane box sums of slice z to dst, channels interleaved. rows and row are scratch.
func (w *windows) slice(dst, rows, row []float64, z int) {
	nx, ny := w.a.Size[0], w.a.Size[1]
	wide := channels * nx
	for y := range ny {
		o := (z*ny + y) * nx
		for i := range nx {
			v := row[channels*i : channels*i+channels]
			clear(v)
			if selected(w.mask, o+i) {
				x := (float64(w.a.Data[o+i]) - w.shiftA) * w.scaleA
				y := (float64(w.b.Data[o+i]) - w.shiftB) * w.scaleB
				v[0], v[1], v[2], v[3], v[4], v[5] = 1, x, y, x*x, y*y, x*y
			}
		}
		windowSums(rows[y*wide:(y+1)*wide], row, nx, channels, w.radius)
	}
	windowSums(dst, rows, ny, wide, w.radius)
}

// windowSums writes to dst the running sums of src over windows of 2*radius+1 items cut off at the ends; an item is
// width floats, and there are n.
func windowSums(dst, src []float64, n, width, radius int) {
	first := dst[:width]
	clear(first)
	for i := range min(radius+1, n) {
		for c := range width {
			first[c] += src[i*width+c]
		}
	}
	for i := 1; i < n; i++ {
		prev, out := dst[(i-1)*width:i*width], dst[i*width:(i+1)*width]
		copy(out, prev)
		if next := i + radius; next < n {
			for c, v := range src[next*width : (next+1)*width] {
				out[c] += v
			}
		}
		if old := i - radius - 1; old >= 0 {
			for c, v := range src[old*width : (old+1)*width] {
				out[c] -= v
			}
		}
	}
}
