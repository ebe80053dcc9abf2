package volume

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/morphseek/morphseek/engine/fault"
)

// Affine is the map p -> M p + T between two 3-D spaces, float64. A registration's initial transform is an Affine from
// fixed to moving LPS mm (the pull-back direction, ITK's). Bridges read it as the twelve numbers that it is in memory.
type Affine struct {
	M [9]float64 // row-major
	T [3]float64
}

// IdentityAffine returns the map p -> p.
func IdentityAffine() Affine { return Affine{M: Identity} }

// Apply returns M p + T.
func (a Affine) Apply(p [3]float64) [3]float64 {
	return [3]float64{
		float64(a.M[0]*p[0]) + float64(a.M[1]*p[1]) + float64(a.M[2]*p[2]) + a.T[0],
		float64(a.M[3]*p[0]) + float64(a.M[4]*p[1]) + float64(a.M[5]*p[2]) + a.T[1],
		float64(a.M[6]*p[0]) + float64(a.M[7]*p[1]) + float64(a.M[8]*p[2]) + a.T[2],
	}
}

// After returns the map "b first, then a": (a.After(b)).Apply(p) == a.Apply(b.Apply(p)).
func (a Affine) After(b Affine) Affine {
	return Affine{M: Product(a.M, b.M), T: a.Apply(b.T)}
}

// Strain returns the Frobenius norm of the map's Green-Lagrange strain, (M'M - I) / 2: 0 for what only turns and moves, and about
// the root of the sum of the squared relative changes of length else.
func (a Affine) Strain() float64 {
	sum := 0.0
	for i := range 3 {
		for j := range 3 {
			e := float64(a.M[i]*a.M[j]) + float64(a.M[3+i]*a.M[3+j]) + float64(a.M[6+i]*a.M[6+j])
			if i == j {
				e--
			}
			sum += float64(e * e)
		}
	}
	return math.Sqrt(sum) / 2
}

// Root returns the principal square root, the map that gives a when it is applied twice, by the iteration of Denman and
// Beavers (Appl. Math. Comput. 1976). A map that turns by 180 degrees, or mirrors, has none: SingularTransform.
func (a Affine) Root() (Affine, error) {
	const rounds = 30
	mean := func(p, q Affine) (m Affine) {
		for i := range m.M {
			m.M[i] = (p.M[i] + q.M[i]) / 2
		}
		for i := range m.T {
			m.T[i] = (p.T[i] + q.T[i]) / 2
		}
		return m
	}
	root, other := a, IdentityAffine()
	for range rounds {
		undo, err := root.Inverse()
		if err != nil {
			return a, err
		}
		back, err := other.Inverse()
		if err != nil {
			return a, err
		}
		root, other = mean(root, back), mean(other, undo)
	}
	twice, apart := root.After(root), 0.0
	for i := range twice.M {
		apart = max(apart, math.Abs(twice.M[i]-a.M[i]))
	}
	if !(apart < 1e-9) {
		return a, fault.New(fault.SingularTransform, "transform with matrix %v has no square root", a.M)
	}
	return root, nil
}

// WithinPlane returns a without what leads out of the plane of x and y, and with z left as it is.
func (a Affine) WithinPlane() Affine {
	a.M[2], a.M[5], a.M[6], a.M[7], a.M[8] = 0, 0, 0, 0, 1
	a.T[2] = 0
	return a
}

// Det returns the determinant of the linear part.
func (a Affine) Det() float64 { return det3(a.M) }

// Scales returns the lengths of the linear part's columns: how far a step of 1 along each axis leads.
func (a Affine) Scales() (lengths [3]float64) {
	for c := range lengths {
		lengths[c] = Norm([3]float64{a.M[c], a.M[3+c], a.M[6+c]})
	}
	return lengths
}

// Turn returns the angle, 0 to 180 degrees, by which a turns space, beside its scales and small shears.
func (a Affine) Turn() float64 {
	trace := 0.0
	for k, length := range a.Scales() {
		trace += a.M[4*k] / length
	}
	return math.Acos(min(max((trace-1)/2, -1), 1)) * 180 / math.Pi
}

// Inverse returns the inverse map, or a SingularTransform error.
func (a Affine) Inverse() (Affine, error) {
	d := det3(a.M)
	size := 1.0 // of the box that the axes would span if they were at right angles
	for _, length := range a.Scales() {
		size *= length
	}
	if !(math.Abs(d) > 1e-12*size) || math.IsInf(d, 0) {
		return Affine{}, fault.New(fault.SingularTransform, "transform with matrix %v cannot be inverted", a.M)
	}
	m := a.M
	inv := Affine{M: [9]float64{
		(float64(m[4]*m[8]) - float64(m[5]*m[7])) / d,
		(float64(m[2]*m[7]) - float64(m[1]*m[8])) / d,
		(float64(m[1]*m[5]) - float64(m[2]*m[4])) / d,
		(float64(m[5]*m[6]) - float64(m[3]*m[8])) / d,
		(float64(m[0]*m[8]) - float64(m[2]*m[6])) / d,
		(float64(m[2]*m[3]) - float64(m[0]*m[5])) / d,
		(float64(m[3]*m[7]) - float64(m[4]*m[6])) / d,
		(float64(m[1]*m[6]) - float64(m[0]*m[7])) / d,
		(float64(m[0]*m[4]) - float64(m[1]*m[3])) / d,
	}}
	t := inv.Apply(a.T)
	inv.T = [3]float64{-t[0], -t[1], -t[2]}
	return inv, nil
}

func det3(m [9]float64) float64 {
	return float64(m[0]*(float64(m[4]*m[8])-float64(m[5]*m[7]))) -
		float64(m[1]*(float64(m[3]*m[8])-float64(m[5]*m[6]))) +
		float64(m[2]*(float64(m[3]*m[7])-float64(m[4]*m[6])))
}

// NearestRotation returns the rotation nearest to m, by its polar decomposition. A reflection in m is left out.
func NearestRotation(m [9]float64) [9]float64 {
	var svd mat.SVD
	if !svd.Factorize(mat.NewDense(3, 3, m[:]), mat.SVDFull) {
		return Identity
	}
	var u, v, r mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	if mat.Det(&u)*mat.Det(&v) < 0 { // the axis of the least stretch gives way
		for i := range 3 {
			u.Set(i, 2, -u.At(i, 2))
		}
	}
	r.Mul(&u, v.T())
	var out [9]float64
	for i := range out {
		out[i] = r.At(i/3, i%3)
	}
	return out
}
