package field

import (
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// newtonSteps are the most for a voxel.
const newtonSteps = 30

// Inverse returns the inverse map on grid g, typically the moving image's, and the largest |Phi(Inverse(y)) - y| in mm over
// the voxels y whose preimage lies inside f's grid: it tells of folds, where there is no inverse.
//
// Damped Newton steps solve every voxel, from its neighbour's solution or else from the best affine fit, with whose linear
// part the map continues beyond its grid, so that rotations and scales need not be small.
func (f *Field) Inverse(g volume.Geometry, threads int) (inverse *Field, maxResidualMM float64) {
	return f.inverse(g, threads, nil)
}

// Inverse is the field's, but for the way in which the map goes on beyond its grid.
func (e *Endless) Inverse(g volume.Geometry, threads int) (inverse *Field, maxResidualMM float64) {
	return e.inverse(g, threads, e)
}

func (f *Field) inverse(
	g volume.Geometry, threads int, endless *Endless,
) (inverse *Field, maxResidualMM float64) {
	near := tolerance(f.Geometry, g)
	fit := f.affineFit()
	unfit, err := fit.Inverse()
	if err != nil { // a field that collapses space: its inverse means little, but the search may still start somewhere
		fit, unfit = volume.IdentityAffine(), volume.IdentityAffine()
	}
	toF := f.PhysicalToIndex().After(g.IndexToPhysical())
	toG := g.PhysicalToIndex().After(f.IndexToPhysical())
	guess := unfit.After(toF)
	far := guess
	if endless != nil {
		endless.Margin()
		far = endless.undo.After(toF)
	}

	inverse = New(g)
	nx, ny := g.Size[0], g.Size[1]
	part := func(lo, hi int) (worst float64) {
		s := solver{
			f: f, linear: volume.Affine{M: fit.M}, unfit: volume.Affine{M: unfit.M}, det: fit.Det(),
			toMM: volume.Affine{M: f.IndexToPhysical().M}, near: near, endless: endless,
		}
		for r := lo; r < hi; r++ {
			var x [3]float64
			for i := range nx {
				w := [3]float64{float64(i), float64(r % ny), float64(r / ny)}
				y, affine := toF.Apply(w), guess.Apply(w)
				start := affine
				if i > 0 { // the neighbour's solution, moved on by one voxel
					for a := range 3 {
						start[a] = x[a] + guess.M[3*a]
					}
				}
				var residual float64
				if x, residual = s.solve(start, y); residual > near && i > 0 {
					if other, better := s.solve(affine, y); better < residual {
						x, residual = other, better
					}
				}
				if residual > near && endless != nil {
					if other, better := s.solve(far.Apply(w), y); better < residual {
						x, residual = other, better
					}
				}
				if f.contains(x) {
					worst = max(worst, residual)
				}
				inverse.SetTarget(r*nx+i, toG.Apply(x))
			}
		}
		return worst
	}
	worse := func(a, b float64) float64 { return max(a, b) }
	maxResidualMM = parallel.Reduce(ny*g.Size[2], parallel.Rows(nx), threads, part, worse)
	return inverse, maxResidualMM
}

// tolerance returns a thousandth of the shortest side of a voxel of two grids, mm.
func tolerance(a, b volume.Geometry) float64 {
	return slices.Min(append(a.Spacing[:], b.Spacing[:]...)) / 1000
}

// contains reports whether the index x lies between the centres of the outermost voxels.
func (f *Field) contains(x [3]float64) bool {
	for a, n := range f.Size {
		if !(x[a] >= 0 && x[a] <= float64(n-1)) {
			return false
		}
	}
	return true
}

// affineFit returns the affine map nearest to Phi, in voxels, by least squares over a subsample of the grid.
func (f *Field) affineFit() volume.Affine {
	const samples = 16 // along each axis
	var normal [16]float64
	var right [12]float64
	var step [3]int
	for a, n := range f.Size {
		step[a] = (n + samples - 1) / samples
	}
	sampled := f.Size
	for a, n := range f.Size {
		if n == 1 { // a slice's layer counts as two that move alike
			sampled[a] = 2
		}
	}
	for z := 0; z < sampled[2]; z += step[2] {
		for y := 0; y < sampled[1]; y += step[1] {
			for x := 0; x < sampled[0]; x += step[0] {
				o := min(x, f.Size[0]-1) + f.Size[0]*(min(y, f.Size[1]-1)+f.Size[1]*min(z, f.Size[2]-1))
				in := [4]float64{float64(x), float64(y), float64(z), 1}
				u := f.Vector(o)
				for r := range 4 {
					for c := range 4 {
						normal[4*r+c] += float64(in[r] * in[c])
					}
					for c := range 3 {
						right[3*r+c] += float64(in[r] * (in[c] + u[c]))
					}
				}
			}
		}
	}
	var solution mat.Dense
	if err := solution.Solve(mat.NewDense(4, 4, normal[:]), mat.NewDense(4, 3, right[:])); err != nil {
		return volume.IdentityAffine()
	}
	var fit volume.Affine
	for r := range 3 {
		for c := range 3 {
			fit.M[3*r+c] = solution.At(c, r)
		}
		fit.T[r] = solution.At(3, r)
	}
	return fit
}

// solver finds x with Phi(x) = y for one voxel after another, in voxels of f.
type solver struct {
	f      *Field
	linear volume.Affine // the affine fit's linear part
	unfit  volume.Affine // its inverse
	det    float64       // its determinant
	toMM   volume.Affine // voxel to mm, linear part
	near   float64       // |Phi(x) - y|, mm, at which a voxel is done

	endless *Endless // nil: beyond the grid linear holds
}

// solve returns the best x found from start, and |Phi(x) - y| in mm.
func (s *solver) solve(start, y [3]float64) (x [3]float64, residual float64) {
	x = start
	e, jacobian := s.mismatch(x, y)
	residual = s.norm(e)
	for range newtonSteps {
		if residual <= s.near {
			break
		}
		newton := s.unfit
		if j := (volume.Affine{M: jacobian}); j.Det()/s.det > 0.01 { // else a fold, or nearly
			newton, _ = j.Inverse()
		}
		step := newton.Apply(e)
		improved := false
		for range 8 { // halve until the mismatch falls
			trial := volume.Sub(x, step)
			te, tj := s.mismatch(trial, y)
			if n := s.norm(te); n < residual {
				x, e, jacobian, residual, improved = trial, te, tj, n, true
				break
			}
			for a := range step {
				step[a] /= 2
			}
		}
		if !improved {
			break
		}
	}
	return x, residual
}

func (s *solver) norm(e [3]float64) float64 {
	return volume.Norm(s.toMM.Apply(e))
}

// mismatch returns Phi(x) - y and the Jacobian of Phi at x. Outside the grid Phi(x) = Phi(c) + linear (x - c), c being
// the nearest point of the grid.
func (s *solver) mismatch(x, y [3]float64) (e [3]float64, jacobian [9]float64) {
	var base [3]int
	var c, frac [3]float64
	var outside [3]bool
	for a, n := range s.f.Size {
		last := float64(n - 1)
		c[a] = min(max(x[a], 0), last)
		outside[a] = c[a] != x[a] || n == 1
		base[a] = max(min(int(c[a]), n-2), 0)
		frac[a] = c[a] - float64(base[a])
	}
	u, gradient := s.f.jet(base, frac)
	if s.endless != nil && c != x {
		return s.beyond(x, c, u, y, gradient)
	}
	for r := range 3 {
		e[r] = c[r] + u[r] - y[r]
		for a := range 3 {
			e[r] += float64(s.linear.M[3*r+a] * (x[a] - c[a]))
			if outside[a] {
				jacobian[3*r+a] = s.linear.M[3*r+a]
				continue
			}
			jacobian[3*r+a] = gradient[3*r+a]
			if r == a {
				jacobian[3*r+a]++
			}
		}
	}
	return e, jacobian
}

// jet returns u and its gradient (du_r/dx_a at 3r+a) inside the cell whose lowest voxel is base, at frac of a voxel
// from it.
func (f *Field) jet(base [3]int, frac [3]float64) (u [3]float64, gradient [9]float64) {
	stride := f.Strides()
	o := base[0] + stride[1]*base[1] + stride[2]*base[2]
	for a, n := range f.Size {
		if n == 1 {
			stride[a] = 0
		}
	}
	wx, wy, wz := frac[0], frac[1], frac[2]
	for r, plane := range [3][]float32{f.X, f.Y, f.Z} {
		at := func(i int) float64 { return float64(plane[i]) }
		o00, o10, o01, o11 := o, o+stride[1], o+stride[2], o+stride[1]+stride[2]
		d00, d10 := at(o00+stride[0])-at(o00), at(o10+stride[0])-at(o10)
		d01, d11 := at(o01+stride[0])-at(o01), at(o11+stride[0])-at(o11)
		e00, e10, e01, e11 := at(o00)+float64(wx*d00), at(o10)+float64(wx*d10), at(o01)+float64(wx*d01), at(o11)+float64(wx*d11)
		lo, hi := e00+float64(wy*(e10-e00)), e01+float64(wy*(e11-e01))
		u[r] = lo + float64(wz*(hi-lo))
		gradient[3*r] = float64((1-wz)*(d00+float64(wy*(d10-d00)))) + float64(wz*(d01+float64(wy*(d11-d01))))
		gradient[3*r+1] = float64((1-wz)*(e10-e00)) + float64(wz*(e11-e01))
		gradient[3*r+2] = hi - lo
	}
	return u, gradient
}

// beyond is mismatch outside the grid of a field that has a way to go on.
func (s *solver) beyond(x, c, u, y [3]float64, gradient [9]float64) (e [3]float64, jacobian [9]float64) {
	there, without := s.endless.last.Apply(x), s.endless.last.Apply(c)
	m := s.endless.last.M
	var share, slope [3]float64
	for a := range 3 {
		share[a], slope[a] = s.endless.weight(a, x[a])
	}
	w := float64(share[0]*share[1]) * share[2]
	for r := range 3 {
		q := c[r] + u[r] - without[r]
		e[r] = there[r] + float64(w*q) - y[r]
		for a := range 3 {
			column := m[3*r+a]
			if c[a] != x[a] {
				jacobian[3*r+a] = column + float64(q*slope[a]*share[(a+1)%3]*share[(a+2)%3])
				continue
			}
			d := gradient[3*r+a] - column
			if r == a {
				d++
			}
			jacobian[3*r+a] = column + float64(w*d)
		}
	}
	return e, jacobian
}
