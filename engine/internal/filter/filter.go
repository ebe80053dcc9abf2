// Package filter holds the separable filters of the voxel loops: float32, the same bits for any number of threads.
package filter

import (
	"math"
	"slices"
	"sync"

	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Rows reads or writes one row along x, at y and z, of each image filtered together; rows are valid only during the call. A
// filter calls one to fill rows, maybe twice, and another to take the result, concurrently.
type Rows func(y, z int, rows [][]float32)

// Band is the rows y of each slice z that are of interest: Band[z][0] <= y < Band[z][1]. Nil is all of them.
type Band [][2]int

// BandOf returns the least band that has the rows in shown, those of a slice side by side, of a grid of the given size.
func BandOf(size [3]int, shown []bool) Band {
	b := make(Band, size[2])
	for r, is := range shown {
		if y, z := r%size[1], r/size[1]; is {
			b[z] = union(b[z], [2]int{y, y + 1})
		}
	}
	return b
}

// Grown returns the band with n further rows and slices around it, on a grid of the given size (x, y, z).
func (b Band) Grown(size [3]int, n int) Band {
	if b == nil {
		return nil
	}
	grown := make(Band, len(b))
	for z := range grown {
		for _, rows := range b[max(z-n, 0):min(z+n+1, len(b))] {
			if rows[0] < rows[1] {
				grown[z] = union(grown[z], [2]int{max(rows[0]-n, 0), min(rows[1]+n, size[1])})
			}
		}
	}
	return grown
}

// Has says whether the row y, z is in the band.
func (b Band) Has(y, z int) bool { return b == nil || b[z][0] <= y && y < b[z][1] }

// lacks says whether the band has no row of the slice z.
func (b Band) lacks(z int) bool { return b != nil && (z < 0 || z >= len(b) || b[z][0] >= b[z][1]) }

// Alternate returns the band's rows in every second slice, of a grid of the given size.
func (b Band) Alternate(size [3]int) Band {
	half := make(Band, size[2])
	for z := 0; z < size[2]; z += 2 {
		if half[z] = [2]int{0, size[1]}; b != nil {
			half[z] = b[z]
		}
	}
	return half
}

// Clear sets the rows outside the band to 0 in the slices from, ..., to-1 of images of the given size (x, y, z). An image
// may be a ring of fewer slices.
func (b Band) Clear(size [3]int, from, to, threads int, images ...[]float32) {
	if b == nil {
		return
	}
	nx, area := size[0], size[0]*size[1]
	parallel.For(to-from, parallel.Rows(area), threads, func(lo, hi int) {
		for z := from + lo; z < from+hi; z++ {
			for _, p := range images {
				slice := p[z*area%len(p):][:area]
				clear(slice[:b[z][0]*nx])
				clear(slice[max(b[z][1], b[z][0])*nx:])
			}
		}
	})
}

// union returns the rows of both, and those between; a range without rows is none.
func union(a, b [2]int) [2]int {
	if a[0] >= a[1] {
		return b
	}
	if b[0] >= b[1] {
		return a
	}
	return [2]int{min(a[0], b[0]), max(a[1], b[1])}
}

// From fills rows from images of the given size (x, y, z), x fastest, or from rings of fewer slices.
func From(size [3]int, images ...[]float32) Rows {
	return func(y, z int, rows [][]float32) {
		for k, p := range images {
			copy(rows[k], p[(z*size[1]+y)*size[0]%len(p):])
		}
	}
}

// To puts rows into images of the given size, or into rings, which must not overlap what is read.
func To(size [3]int, images ...[]float32) Rows {
	return func(y, z int, rows [][]float32) {
		for k, p := range images {
			copy(p[(z*size[1]+y)*size[0]%len(p):], rows[k])
		}
	}
}

// Box sums images over the window of 2*radius+1 voxels a side around each voxel; what lies outside the grid counts as
// zero, so the filter is its own adjoint. It writes the rows of band alone.
func Box(size [3]int, radius, images, threads int, band Band, read, write Rows) {
	job{size: size, w: flat(radius, 1), images: images, threads: threads, band: band, read: read, write: write}.run()
}

// BoxSweep is Box under way, before its first slice. It does not read the slices of which shown has no row, as if they were 0.
func BoxSweep(size [3]int, radius, images, threads int, shown, band Band, read, write Rows) *Sweep {
	return job{size: size, w: flat(radius, 1), images: images, threads: threads, shown: shown, band: band, read: read, write: write}.sweep()
}

// Mean takes the mean of images over the window of 2*radius+1 voxels a side around each voxel; outside the grid the
// border repeats.
func Mean(size [3]int, radius, images, threads int, read, write Rows) {
	w := flat(radius, 1/float32(2*radius+1))
	job{size: size, w: w, repeat: true, images: images, threads: threads, read: read, write: write}.run()
}

// Gaussian convolves images with a normalised Gaussian of the given standard deviation in voxels of each axis (x, y,
// z), cut at three of them; 0 leaves an axis alone. Outside the grid the border repeats.
func Gaussian(size [3]int, sigma [3]float64, images, threads int, read, write Rows) {
	job{size: size, w: gaussian(sigma), repeat: true, images: images, threads: threads, read: read, write: write}.run()
}

// GaussianInPlace is Gaussian of images into themselves, whose rows outside band are 0. read may look at the rows and
// slices next to its own as well. seen, which may be nil, sees the rows of the result that may not be 0.
func GaussianInPlace(band Band, size [3]int, sigma [3]float64, threads int, read, seen Rows, images ...[]float32) {
	w := gaussian(sigma)
	band = band.Grown(size, max(len(w[1]), len(w[2]))-1)
	nx, area, part := size[0], size[0]*size[1], Part(size)
	if len(w[2]) == 1 {
		part = size[2] // the next slice to read looks at the last one written
	}
	memory := buffer(len(images) * part * area)
	defer pool.Put(memory)
	ring := make([][]float32, len(images))
	for k := range ring {
		ring[k] = (*memory)[k*part*area:][:part*area]
	}
	now, later := To(size, images...), To(size, ring...)
	var waits []bool // of a row: another tile may still read what it replaces
	write := func(y, z int, rows [][]float32) {
		if waits[y] {
			later(y, z, rows)
		} else {
			now(y, z, rows)
		}
		if seen != nil {
			seen(y, z, rows)
		}
	}
	s := job{size: size, w: w, repeat: true, images: len(images), threads: threads, band: band, read: read, write: write}.sweep()
	waits = s.shared(size[1], len(w[1]))
	if s.Ahead == 0 { // nor is the tile itself done with it
		waits = slices.Repeat([]bool{true}, size[1])
	}
	for from := 0; from < size[2]; from += part {
		to := min(from+part, size[2])
		s.To(to)
		parallel.For(to-from, parallel.Rows(area), threads, func(lo, hi int) {
			for z := from + lo; z < from+hi; z++ {
				for y, waits := range waits {
					if waits && band.Has(y, z) {
						at := z*area + y*nx
						for k, p := range images {
							copy(p[at:at+nx], ring[k][at-from*area:])
						}
					}
				}
			}
		})
	}
}

// Part is how many slices of an image of the given size a Sweep does well to go on by, an even number: few enough for
// the processor's cache.
func Part(size [3]int) int {
	const voxels, least = 1 << 19, 16
	return min(max(voxels/(size[0]*size[1])&^1, least), size[2])
}

// Add adds src, at least as long, to dst.
func Add(dst, src []float32) {
	for i := addVector(dst, src); i < len(dst); i++ {
		dst[i] += src[i]
	}
}

// flat returns the kernel of a window.
func flat(radius int, weight float32) [3][]float32 {
	w := slices.Repeat([]float32{weight}, radius+1)
	return [3][]float32{w, w, w}
}

// gaussian returns the kernel of a Gaussian of a standard deviation along each axis.
func gaussian(sigma [3]float64) [3][]float32 {
	return [3][]float32{half(sigma[0]), half(sigma[1]), half(sigma[2])}
}

// half returns the weights at distances 0, 1, ... of a normalised symmetric Gaussian kernel.
func half(sigma float64) []float32 {
	if sigma <= 0 {
		return []float32{1}
	}
	const nothing = 1e-7 // a weight that float32 loses beside that of the middle
	w := make([]float64, int(math.Ceil(3*sigma))+1)
	sum := 0.0
	for i := range w {
		w[i] = math.Exp(-0.5 * float64(i*i) / (sigma * sigma))
		if w[i] < nothing {
			w = w[:i]
			break
		}
		if sum += w[i]; i > 0 {
			sum += w[i]
		}
	}
	out := make([]float32, len(w))
	for i := range w {
		out[i] = float32(w[i] / sum)
	}
	return out
}

// job applies a symmetric kernel along x, y and z.
type job struct {
	size            [3]int
	w               [3][]float32 // the kernel's weights at distances 0, 1, ... along each axis
	repeat          bool         // the border, outside the grid; else that counts as 0
	images, threads int
	shown, band     Band // the slices of which shown has no row count as 0; the rows of band alone are written
	read, write     Rows
}

// run applies it to whole images.
//
// A goroutine takes a tile of rows and walks along z. It holds the tile's last slices, filtered along x and y, which
// stay in the processor's cache, so that an image is read from memory once and written once.
func (f job) run() {
	tiles, most := f.begin()
	segments := 1
	if f.threads > most {
		// A segment along z filters the slices beyond its ends as well.
		segments = min((f.threads+most-1)/most, max(1, f.size[2]/(4*len(f.w[2]))))
	}
	parallel.Each(tiles*segments, 1, f.threads, func(i int) {
		z := portion(i/tiles, segments, f.size[2])
		f.walk(portion(i%tiles, tiles, f.size[1]), z)(z[1])
	})
}

// portion returns the range of one of some parts, about equal, of n.
func portion(i, parts, n int) [2]int { return [2]int{i * n / parts, (i + 1) * n / parts} }

// begin makes the job's threads and its kernel definite. It returns into how many tiles the rows of a slice are divided,
// and the most that are worth while: lower ones would filter too many rows twice.
func (f *job) begin() (tiles, most int) {
	if f.size[2] == 1 {
		f.w[2] = across(f.w[2], f.repeat)
	}
	f.threads = parallel.Threads(f.threads)
	const held = 1 << 13 // voxels of a tile's slice
	ny, stride := f.size[1], f.size[0]+2*(len(f.w[0])-1)
	most = max(1, ny/max(16, 2*len(f.w[1])))
	if f.threads > most {
		return most, most
	}
	tiles = min(max(1, (ny*stride+held/2)/held), most)
	return min((tiles+f.threads-1)/f.threads*f.threads, ny), most
}

// Sweep is a filter under way along z. What it reads and what it writes need not exist as a whole.
type Sweep struct {
	Ahead   int // slices that it reads beyond those that it writes
	tiles   []func(end int)
	threads int
}

// sweep returns the job before its first slice.
func (f job) sweep() *Sweep {
	tiles, most := f.begin()
	if f.threads > most { // there are no segments
		tiles = min(f.threads, max(1, f.size[1]/8))
	}
	s := &Sweep{Ahead: len(f.w[2]) - 1, threads: f.threads}
	for t := range tiles {
		s.tiles = append(s.tiles, f.walk(portion(t, tiles, f.size[1]), [2]int{0, f.size[2]}))
	}
	return s
}

// shared returns which of ny rows lie so many rows or fewer from another tile.
func (s *Sweep) shared(ny, rows int) []bool {
	near := make([]bool, ny)
	for t := 1; t < len(s.tiles); t++ {
		first := t * ny / len(s.tiles)
		for y := max(first-rows, 0); y < min(first+rows, ny); y++ {
			near[y] = true
		}
	}
	return near
}

// To goes on until all slices before end are written. The last call must go to the end of the images.
func (s *Sweep) To(end int) {
	parallel.For(len(s.tiles), 1, s.threads, func(lo, hi int) {
		for _, walk := range s.tiles[lo:hi] {
			walk(end)
		}
	})
}

// across returns the kernel w for an axis of one voxel.
func across(w []float32, repeat bool) []float32 {
	sum := w[0]
	if repeat {
		for _, x := range w[1:] {
			sum += 2 * x
		}
	}
	return []float32{sum}
}

// walk filters the rows y[0], ..., y[1]-1 of the slices z[0], ..., z[1]-1. What it returns goes on to the slice before
// end; it lets go of its memory at the last one.
//
// Rows lie in the buffers with room for the border at both ends, so that one call filters all of a slice along any
// axis. Values in that room are not used.
func (f job) walk(y, z [2]int) func(end int) {
	nx, ny, nz := f.size[0], f.size[1], f.size[2]
	w, images, shown := f.w, f.images, f.shown
	rx, ry, rz := len(w[0])-1, len(w[1])-1, len(w[2])-1
	stride, height := nx+2*rx, y[1]-y[0]
	area, tall := height*stride, (height+2*ry)*stride
	in, out, rows := make([][]float32, images), make([][]float32, images), make([][]float32, images)
	slots := make([][]float32, images*(2*rz+1))
	memory := buffer(area*(1+len(slots)+images) + tall*(1+images))
	rest := *memory
	cut := func(n int) []float32 {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	zero := cut(area)
	clear(zero)
	for k := range in {
		in[k] = cut(tall)
		clear(in[k])
	}
	along := cut(tall)
	for k := range slots {
		slots[k] = cut(area)
	}
	for k := range out {
		out[k] = cut(area)
	}
	of := func(from [][]float32, row int) [][]float32 {
		for k := range rows {
			rows[k] = from[k][row*stride+rx:][:nx]
		}
		return rows
	}
	slot := func(image, z int) []float32 { return slots[image*(2*rz+1)+z%(2*rz+1)] }

	// near is the slice z of an image, filtered along x and y.
	near := func(image, z int) []float32 {
		if z < 0 || z >= nz {
			if !f.repeat {
				return zero
			}
			z = min(max(z, 0), nz-1)
		}
		if shown.lacks(z) {
			return zero
		}
		return slot(image, z)
	}
	pairs, taps := make([]pair, max(rx, ry, rz)), slices.Clone(w[2]) // taps: of the slices that are shown
	around := func(radius int, at func(d int) []float32) []pair {
		for d := 1; d <= radius; d++ {
			pairs[d-1] = pair{at(-d), at(d)}
		}
		return pairs[:radius]
	}
	// of a slice, the rows to write, counted from y[0]
	wanted := func(z int) [2]int {
		if f.band == nil {
			return [2]int{0, height}
		}
		return [2]int{max(f.band[z][0]-y[0], 0), min(f.band[z][1]-y[0], height)}
	}
	at := max(z[0]-rz, 0)
	step := func() {
		if at < nz && !shown.lacks(at) {
			var rows [2]int // that slices nearby need of this one
			for d := max(at-rz, z[0]); d <= min(at+rz, z[1]-1); d++ {
				rows = union(rows, wanted(d))
			}
			if lo, hi := rows[0], rows[1]; lo < hi {
				for row := lo; row < hi+2*ry; row++ {
					if from := y[0] - ry + row; from >= 0 && from < ny {
						f.read(from, at, of(in, row))
					}
				}
				for k, p := range in {
					p, along := p[lo*stride:(hi+2*ry)*stride], along[:(hi-lo+2*ry)*stride]
					border(p, stride, rx, ry, y[0]+lo, ny, f.repeat)
					symmetric(along[rx:len(along)-rx], p[rx:], around(rx, func(d int) []float32 { return p[rx+d:] }), w[0])
					symmetric(slot(k, at)[lo*stride:hi*stride], along[ry*stride:], around(ry, func(d int) []float32 { return along[(ry+d)*stride:] }), w[1])
				}
			}
		}
		done := at - rz
		if done < z[0] {
			return
		}
		rows := wanted(done)
		lo, hi := rows[0], rows[1]
		if lo >= hi {
			return
		}
		for k := range images {
			in, taps := pairs[:0], taps[:1]
			for d := 1; d <= rz; d++ {
				if !shown.lacks(done-d) || !shown.lacks(done+d) {
					in, taps = append(in, pair{near(k, done-d)[lo*stride:], near(k, done+d)[lo*stride:]}), append(taps, w[2][d])
				}
			}
			symmetric(out[k][lo*stride:hi*stride], near(k, done)[lo*stride:], in, taps)
		}
		for row := lo; row < hi; row++ {
			f.write(y[0]+row, done, of(out, row))
		}
	}
	return func(end int) {
		for ; at < end+rz; at++ {
			step()
		}
		if end == z[1] && memory != nil { // the first time
			pool.Put(memory)
			memory = nil
		}
	}
}

// pool keeps the buffers of walk, of which a registration needs thousands: as garbage they would grow to a share of the
// heap.
var pool = sync.Pool{New: func() any { return new([]float32) }}

// buffer returns n values from pool, of any content.
func buffer(n int) *[]float32 {
	p := pool.Get().(*[]float32)
	if cap(*p) < n {
		*p = make([]float32, n)
	}
	*p = (*p)[:n]
	return p
}

// border fills the room around the rows of p, the first of them ry before row y, with the border: rx voxels at their
// ends, and the rows that lie outside the grid of ny rows.
func border(p []float32, stride, rx, ry, y, ny int, repeat bool) {
	if !repeat {
		return // p was cleared and only rows within the grid are written
	}
	first, last := max(ry-y, 0), min(ny-y+ry, len(p)/stride)-1 // rows within the grid
	for row := first; row <= last; row++ {
		r := p[row*stride : (row+1)*stride]
		for i := range rx {
			r[i], r[stride-1-i] = r[rx], r[stride-1-rx]
		}
	}
	for row := range first {
		copy(p[row*stride:(row+1)*stride], p[first*stride:])
	}
	for row := last + 1; row < len(p)/stride; row++ {
		copy(p[row*stride:(row+1)*stride], p[last*stride:])
	}
}

// pair is the two rows at one distance to either side. The assembly knows its layout.
type pair struct{ before, after []float32 }

// symmetric writes w[0] center + sum over i of w[i+1] (before + after of pair i) to dst, which overlaps none of them.
func symmetric(dst, center []float32, pairs []pair, w []float32) {
	if len(pairs) == 0 { // w is 1
		copy(dst, center)
		return
	}
	if symmetricVector(dst, center, pairs, w) {
		return
	}
	for j, v := range center[:len(dst)] {
		dst[j] = w[0] * v
	}
	for i, p := range pairs {
		w, before, after := w[i+1], p.before[:len(dst)], p.after[:len(dst)]
		for j := range dst {
			dst[j] += float32(w * (before[j] + after[j]))
		}
	}
}
