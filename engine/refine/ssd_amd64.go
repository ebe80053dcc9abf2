package refine

import (
	"golang.org/x/sys/cpu"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/metric"
)

// forceAVX does the voxels i, ..., i+n-1 of the row of a force of twelve channels: it writes gx, gy, gz and returns the sum of the
// squared differences. The strides to the neighbours along y and z are in voxels.
//
//go:noescape
func forceAVX(gx, gy, gz, fixed, warped, weight *float32, open *uint8, i, n, nx, slice int) float64

// rowVector does row with the processor's vectors, if there are any and the channels are MIND's.
func (s *ssd) rowVector(g *field.Field, r int) (squares float64, ok bool) {
	if !cpu.X86.HasAVX || s.channels != metric.MINDChannels {
		return 0, false
	}
	nx := g.Size[0]
	return forceAVX(&g.X[0], &g.Y[0], &g.Z[0], &s.fixed[0], &s.warped[0], &s.weight[0], &s.open[0], r*nx, nx, nx, nx*g.Size[1]), true
}

// warpAVX reads twelve channels at n cells of moving, trilinearly; the strides to the neighbours along y and z are in values, and that
// along x is twelve.
//
//go:noescape
func warpAVX(dst, moving *float32, first *int, x, y, z *float32, n, nx, slice int)

// warpVector does warpRow with the processor's vectors, if there are any and the channels are MIND's. It reads all eight corners
// of a cell, also beyond the border, where their weight is 0.
func (s *ssd) warpVector(row []float32, at cells) bool {
	if !cpu.X86.HasAVX || s.channels != metric.MINDChannels {
		return false
	}
	nx := s.channels * s.Moving.Size[0]
	warpAVX(&row[0], &s.moving[0], &at.first[0], &at.x[0], &at.y[0], &at.z[0], len(at.first), nx, nx*s.Moving.Size[1])
	return true
}
