package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/volume"
)

// A symmetric registration finds F from fixed to moving and, independently, G from moving to fixed, and takes M = F (G
// F)^(-1/2). Of the exchanged pair that is G (F G)^(-1/2) = (G F)^(1/2) F^(-1), the inverse of M. G F is near the
// identity, so its root is found in some steps; that of F, which may turn and shift by far, is not asked for.
//
// On grids that holds but for rounding between the voxels. So what is computed does not depend on the order: M is that
// of the image whose voxels come first, and the other order gets its inverse.

// mostApart is by how many degrees the alignments of the two ways may differ: beyond it they found two places, and
// there is no middle. The same holds where corners or the body move there and back by more than the referee's nearest
// move (RATIONALE.md, Symmetry).
const mostApart = 30

// noMiddle is the warning of a result that comes from one direction alone.
const noMiddle = "The two ways of the symmetric registration found different places: the result is that from the fixed to the moving image alone, and not symmetric."

// bothWays solves the problem in both directions and returns the middle of both solutions.
func (p *problem) bothWays(e *env) (state, error) {
	st, err := p.solve(e)
	if err != nil {
		return st, err
	}
	err = e.run("reverse", reverseWeight, func() (err error) {
		st, err = p.middled(e, st)
		return err
	})
	return st, err
}

// middled solves the problem the other way and returns the middle of that and of the solution given.
func (p *problem) middled(e *env, st state) (state, error) {
	there := p.total(st)
	back, initial, err := p.backward(e)
	if err != nil {
		return st, err
	}
	forth, err := there.Endless(st.initial)
	if err != nil {
		return st, err
	}
	home, err := back.Endless(initial)
	if err != nil {
		return st, err
	}
	round := home.After(there, p.opt.Threads)
	m := &SymmetricMetrics{}
	m.MeanMM, m.P95MM = p.overBody(lengths(round))
	e.notes.metrics.Symmetric = m
	if p.areApart(st.initial, initial, m.MeanMM) {
		e.notes.doubts = append(e.notes.doubts, noMiddle)
		return p.replaced(e.notes, st, there, st.initial)
	}
	e.report.at(0.92, "the middle of both ways")

	first := comesFirst(p.request.Fixed, p.request.Moving)
	if !first {
		forth, home, round = home, forth, forth.After(home.Field, p.opt.Threads)
	}
	between, err := middle(e.ctx, forth, home, round, p.opt.Threads)
	if err != nil {
		return st, err
	}
	if first {
		return p.replaced(e.notes, st, between.Field, between.Initial)
	}
	inverse, err := between.Initial.Inverse()
	if err != nil {
		return st, err
	}
	whole, err := between.Field.Endless(between.Initial)
	if err != nil {
		return st, err
	}
	inverted, _ := whole.Inverse(p.fixed.Geometry, p.opt.Threads)
	return p.replaced(e.notes, st, inverted, inverse)
}

// areApart says whether two ways, which move the body there and back by meanMM, are so far apart that their middle is a
// place which neither found.
func (p *problem) areApart(forth, back volume.Affine, meanMM float64) bool {
	both, far := back.After(forth), p.referee().Nearest()
	return both.Turn() > mostApart || cornersMove(p.fixed.Geometry, both) > far || meanMM > far
}

// middle returns the middle of a map and the inverse of another, which lead there and back; round is the one after the
// other.
func middle(ctx context.Context, forth, home *field.Endless, round *field.Field, threads int) (*Transform, error) {
	initial, err := middleAffine(forth.Last(), home.Last())
	if err != nil {
		return nil, err
	}
	root := round.Root(threads)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	half, _ := root.Inverse(round.Geometry, threads)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	deform, err := behind(forth.After(half, threads), initial, threads)
	if err != nil {
		return nil, err
	}
	deform.Unfold(minJacobian, threads)
	return &Transform{Field: field.Total(initial, deform, deform.Geometry, threads), Initial: initial, Threads: threads}, nil
}

// middleAffine returns the middle of an affine map and the inverse of another.
func middleAffine(forth, back volume.Affine) (volume.Affine, error) {
	root, err := back.After(forth).Root()
	if err != nil {
		return forth, err
	}
	half, err := root.Inverse()
	return forth.After(half), err
}

