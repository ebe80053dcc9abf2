//go:build !noasm

package refine

import (
	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/mind"
)

// forceAVX2 does the n voxels of a row of a force of twelve channels, at which all pointers stand: it writes gx, gy, gz and
// returns the sum of the squared differences. The neighbours along y lie nx voxels away, those along z at before and after.
//
//go:noescape
func forceAVX2(gx, gy, gz *float32, fixed, warped *int16, weight *float32, open *uint8, n, nx, before, after int) int64

// vector does loop with the processor's vectors, if there are any and the channels are MIND's.
func (r forceRow) vector(fixed, warped []int16) (squares int64, ok bool) {
	n := len(r.open)
	if !cpu.AVX2() || len(fixed) != n*mind.Channels {
		return 0, false
	}
	_, _, _, _, _ = r.g[0][n-1], r.g[1][n-1], r.g[2][n-1], r.weight[n-1], fixed[:n*mind.Channels+spare]
	for _, i := range [...]int{r.at, r.at + r.before, r.at + r.after} { // the last is that of the row itself where there is none
		_ = warped[(i+n)*mind.Channels+spare-1]
		_ = warped[i*mind.Channels]
	}
	return forceAVX2(&r.g[0][0], &r.g[1][0], &r.g[2][0], &fixed[0], &warped[r.at*mind.Channels], &r.weight[0], &r.open[0], n, n, r.before, r.after), true
}

// warpAVX2 reads twelve channels at n cells of moving, trilinearly; the strides to the neighbours along y and z are in
// values, and that along x is twelve.
//
//go:noescape
func warpAVX2(dst, moving *int16, first *int, x, y, z *float32, n, nx, slice int)

// warpVector does warpRow with the processor's vectors, if there are any and the channels are MIND's. It reads all
// eight corners of a cell, also beyond the border, where their weight is 0.
func (s *ssd) warpVector(row []int16, at cells) bool {
	if !cpu.AVX2() || s.channels != mind.Channels {
		return false
	}
	n, nx := len(at.first), s.channels*s.Moving.Size[0]
	slice := nx * s.Moving.Size[1]
	_, _, _, _ = row[n*s.channels-1], at.x[n-1], at.y[n-1], at.z[n-1]
	_ = s.moving[slice*s.Moving.Size[2]+s.channels+nx+slice+spare-1] // the last corner of the last voxel
	warpAVX2(&row[0], &s.moving[0], &at.first[0], &at.x[0], &at.y[0], &at.z[0], n, nx, slice)
	return true
}
