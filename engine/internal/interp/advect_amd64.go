//go:build !noasm

package interp

import "github.com/morphseek/morphseek/engine/internal/cpu"

// advection is the argument of advectAVX, which depends on its layout.
type advection struct {
	u, plane, dst                [3]*float32 // rows
	below, above, behind, before int64       // bytes from a row of a plane to its neighbours
	from, to                     int64       // points, a whole number of vectors
	scale                        float32
}

//go:noescape
func advectAVX(a *advection)

// advectVector does all points but the first and the last ones, and returns the range that it did.
func (p Planes) advectVector(dst [][]float32, o int, beside [2][2]int, scale float32, u [3][]float32) (from, to int) {
	const lanes = 8
	n := p.Size[0]
	whole := (n - 2) / lanes * lanes
	if !cpu.AVX() || whole <= 0 {
		return 0, 0
	}
	const float = 4
	a := advection{
		below: int64(float * (beside[0][1] - o)), above: int64(float * (beside[0][0] - o)),
		behind: int64(float * (beside[1][1] - o)), before: int64(float * (beside[1][0] - o)),
		from: 1, to: int64(1 + whole), scale: scale,
	}
	for k, plane := range p.Data {
		_, _, _ = plane[o:o+n], u[k][:n], dst[k][:n]
		a.u[k], a.plane[k], a.dst[k] = &u[k][0], &plane[o], &dst[k][0]
	}
	advectAVX(&a)
	return 1, 1 + whole
}
