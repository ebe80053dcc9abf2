//go:build !noasm

package refine

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/mind"
)

// forceAVX does the voxels i, ..., i+n-1 of the row of a force of twelve channels: it writes gx, gy, gz and returns the
// sum of the squared differences. The strides to the neighbours along y and z are in voxels.
//
//go:noescape
func forceAVX(gx, gy, gz, fixed, warped, weight *float32, open *uint8, i, n, nx, slice int) float64

// rowVector does row with the processor's vectors, if there are any and the channels are MIND's.
func (s *ssd) rowVector(g *field.Field, r int) (squares float64, ok bool) {
	if !cpu.AVX() || s.channels != mind.Channels {
		return 0, false
	}
	nx, last := g.Size[0], len(g.X)-1 // neighbours where they are open, so within the grid
	_, _, _, _ = g.Y[last], g.Z[last], s.weight[last], s.open[last]
	_, _ = s.fixed[(last+1)*s.channels-1], s.warped[(last+1)*s.channels-1]
	return forceAVX(&g.X[0], &g.Y[0], &g.Z[0], &s.fixed[0], &s.warped[0], &s.weight[0], &s.open[0], r*nx, nx, nx, nx*g.Size[1]), true
}

// warpAVX reads twelve channels at n cells of moving, trilinearly; the strides to the neighbours along y and z are in
// values, and that along x is twelve.
//
//go:noescape
func warpAVX(dst, moving *float32, first *int, x, y, z *float32, n, nx, slice int)

// warpVector does warpRow with the processor's vectors, if there are any and the channels are MIND's. It reads all
// eight corners of a cell, also beyond the border, where their weight is 0.
func (s *ssd) warpVector(row []float32, at cells) bool {
	if !cpu.AVX() || s.channels != mind.Channels {
		return false
	}
	n, nx := len(at.first), s.channels*s.Moving.Size[0]
	slice := nx * s.Moving.Size[1]
	_, _, _, _ = row[n*s.channels-1], at.x[n-1], at.y[n-1], at.z[n-1]
	_ = s.moving[slice*s.Moving.Size[2]+s.channels+nx+slice-1] // the last corner of the last voxel
	warpAVX(&row[0], &s.moving[0], &at.first[0], &at.x[0], &at.y[0], &at.z[0], n, nx, slice)
	return true
}
