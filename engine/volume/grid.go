package volume

import "math"

// Canonical returns the same grid of points with its axes permuted and flipped so that they run as nearly as can be
// along L, P and S (SimpleITK's DICOMOrient "LPS"): axis a of the result is axis perm[a] of g, reversed where flip[a].
func (g Geometry) Canonical() (canonical Geometry, perm [3]int, flip [3]bool) {
	perm = [3]int{-1, -1, -1}
	var taken [3]bool
	for range 3 { // the largest cosine left decides, its row and column then drop out
		best, row, col := -1.0, 0, 0
		for r := range 3 {
			for c := range 3 {
				if d := math.Abs(g.Direction[3*r+c]); perm[r] < 0 && !taken[c] && d >= best {
					best, row, col = d, r, c
				}
			}
		}
		perm[row], taken[col] = col, true
		flip[row] = g.Direction[3*row+col] < 0
	}

	var first [3]float64 // index in g of the result's first voxel
	for a, c := range perm {
		canonical.Size[a], canonical.Spacing[a] = g.Size[c], g.Spacing[c]
		sign := 1.0
		if flip[a] {
			sign = -1
			first[c] = float64(g.Size[c] - 1)
		}
		for r := range 3 {
			canonical.Direction[3*r+a] = sign * g.Direction[3*r+c]
		}
	}
	canonical.Origin = g.IndexToPhysical().Apply(first)
	return canonical, perm, flip
}

// Canonical returns the volume with its voxels in the order of Geometry.Canonical: two volumes that differ in nothing
// but how their axes are stored become one and the same, to the last bit. It is v's own data where that is in order
// already; nil (no mask) stays nil.
func (v *Volume) Canonical() *Volume {
	if v == nil {
		return nil
	}
	g, perm, flip := v.Geometry.Canonical()
	g = g.rounded()
	if perm == [3]int{0, 1, 2} && flip == [3]bool{} {
		return &Volume{Geometry: g, Data: v.Data}
	}
	stride, first := v.Strides(), 0
	var step [3]int // in v's data, of an axis of g
	for a, c := range perm {
		step[a] = stride[c]
		if flip[a] {
			first += stride[c] * (v.Size[c] - 1)
			step[a] = -stride[c]
		}
	}
	out := Zeros(g)
	for z := range g.Size[2] {
		for y := range g.Size[1] {
			from, row := first+z*step[2]+y*step[1], out.Data[(z*g.Size[1]+y)*g.Size[0]:][:g.Size[0]]
			for x := range row {
				row[x] = v.Data[from+x*step[0]]
			}
		}
	}
	return out
}

// originSteps are the steps of a canonical volume's origin a voxel: the corner that another order of the axes begins at
// comes out of rounded sums.
const originSteps = 1 << 20

// rounded returns g with its origin at such a step.
func (g Geometry) rounded() Geometry {
	for a, spacing := range g.Spacing {
		g.Origin[a] = math.RoundToEven(g.Origin[a]/spacing*originSteps) / originSteps * spacing
	}
	return g
}

// NetworkGrid returns a grid for a network: along the canonical axes of g, with the same centre and the given spacing
// in mm (0 keeps that of g's axis), large enough to hold g and at least minSize (x, y, z), every size a multiple of
// multiple. A spacing far too fine for g's extent gives a grid that Check refuses.
func (g Geometry) NetworkGrid(spacing [3]float64, minSize [3]int, multiple int) Geometry {
	multiple = max(multiple, 1)
	n, _, _ := g.Canonical()
	for a := range 3 {
		extent := float64(n.Size[a]) * n.Spacing[a]
		if spacing[a] > 0 {
			n.Spacing[a] = spacing[a]
		}
		// The tolerance keeps an extent of a whole number of voxels from gaining one by rounding.
		voxels := max(int(min(math.Ceil(extent/n.Spacing[a]-1e-6), maxVoxels)), minSize[a], 1)
		n.Size[a] = (voxels + multiple - 1) / multiple * multiple
	}
	return n.CenteredAt(g.Center())
}

// CenteredAt returns the grid moved so that its centre lies at p, LPS mm.
func (g Geometry) CenteredAt(p [3]float64) Geometry {
	c := g.Center()
	for a := range 3 {
		g.Origin[a] += p[a] - c[a]
	}
	return g
}
