//go:build !noasm

package interp

import "github.com/morphseek/morphseek/engine/internal/cpu"

// row is the argument of rowAVX2, which depends on its layout.
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
	add    [3]*float32 // what to add, times scale; nil: nothing
	scale  float32     // of u
	slice  int64       // bytes from a slice to the next
	cells  [8]struct { //nolint:unused // room for the assembly: of 64 points, that are being read
		fraction [3][8]float32
		index    [8]int32 // of the voxel below
	}
}

//go:noescape
func rowAVX2(r *row)

// vectors does row, if it is long enough for the processor's vectors and there are any, and returns how many points it
// did: all or none.
func (p Planes) vectors(dst [][]float32, add bool, x, y, z int, scale float32, u [3][]float32) int {
	const lanes = 8
	const most = 1 << 24 // positions and offsets are exact: in float32, and in int32
	n, voxels := len(u[0]), p.Size[0]*p.Size[1]*p.Size[2]
	if !cpu.AVX2() || n < lanes || min(p.Size[0], p.Size[1], p.Size[2]) < 2 || max(p.Size[0], p.Size[1], p.Size[2]) > most ||
		voxels >= 1<<31 {
		return 0
	}
	r := row{
		last: [3]float32{float32(p.Size[0] - 1), float32(p.Size[1] - 1), float32(p.Size[2] - 1)},
		nx:   int64(p.Size[0]), nxy: int64(p.Size[0] * p.Size[1]), planes: int64(len(p.Data)), scale: scale,
		slice: 4 * int64(p.Size[0]*p.Size[1]),
	}
	for k, plane := range p.Data {
		_ = plane[:voxels] // a check without a read, which another goroutine may be writing
		r.plane[k] = &plane[0]
	}
	run := func(dst [][]float32, x, n int, u [3][]float32) {
		r.base, r.n = [3]float32{float32(x), float32(y), float32(z)}, int64(n)
		for a := range u {
			_ = u[a][n-1]
			r.u[a] = &u[a][0]
		}
		for k := range p.Data {
			_ = dst[k][n-1]
			r.dst[k] = &dst[k][0]
			if add {
				r.add[k] = r.u[k]
			}
		}
		rowAVX2(&r)
	}
	whole := n &^ (lanes - 1)
	run(dst, x, whole, u)
	if whole < n { // the rest, in a vector that is not full
		var rest, out [3][lanes]float32
		for a := range u {
			copy(rest[a][:], u[a][whole:])
		}
		run([][]float32{out[0][:], out[1][:], out[2][:]}, x+whole, lanes, [3][]float32{rest[0][:], rest[1][:], rest[2][:]})
		for k := range p.Data {
			copy(dst[k][whole:n], out[k][:])
		}
	}
	return n
}
