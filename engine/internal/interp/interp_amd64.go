package interp

import "golang.org/x/sys/cpu"

// row is what rowAVX2 works on; it knows the layout.
type row struct {
	u      [3]*float32
	base   [3]float32 // position of the first voxel
	last   [3]float32 // index of the last voxel of each axis
	nx     int64      // voxels from a row to the next
	nxy    int64      // and from a slice to the next
	n      int64      // voxels to read, a multiple of 8
	planes int64
	plane  [3]*float32
	dst    [3]*float32
	add    [3]*float32 // nil: nothing
}

//go:noescape
func rowAVX2(r *row)

// vectors does the longest beginning of Row that fills the processor's vectors, and returns its length.
func (p Planes) vectors(dst, add [][]float32, x, y, z int, ux, uy, uz []float32) int {
	n, voxels := len(ux)&^7, p.Size[0]*p.Size[1]*p.Size[2]
	const most = 1 << 24 // positions and offsets are exact: in float32, and in int32
	if !cpu.X86.HasAVX2 || n == 0 || min(p.Size[0], p.Size[1], p.Size[2]) < 2 || max(p.Size[0], p.Size[1], p.Size[2]) > most ||
		voxels >= 1<<31 {
		return 0
	}
	_, _ = uy[n-1], uz[n-1]
	r := row{
		u:    [3]*float32{&ux[0], &uy[0], &uz[0]},
		base: [3]float32{float32(x), float32(y), float32(z)},
		last: [3]float32{float32(p.Size[0] - 1), float32(p.Size[1] - 1), float32(p.Size[2] - 1)},
		nx:   int64(p.Size[0]), nxy: int64(p.Size[0] * p.Size[1]), n: int64(n), planes: int64(len(p.Data)),
	}
	for k, plane := range p.Data {
		_, _ = plane[voxels-1], dst[k][n-1]
		r.plane[k], r.dst[k] = &plane[0], &dst[k][0]
		if add != nil {
			_ = add[k][n-1]
			r.add[k] = &add[k][0]
		}
	}
	rowAVX2(&r)
	return n
}
