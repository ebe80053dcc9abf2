package field

import (
	"slices"

	"github.com/morphseek/morphseek/engine/volume"
)

// column is the cell of a grid along x that a point lies in: the voxel, the step to the next one and the fraction beyond.
type column struct {
	i, step  int
	fraction float32
}

func isDiagonal(m [9]float64) bool {
	return m[1] == 0 && m[2] == 0 && m[3] == 0 && m[5] == 0 && m[6] == 0 && m[7] == 0
}

// columns returns the cells along x of the n points that m leads a row to, which are those of every row; nil unless the
// axes of both grids are parallel.
func (f *Field) columns(m volume.Affine, n int) []column {
	if !isDiagonal(m.M) {
		return nil
	}
	all := make([]column, n)
	for i := range all {
		all[i].i, all[i].fraction = volume.Cell(m.T[0]+float64(m.M[0]*float64(i)), float64(f.Size[0]-1))
		all[i].step = volume.Next(all[i].fraction, 1)
	}
	return all
}

// rows reads a field row by row at points of one row of another grid, as at does. The field's four rows around them are
// interpolated along x once and kept: the next row of a finer grid mostly lies between the same.
type rows struct {
	*Field
	along  []column
	start  [4]int          // of the rows in the field's planes; -1: none
	values [4][3][]float32 // interpolated
	place  [4]int          // in values: of the rows below and above along y, and so of the slice above
	fy, fz float32
}

func newRows(f *Field, along []column) *rows {
	if along == nil {
		return nil
	}
	r := &rows{Field: f, along: along, start: [4]int{-1, -1, -1, -1}}
	data := make([]float32, 12*len(along))
	for i := range r.values {
		for k := range r.values[i] {
			r.values[i][k], data = data[:len(along)], data[len(along):]
		}
	}
	return r
}

// turn goes to the row at y and z.
func (r *rows) turn(y, z float64) {
	var iy, iz int
	iy, r.fy = volume.Cell(y, float64(r.Size[1]-1))
	iz, r.fz = volume.Cell(z, float64(r.Size[2]-1))
	first, dy, dz := (iz*r.Size[1]+iy)*r.Size[0], volume.Next(r.fy, r.Size[0]), volume.Next(r.fz, r.Size[0]*r.Size[1])
	needed := [4]int{first, first + dy, first + dz, first + dz + dy}
	for k, start := range needed {
		r.place[k] = slices.Index(r.start[:], start)
		if r.place[k] < 0 {
			r.place[k] = slices.IndexFunc(r.start[:], func(s int) bool { return !slices.Contains(needed[:], s) })
			r.fill(r.place[k], start)
		}
	}
}

// fill interpolates the row that begins at start along x.
func (r *rows) fill(place, start int) {
	r.start[place] = start
	for k, plane := range [3][]float32{r.X, r.Y, r.Z} {
		row, out := plane[start:start+r.Size[0]], r.values[place][k]
		for i, c := range r.along {
			a := row[c.i]
			out[i] = a + float32(c.fraction*(row[c.i+c.step]-a))
		}
	}
}

// at returns u at point i of the row.
func (r *rows) at(i int) (ux, uy, uz float32) {
	a, b, c, d := &r.values[r.place[0]], &r.values[r.place[1]], &r.values[r.place[2]], &r.values[r.place[3]]
	var u [3]float32
	for k := range u {
		low, high := a[k][i], c[k][i]
		low += float32(r.fy * (b[k][i] - low))
		high += float32(r.fy * (d[k][i] - high))
		u[k] = low + float32(r.fz*(high-low))
	}
	return u[0], u[1], u[2]
}

// write puts component k of the row, times scale, into dst.
func (r *rows) write(dst []float32, k int, scale float64) {
	n := len(dst)
	a, b := r.values[r.place[0]][k][:n], r.values[r.place[1]][k][:n]
	c, d := r.values[r.place[2]][k][:n], r.values[r.place[3]][k][:n]
	for i := range dst {
		low, high := a[i], c[i]
		low += float32(r.fy * (b[i] - low))
		high += float32(r.fy * (d[i] - high))
		u := low + float32(r.fz*(high-low))
		dst[i] = float32(0 + float64(scale*float64(u))) // no negative zero, as by a sum
	}
}
