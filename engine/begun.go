package engine

import (
	"fmt"
	"math"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/volume"
)

// A registration may start from the caller's deformation. The deformable stages go on from it. The referee keeps it where they bring the images
// no closer.

const (
	// leastReached is the share of the fixed volume that the deformation's grid must cover.
	leastReached = 0.5
	// straight is the displacement, voxels, below which a field counts as no deformation.
	straight = 1e-3
	// explained is the share of a displacement, by its squares, that an affine map must explain to be taken for a part of it.
	explained = 0.75
)

// checkField reports why a registration cannot start from a displacement field.
func (p Pair) checkField() error {
	f := p.InitialField
	if f == nil {
		return nil
	}
	if err := f.Geometry.Check("initial field"); err != nil {
		return err
	}
	if f.Thin() >= 0 && p.Fixed.Thin() < 0 {
		return fault.New(fault.ThinVolume, "initial field is of one slice, of size %v, and the fixed image is a volume; sample it on the fixed volume's grid", f.Size)
	}
	if len(f.Data) != 3*f.Voxels() {
		return fault.New(fault.GridMismatch, "initial field has %d numbers where its size %v needs %d", len(f.Data), f.Size, 3*f.Voxels())
	}
	bad := parallel.Reduce(len(f.Data), 1<<16, 0, func(lo, hi int) (n int) {
		for _, x := range f.Data[lo:hi] {
			if !volume.IsFinite(x) {
				n++
			}
		}
		return n
	}, func(a, b int) int { return a + b })
	if bad > 0 {
		return fault.New(fault.SingularTransform, "initial field has %d components that are NaN or infinite; make it anew", bad)
	}
	if share := p.reached(); share < leastReached {
		return fault.New(fault.GridMismatch, "initial field covers %.0f %% of the fixed volume, where it must cover %.0f %%: it belongs to another space, or is to be inverted; sample it on the fixed volume's grid", 100*share, 100*leastReached)
	}
	return nil
}

// reached is the share of the fixed volume that lies on the initial field's grid.
func (p Pair) reached() float64 {
	const steps = 32 // along an axis, at most
	fixed, f := p.Fixed.Geometry, p.InitialField
	toField := f.PhysicalToIndex().After(fixed.IndexToPhysical())
	var n [3]int
	for a := range 3 {
		n[a] = min(fixed.Size[a], steps)
	}
	within, all := 0, n[0]*n[1]*n[2]
	for i := range all {
		var x [3]float64
		for a, k := range [3]int{i % n[0], i / n[0] % n[1], i / (n[0] * n[1])} {
			x[a] = float64(k) * float64(fixed.Size[a]-1) / float64(max(n[a]-1, 1))
		}
		inside := true
		for a, at := range toField.Apply(x) {
			inside = inside && at >= -0.5 && at <= float64(f.Size[a])-0.5 // a voxel reaches half a voxel beyond its centre
		}
		if inside {
			within++
		}
	}
	return float64(within) / float64(all)
}

// begin makes the caller's deformation the start of the stages. Where it comes without an affine map, one is split off; a field that does not
// bend becomes that map alone.
func (r *registration) begin() {
	f := r.pair.InitialField
	if f == nil {
		return
	}
	f = field.Over(f.Geometry, append([]float32(nil), f.Data...))
	if r.pair.Initial == nil {
		a := splitOff(f)
		r.pair.Initial = &a
	}
	if r.pair.InitialField = nil; isStraight(f) {
		return
	}
	if folded := f.Unfold(minJacobian, r.opt.Threads); folded > 0 {
		share := 100 * float64(folded) / float64(f.Voxels())
		text := fmt.Sprintf("The initial deformation folds over itself in %.2g %% of its voxels; it was smoothed there.", share)
		if share > mostFolding {
			text = fmt.Sprintf("The initial deformation folds over itself in %.2g %% of its voxels, as no body does; it was smoothed there, and little of it may be left: check its units, its direction and its space (LPS, mm).", share)
		}
		r.warn(text)
	}
	r.begun, r.deform = f, f
}

func isStraight(f *field.Field) bool {
	for _, x := range f.Data {
		if math.Abs(float64(x)) > straight {
			return false
		}
	}
	return true
}

// splitOff returns the affine map, LPS mm, that explains most of the displacement in the least squares, and leaves in f what comes before it;
// the identity where none explains most.
func splitOff(f *field.Field) volume.Affine {
	var middle [3]float64
	for a, n := range f.Size {
		middle[a] = float64(n-1) / 2
	}
	type sums struct {
		u, c2  [3]float64    // of the displacements, and of the squared distances from the middle
		cu     [3][3]float64 // of the distance along an axis times the displacement
		square float64
	}
	s := parallel.Reduce(f.Voxels(), 1<<16, 1, func(lo, hi int) (s sums) {
		for i := lo; i < hi; i++ {
			x, u := f.Point(i), [3]float64{float64(f.X[i]), float64(f.Y[i]), float64(f.Z[i])}
			for a := range 3 {
				c := x[a] - middle[a]
				s.u[a] += u[a]
				s.c2[a] += float64(c * c)
				s.square += float64(u[a] * u[a])
				for b := range 3 {
					s.cu[b][a] += float64(c * u[b])
				}
			}
		}
		return s
	}, func(p, q sums) sums {
		p.square += q.square
		for a := range 3 {
			p.u[a] += q.u[a]
			p.c2[a] += q.c2[a]
			for b := range 3 {
				p.cu[a][b] += q.cu[a][b]
			}
		}
		return p
	})
	n := float64(f.Voxels())
	fit, by := volume.IdentityAffine(), 0.0 // the axes of a grid are orthogonal: each coefficient stands by itself
	for b := range 3 {
		fit.T[b] = s.u[b] / n
		by += float64(s.u[b]*s.u[b]) / n
		for a := range f.Axes() {
			slope := s.cu[b][a] / s.c2[a]
			fit.M[3*b+a] += slope
			fit.T[b] -= float64(slope * middle[a])
			by += float64(slope * s.cu[b][a])
		}
	}
	undo, err := fit.Inverse()
	if err != nil || fit.Det() <= 0 || !(by >= explained*s.square) || s.square == 0 {
		return volume.IdentityAffine()
	}
	for i := range f.X {
		x := f.Point(i)
		to := undo.Apply([3]float64{x[0] + float64(f.X[i]), x[1] + float64(f.Y[i]), x[2] + float64(f.Z[i])})
		f.X[i], f.Y[i], f.Z[i] = float32(to[0]-x[0]), float32(to[1]-x[1]), float32(to[2]-x[2])
	}
	return f.IndexToPhysical().After(fit).After(f.PhysicalToIndex())
}

// leastContinued is the least gain by which a continued deformation replaces the caller's (RATIONALE.md, Starting from a deformation).
const leastContinued = 0.2

// judgeBegun keeps the caller's deformation where the one that was found brings the images no closer.
func (r *registration) judgeBegun(what string) referee.State {
	judge := r.judges()
	before, after := judge.Look(r.initial, r.begun), judge.Look(r.initial, r.deform)
	if m := judge.Compare(before, after); gain(m) < leastContinued {
		r.because(fmt.Sprintf("%s brought the images no closer than the deformation given (%+.2f): that stays", what, gain(m)))
		r.deform = r.begun
		return before
	}
	return after
}
