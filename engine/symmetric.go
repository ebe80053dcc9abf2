package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/volume"
)

// A symmetric registration finds F from fixed to moving and, independently, G from moving to fixed, and takes
// M = F (G F)^(-1/2). Of the exchanged pair that is G (F G)^(-1/2) = (G F)^(1/2) F^(-1), the inverse of M. G F is near the identity, so its
// root is found in some steps; that of F, which may turn and shift by far, is not asked for.
//
// On grids that holds but for rounding between the voxels. So what is computed does not depend on the order: M is that of the image whose
// voxels come first, and the other order gets its inverse.

// mostApart is by how many degrees the alignments of the two ways may differ: beyond it they found two places, and there is no middle.
const mostApart = 30

// noMiddle is the warning of a result that comes from one direction alone.
const noMiddle = "The two ways of the symmetric registration found different places: the result is that from the fixed to the moving image alone, and not symmetric."

// reverse registers the other way and replaces the deformation by the middle of both.
func (r *registration) reverse() error {
	there := r.total(r.release())
	back, err := r.backward()
	if err != nil {
		return err
	}
	if r.apart = back.initial.After(r.initial).Turn() > mostApart; r.apart {
		return r.takeTotal(there, r.initial)
	}
	forth, err := there.Endless(r.initial)
	if err != nil {
		return err
	}
	home, err := back.total(back.release()).Endless(back.initial)
	if err != nil {
		return err
	}
	r.report.at(0.92, "the middle of both ways")
	round := home.After(there, r.opt.Threads)
	r.metrics.Symmetric = &SymmetricMetrics{}
	r.metrics.Symmetric.MeanMM, r.metrics.Symmetric.P95MM = r.overBody(lengths(round))

	first := comesFirst(r.asked.Fixed, r.asked.Moving)
	if !first {
		forth, home, round = home, forth, forth.After(home.Field, r.opt.Threads)
	}
	m, err := middle(forth, home, round, r.opt.Threads)
	if err != nil {
		return err
	}
	if first {
		return r.takeTotal(m.Field, m.Initial)
	}
	inverse, err := m.Initial.Inverse()
	if err != nil {
		return err
	}
	whole, err := m.Field.Endless(m.Initial)
	if err != nil {
		return err
	}
	inverted, _ := whole.Inverse(r.fixed.Geometry, field.InverseOptions{Threads: r.opt.Threads})
	return r.takeTotal(inverted, inverse)
}

// middle returns the middle of a map and the inverse of another, which lead there and back; round is the one after the other.
func middle(forth, home *field.Endless, round *field.Field, threads int) (*Transform, error) {
	initial, err := middleAffine(forth.Last(), home.Last())
	if err != nil {
		return nil, err
	}
	half, _ := round.Root(threads).Inverse(round.Geometry, field.InverseOptions{Threads: threads})
	deform, err := behind(forth.After(half, threads), initial, threads)
	if err != nil {
		return nil, err
	}
	deform.Unfold(minJacobian, threads)
	return &Transform{Field: field.Total(initial, deform, deform.Geometry, threads), Initial: initial, Threads: threads}, nil
}

// middleAffine is middle of affine maps.
func middleAffine(forth, back volume.Affine) (volume.Affine, error) {
	root, err := back.After(forth).Root()
	if err != nil {
		return forth, err
	}
	half, err := root.Inverse()
	return forth.After(half), err
}

// comesFirst orders two images by their grids and voxels.
func comesFirst(a, b *volume.Volume) bool {
	key := func(v *volume.Volume) []byte {
		h := sha256.New()
		json.NewEncoder(h).Encode(v.Geometry) // finite numbers: it cannot fail
		hashFloats(h, v.Data)
		return h.Sum(nil)
	}
	return bytes.Compare(key(a), key(b)) <= 0
}

// behind returns the displacement of a whole map before the affine one that it ends with.
func behind(total *field.Field, initial volume.Affine, threads int) (*field.Field, error) {
	mm, err := total.BehindMM(initial, nil, threads)
	if err != nil {
		return nil, err
	}
	return field.FromMM(total.Geometry, mm, threads), nil
}

// takeTotal makes a whole map on the fixed grid, which ends with an affine one, the registration's.
func (r *registration) takeTotal(total *field.Field, initial volume.Affine) error {
	deform, err := behind(total, initial, r.opt.Threads)
	if err != nil {
		return err
	}
	r.initial, r.deform = initial, deform
	r.metrics.Align.Matrix, r.metrics.Align.Translation = initial.M, initial.T
	r.start, r.end = referee.State{}, referee.State{}
	return nil
}

// backward runs the stages of the pair with its images exchanged, but for the last ones.
func (r *registration) backward() (*registration, error) {
	pair := Pair{Fixed: r.asked.Moving, Moving: r.asked.Fixed, FixedMask: r.asked.MovingMask, MovingMask: r.asked.FixedMask}
	if r.asked.Initial != nil {
		inverse, err := r.asked.Initial.Inverse()
		if err != nil { // it was checked
			return nil, err
		}
		pair.Initial = &inverse
	}
	for _, c := range r.asked.Channels {
		c.Fixed, c.Moving = c.Moving, c.Fixed
		pair.Channels = append(pair.Channels, c)
	}
	opt := r.opt
	opt.Symmetric, opt.Uncertainty = "off", "off"
	b := newRegistration(r.ctx, r.engine, pair, opt, newReporter(), nil)
	b.report.parent = r.report
	if err := b.prepare(); err != nil {
		return nil, err
	}
	stages := b.stages()
	return b, b.runStages(stages[:len(stages)-1])
}

// lengths returns how far a field moves every voxel, mm.
func lengths(f *field.Field) *volume.Volume {
	v, m := volume.Zeros(f.Geometry), f.IndexToPhysical().M
	for i := range v.Data {
		d := volume.Affine{M: m}.Apply([3]float64{float64(f.X[i]), float64(f.Y[i]), float64(f.Z[i])})
		v.Data[i] = float32(math.Sqrt(float64(d[0]*d[0]) + float64(d[1]*d[1]) + float64(d[2]*d[2])))
	}
	return v
}
