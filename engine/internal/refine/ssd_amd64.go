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

// row is the argument of warpAVX2, which depends on its layout.
type row struct {
	u           [3]*float32
	first, last [4]float32
	stride      [4]int32
	n           int
}

// warpAVX2 reads twelve channels at the n points of a row, trilinearly.
//
//go:noescape
func warpAVX2(dst, moving *int16, r *row)

// warpVector does warpRow with the processor's vectors, if there are any and the channels are MIND's. It reads all
// eight corners of a cell, also beyond the border, where their weight is 0.
func (s *ssd) warpVector(out []int16, p points) bool {
	if !cpu.AVX2() || s.channels != mind.Channels {
		return false
	}
	n := len(p.u[0])
	_, _ = out[n*s.channels-1], s.moving[(s.Moving.Voxels()+beyond(s.Moving.Size))*s.channels+spare-1] // the last corner of the last voxel
	r := row{first: p.first, last: p.last, stride: p.stride, n: n}
	for k, u := range p.u {
		_ = u[n-1]
		r.u[k] = &u[0]
	}
	warpAVX2(&out[0], &s.moving[0], &r)
	return true
}
