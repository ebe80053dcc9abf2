package volume

// Box is the voxels Lo to Hi-1 along each axis; empty where Hi <= Lo.
type Box struct{ Lo, Hi [3]int }

// EmptyBox holds no voxel of a grid of the given size: With and Union grow it.
func EmptyBox(size [3]int) Box { return Box{Lo: size} }

// With returns the smallest box around b and the voxel p.
func (b Box) With(p [3]int) Box {
	return b.Union(Box{p, [3]int{p[0] + 1, p[1] + 1, p[2] + 1}})
}

// Union returns the smallest box around both.
func (b Box) Union(o Box) Box {
	for a := range 3 {
		b.Lo[a], b.Hi[a] = min(b.Lo[a], o.Lo[a]), max(b.Hi[a], o.Hi[a])
	}
	return b
}

// Grown returns b with by voxels more on every side, within a grid of the given size.
func (b Box) Grown(by int, size [3]int) Box {
	for a := range 3 {
		b.Lo[a], b.Hi[a] = max(b.Lo[a]-by, 0), min(b.Hi[a]+by, size[a])
	}
	return b
}

// Size returns the number of voxels along each axis.
func (b Box) Size() (n [3]int) {
	for a := range 3 {
		n[a] = b.Hi[a] - b.Lo[a]
	}
	return n
}

// Crop copies what of a plane of the given size lies in b.
func (b Box) Crop(plane []float32, size [3]int) []float32 {
	n := b.Size()
	out := make([]float32, 0, n[0]*n[1]*n[2])
	for z := b.Lo[2]; z < b.Hi[2]; z++ {
		for y := b.Lo[1]; y < b.Hi[1]; y++ {
			row := (z*size[1] + y) * size[0]
			out = append(out, plane[row+b.Lo[0]:row+b.Hi[0]]...)
		}
	}
	return out
}