// comesFirst orders two images by their grids, in voxels of the finer one, and by their voxels.
func comesFirst(a, b *volume.Volume) bool {
	unit := min(aligned.Spacing(a.Geometry), aligned.Spacing(b.Geometry))
	key := func(v *volume.Volume) []byte {
		h, g := sha256.New(), v.Geometry
		for k := range 3 { // as many digits as a header has: a quotient's last ones are rounding errors
			g.Spacing[k], g.Origin[k] = float64(float32(g.Spacing[k]/unit)), float64(float32(g.Origin[k]/unit))
		}
		json.NewEncoder(h).Encode(g) // finite numbers: it cannot fail
		hashFloats(h, v.Data)
		return h.Sum(nil)
	}
	return bytes.Compare(key(a), key(b)) <= 0
}

// behind returns the displacement of a whole map before the affine one that it ends with.
func behind(total *field.Field, initial volume.Affine, threads int) (*field.Field, error) {
	mm, err := total.BehindMM(initial, threads)
	if err != nil {
		return nil, err
	}
	return field.FromMM(total.Geometry, mm, threads), nil
}

// replaced returns the state with a whole map on the fixed grid, which ends with an initial transform.
func (p *problem) replaced(n *notes, st state, total *field.Field, initial volume.Affine) (state, error) {
	deform, err := behind(total, initial, p.opt.Threads)
	if err != nil {
		return st, err
	}
	n.metrics.Align.Matrix = initial.M
	n.metrics.Align.Translation = initial.T
	n.metrics.Align.Turn = p.turned(initial)
	n.metrics.Align.Overlap = align.Overlap(p.pair.Fixed.Geometry, p.pair.Moving.Geometry, initial)
	return p.deformed(p.at(st, initial), deform), nil
}

// exchanged returns the caller's pair with its images exchanged.
func (p *problem) exchanged() (Pair, error) {
	pair := Pair{Fixed: p.request.Moving, Moving: p.request.Fixed, FixedMask: p.request.MovingMask, MovingMask: p.request.FixedMask}
	for _, c := range p.request.Channels {
		c.Fixed, c.Moving = c.Moving, c.Fixed
		pair.Channels = append(pair.Channels, c)
	}
	if p.initial == nil {
		return pair, nil
	}
	initial := *p.initial // the caller's, or what the caller's field comes to
	if p.planes != nil {
		initial = p.planes.initial(initial)
	}
	inverse, err := initial.Inverse()
	pair.Initial = &inverse
	return pair, err
}

// backward solves the problem with its images exchanged, and returns the whole map and its initial transform. Slices
// run in the planes of the exchanged pair, as they do where the caller exchanges them.
func (p *problem) backward(e *env) (*field.Field, volume.Affine, error) {
	pair, err := p.exchanged()
	if err != nil {
		return nil, volume.Affine{}, err
	}
	opt := p.opt
	opt.Symmetric, opt.Uncertainty = "off", "off"
	report := newReporter()
	report.parent = e.report
	back := &env{ctx: e.ctx, sessions: e.sessions, tune: e.tune, report: report, notes: newNotes(opt)}
	b, err := newProblem(back, pair, opt, nil)
	if err != nil {
		return nil, volume.Affine{}, err
	}
	back.total = b.weight()
	st, err := b.solve(back)
	if err != nil {
		return nil, volume.Affine{}, err
	}
	total, initial := b.total(st), st.initial
	if p.planes != nil {
		total, initial = p.planes.exchanged(b.planes, total, initial, p.moving.Geometry)
	}
	return total, initial, nil
}

// cornersMove returns how far a map moves the corners of a grid, mm, in the mean.
func cornersMove(g volume.Geometry, by volume.Affine) (mean float64) {
	toMM := g.IndexToPhysical()
	for _, corner := range g.Corners(0) {
		p := toMM.Apply(corner)
		mean += float64(volume.Distance(by.Apply(p), p) / 8)
	}
	return mean
}

// lengths returns how far a field moves every voxel, mm.
func lengths(f *field.Field) *volume.Volume {
	v, m := volume.Zeros(f.Geometry), volume.Affine{M: f.IndexToPhysical().M}
	for i := range v.Data {
		v.Data[i] = float32(volume.Norm(m.Apply(f.Vector(i))))
	}
	return v
}
