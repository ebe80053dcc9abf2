package field

// box is a range of voxels, lo to hi-1 along each axis; empty where hi <= lo.
type box struct{ lo, hi [3]int }

// with is the smallest box around b and the voxel p.
func (b box) with(p [3]int) box {
	return b.union(box{p, [3]int{p[0] + 1, p[1] + 1, p[2] + 1}})
}

// union is the smallest box around both.
func (b box) union(o box) box {
	for a := range 3 {
		b.lo[a], b.hi[a] = min(b.lo[a], o.lo[a]), max(b.hi[a], o.hi[a])
	}
	return b
}

// grown is b with by voxels more on every side, within a grid of the given size.
func (b box) grown(by int, size [3]int) box {
	for a := range 3 {
		b.lo[a], b.hi[a] = max(b.lo[a]-by, 0), min(b.hi[a]+by, size[a])
	}
	return b
}

func (b box) size() (n [3]int) {
	for a := range 3 {
		n[a] = b.hi[a] - b.lo[a]
	}
	return n
}

// crop copies what of a plane of the given size lies in b.
func (b box) crop(plane []float32, size [3]int) []float32 {
	n := b.size()
	out := make([]float32, 0, n[0]*n[1]*n[2])
	for z := b.lo[2]; z < b.hi[2]; z++ {
		for y := b.lo[1]; y < b.hi[1]; y++ {
			row := (z*size[1] + y) * size[0]
			out = append(out, plane[row+b.lo[0]:row+b.hi[0]]...)
		}
	}
	return out
}
