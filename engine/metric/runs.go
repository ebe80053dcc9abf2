package metric

import (
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Run is the voxels From to To-1 of a row, counted along y and then z, that have one label.
type Run struct{ Row, From, To int32 }

// Runs is a label map by its labels: the runs of each but 0, in the voxels' order.
type Runs struct {
	size    [3]int
	byLabel map[int][][]Run
}

// RunsOf takes a label map of that size apart. What is no number counts as 0.
func RunsOf[T int32 | float32](data []T, size [3]int, threads int) *Runs {
	nx := size[0]
	const known = 1024 // labels that are looked up in a table
	type part struct {
		table [known]int32 // of places in runs, 0 where there is none
		other map[int]int32
		label []int
		runs  [][]Run
	}
	parts := parallel.Reduce(size[1]*size[2], 16*parallel.Rows(nx), threads, func(lo, hi int) []*part {
		f := &part{other: map[int]int32{}, label: []int{0}, runs: [][]Run{nil}}
		for r := lo; r < hi; r++ {
			row := data[r*nx : (r+1)*nx]
			for x := 0; x < nx; {
				from, v := x, row[x]
				for x++; x < nx && row[x] == v; x++ {
				}
				l := label(float64(v))
				if l == 0 {
					continue
				}
				k := int32(0)
				if l >= 0 && l < known {
					k = f.table[l]
				} else {
					k = f.other[l]
				}
				if k == 0 {
					k = int32(len(f.runs))
					f.label, f.runs = append(f.label, l), append(f.runs, nil)
					if l >= 0 && l < known {
						f.table[l] = k
					} else {
						f.other[l] = k
					}
				}
				f.runs[k] = append(f.runs[k], Run{int32(r), int32(from), int32(x)})
			}
		}
		return []*part{f}
	}, func(a, b []*part) []*part { return append(a, b...) })

	all := &Runs{size, map[int][][]Run{}}
	for _, f := range parts {
		for k, l := range f.label[1:] {
			all.byLabel[l] = append(all.byLabel[l], f.runs[k+1])
		}
	}
	return all
}

// label rounds a voxel of a label map to the nearest integer; what is not finite counts as background.
func label(x float64) int {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return int(math.Floor(x + 0.5))
}

// Labels returns the labels of the map but 0, ascending.
func (r *Runs) Labels() []int {
	return slices.Sorted(maps.Keys(r.byLabel))
}

// Rename gives label i, from 1, the name labels[i-1]; others are forgotten.
func (r *Runs) Rename(labels []int) {
	renamed := make(map[int][][]Run, len(labels))
	for i, l := range labels {
		if runs := r.byLabel[i+1]; runs != nil {
			renamed[l] = runs
		}
	}
	r.byLabel = renamed
}

// Of yields the runs of a label, in the voxels' order.
func (r *Runs) Of(label int) func(yield func(Run) bool) {
	return func(yield func(Run) bool) {
		for _, part := range r.byLabel[label] {
			for _, run := range part {
				if !yield(run) {
					return
				}
			}
		}
	}
}

// mask is a set of voxels, a bit each: 64 along x in a word. It holds a box with an empty margin around it.
type mask struct {
	lo    [3]int32 // the first word of a row, the first row, the first slice, margin included
	size  [3]int32 // in words, rows, slices
	words []uint64
	used  []int32 // words that are not 0, ascending
	count int
	thin  int // the axis along which the map has one voxel, and so no surface; -1: there is none
}

const margin = around // rows and slices, of which there may be none beyond the grid

// mask returns the voxels of a label.
func (r *Runs) mask(label int) *mask {
	lo, hi := [3]int32{1 << 30, 1 << 30, 1 << 30}, [3]int32{-1, -1, -1}
	ny, last := int32(r.size[1]), [2]int32{} // the first row of the slice that was looked at last, and that slice
	slice := func(row int32) (y, z int32) {
		if row < last[0] || row >= last[0]+ny {
			last = [2]int32{row / ny * ny, row / ny}
		}
		return row - last[0], last[1]
	}
	for run := range r.Of(label) {
		y, z := slice(run.Row)
		lo = [3]int32{min(lo[0], run.From>>6), min(lo[1], y), min(lo[2], z)}
		hi = [3]int32{max(hi[0], (run.To-1)>>6), max(hi[1], y), max(hi[2], z)}
	}
	m := &mask{thin: volume.Geometry{Size: r.size}.Thin()}
	for a, n := range [3]int32{1, margin, margin} {
		m.lo[a], m.size[a] = lo[a]-n, hi[a]-lo[a]+1+2*n
	}
	m.words = make([]uint64, m.size[0]*m.size[1]*m.size[2])
	for run := range r.Of(label) {
		y, z := slice(run.Row)
		o := ((z-m.lo[2])*m.size[1]+y-m.lo[1])*m.size[0] - m.lo[0]
		first, end := run.From>>6, (run.To-1)>>6
		for w := first; w <= end; w++ {
			bits := ^uint64(0)
			if w == first {
				bits <<= run.From & 63
			}
			if w == end {
				bits &= ^uint64(0) >> (63 - (run.To-1)&63)
			}
			if m.words[o+w] == 0 {
				m.used = append(m.used, o+w)
			}
			m.words[o+w] |= bits
		}
		m.count += int(run.To - run.From)
	}
	return m
}

// surface returns the voxels of a mask that have a face neighbour outside it; on a slice, one within the plane.
func (m *mask) surface() *mask {
	s := &mask{lo: m.lo, size: m.size, words: make([]uint64, len(m.words))}
	row, plane := m.size[0], m.size[0]*m.size[1]
	for _, i := range m.used {
		v := m.words[i]
		inner := ^uint64(0)
		if m.thin != 0 {
			inner &= (v<<1 | m.words[i-1]>>63) & (v>>1 | m.words[i+1]<<63)
		}
		if m.thin != 1 {
			inner &= m.words[i-row] & m.words[i+row]
		}
		if m.thin != 2 {
			inner &= m.words[i-plane] & m.words[i+plane]
		}
		if v &= ^inner; v != 0 {
			s.words[i] = v
			s.used = append(s.used, i)
			s.count += bits.OnesCount64(v)
		}
	}
	return s
}

// from returns where word i lies, counted from lo.
func (m *mask) from(lo [3]int32, i int32) (x, y, z int32) {
	row := i / m.size[0]
	return i - row*m.size[0] + m.lo[0] - lo[0], row%m.size[1] + m.lo[1] - lo[1], row/m.size[1] + m.lo[2] - lo[2]
}

// in returns the word of o that holds what word i of m does, and whether o has all words within its margin of that.
func (m *mask) in(o *mask, i int32) (place int32, inside bool) {
	x, y, z := m.from(o.lo, i)
	inside = x >= 1 && x < o.size[0]-1 && y >= margin && y < o.size[1]-margin && z >= margin && z < o.size[2]-margin
	return (z*o.size[1]+y)*o.size[0] + x, inside
}

// common returns how many voxels two masks share.
func (m *mask) common(o *mask) (n int) {
	for _, i := range m.used {
		if k, inside := m.in(o, i); inside {
			n += bits.OnesCount64(m.words[i] & o.words[k])
		}
	}
	return n
}

// points returns the voxels of a mask, brick after brick, and the boxes of those.
func (m *mask) points() (points []point, boxes []node) {
	y0, z0 := m.lo[1]/brick, m.lo[2]/brick // rounded towards 0, and so no brick is divided
	ny, nz := (m.lo[1]+m.size[1])/brick-y0+1, (m.lo[2]+m.size[2])/brick-z0+1
	type place struct{ x, y, z, next int32 } // of a word; the next one of its bricks, from 1
	places := make([]place, len(m.used))
	first, last := make([]int32, m.size[0]*ny*nz), make([]int32, m.size[0]*ny*nz)
	for k, i := range m.used {
		p := &places[k]
		p.x, p.y, p.z = m.from([3]int32{}, i)
		b := ((p.z/brick-z0)*ny+p.y/brick-y0)*m.size[0] + p.x - m.lo[0]
		if first[b] == 0 {
			first[b] = int32(k + 1)
		} else {
			places[last[b]-1].next = int32(k + 1)
		}
		last[b] = int32(k + 1)
	}
	points = make([]point, 0, m.count)
	for _, start := range first {
		all := uint64(0)
		for k := start; k != 0; k = places[k-1].next {
			all |= m.words[m.used[k-1]]
		}
		const one = 1<<brick - 1
		for all != 0 {
			x := bits.TrailingZeros64(all) / brick * brick
			all &^= one << x
			box := node{from: int32(len(points)), lo: point{1 << 30, 1 << 30, 1 << 30}}
			for k := start; k != 0; k = places[k-1].next {
				p := places[k-1]
				for v := m.words[m.used[k-1]] >> x & one; v != 0; v &= v - 1 {
					at := point{p.x<<6 + int32(x+bits.TrailingZeros64(v)), p.y, p.z}
					points = append(points, at)
					box.reach(at, at)
				}
			}
			box.to = int32(len(points))
			boxes = append(boxes, box)
		}
	}
	return points, boxes
}
