//go:build !noasm

package refine

import (
	"slices"

	"github.com/morphseek/morphseek/engine/internal/cpu"
)

// momentsAVX does moments for n voxels, a multiple of 8.
//
//go:noescape
func momentsAVX(first, second, both, f, m, overN *float32, n int)

// correlateAVX does correlate for n voxels, a multiple of 8.
//
//go:noescape
func correlateAVX(da, dc, flat, first, second, both, overN, meanF, overB *float32, n int, floor float32)

// gradientAVX2 does gradient for the voxels from, ..., to-1 of a row, a multiple of 8 of them, of which all neighbours
// are in the image.
//
//go:noescape
func gradientAVX2(gx, gy, gz, da, dc, flat, f, m *float32, open *uint8, nx, slice, from, to int)

// longestAVX takes the squared length of the longest of n vectors, a multiple of 8, by its place modulo 8.
//
//go:noescape
func longestAVX(lanes *[8]float32, x, y, z *float32, n int)

// sumAVX adds n values, a multiple of 8, to lanes by their place modulo 8.
//
//go:noescape
func sumAVX(lanes *[8]float64, row *float32, n int)

// momentsVector does the first voxels of moments and returns how many.
func momentsVector(rows [][]float32, f, m, overN []float32) int {
	n := len(f) &^ 7
	if !cpu.AVX() || n == 0 {
		return 0
	}
	_, _, _, _, _ = rows[0][n-1], rows[1][n-1], rows[2][n-1], m[n-1], overN[n-1]
	momentsAVX(&rows[0][0], &rows[1][0], &rows[2][0], &f[0], &m[0], &overN[0], n)
	return n
}

// correlateVector does the first voxels of correlate and returns how many.
func correlateVector(da, dc, flat []float32, rows [][]float32, overN, meanF, overB []float32) int {
	n := len(da) &^ 7
	if !cpu.AVX() || n == 0 {
		return 0
	}
	_, _, _, _, _, _, _, _ = dc[n-1], flat[n-1], rows[0][n-1], rows[1][n-1], rows[2][n-1], overN[n-1], meanF[n-1], overB[n-1]
	correlateAVX(&da[0], &dc[0], &flat[0], &rows[0][0], &rows[1][0], &rows[2][0], &overN[0], &meanF[0], &overB[0], n, varianceFloor)
	return n
}

// gradientVector writes a row of gradient, from voxel i on, to g, if there are vectors, the row fills one, and no voxel's
// neighbour is outside the image's memory.
func (s *ncc) gradientVector(g [3][]float32, i int, rows [][]float32) bool {
	n, nx, slice := len(g[0]), s.Fixed.Size[0], s.Fixed.Size[0]*s.Fixed.Size[1]
	if !cpu.AVX2() || n < 8 || i < slice || i+n+slice > len(s.warped) {
		return false
	}
	_, _, _, _, _ = g[0][n-1], g[1][n-1], g[2][n-1], s.Fixed.Data[i+n-1], s.open[i+n-1]
	_, _, _ = rows[0][n-1], rows[1][n-1], rows[2][n-1]
	do := func(from, to int) {
		gradientAVX2(&g[0][0], &g[1][0], &g[2][0], &rows[0][0], &rows[1][0], &rows[2][0], &s.Fixed.Data[i], &s.warped[i], &s.open[i], nx, slice, from, to)
	}
	do(0, n&^7)
	if n&7 != 0 { // the last vector does some voxels again
		do(n-8, n)
	}
	return true
}

// sumVector does the first values of sumOf and returns how many.
func sumVector(lanes *[8]float64, row []float32) int {
	n := len(row) &^ 7
	if !cpu.AVX() || n == 0 {
		return 0
	}
	sumAVX(lanes, &row[0], n)
	return n
}

// longestVector does the first vectors of longestSquare and returns how many.
func longestVector(x, y, z []float32) (most float32, n int) {
	if n = len(x) &^ 7; !cpu.AVX() || n == 0 {
		return 0, 0
	}
	var lanes [8]float32
	_, _ = y[n-1], z[n-1]
	longestAVX(&lanes, &x[0], &y[0], &z[0], n)
	return slices.Max(lanes[:]), n
}
