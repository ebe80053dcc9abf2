package align

import (
	"cmp"
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/volume"
	"gonum.org/v1/gonum/mat"
)

const (
	planarRotations = 24   // of a slice
	farAhead        = 0.12 // of the best pose over all others, in score, with which a sweep ends
	withinReach     = 0.08 // of the best pose's score, within which a pose is refined once more
	comparedPoses   = 5    // the best, which are refined on finer voxels
	turnSpacing     = 4    // voxel size of the search over rotations, in voxels of the comparison
	farBetter       = 0.1  // gain in score without which the orientation stays; RATIONALE.md, The initial alignment
)

// turnedVoxels is about how many voxels the larger image has where orientations are refined, by the axes along which it
// extends.
var turnedVoxels = [4]float64{2: 125e3, 3: 200e3}

// rotationSearch looks for the moving image in one orientation after another, by FFT at a coarse grid.
type rotationSearch struct {
	searcher *searcher
	moving   downsampled
	basis    *mat.Dense
	spacing  float64
}

// newRotationSearch prepares a search on voxels of turnSpacing times h mm, or smaller ones where an image is thin. It
// reports false where the fixed image has no body at that size.
func (a *aligner) newRotationSearch(h float64) (rotationSearch, bool) {
	threads := a.opt.Threads
	spacing, longest := a.rotationGrid(h)
	w := newResampled(downsample(a.fixed, a.opt.FixedMask, spacing, threads), spacing, volume.Identity, threads)
	if w.bodyCount == 0 {
		return rotationSearch{}, false
	}
	f := describe(w, threads)
	basis := principal(f, f, threads)
	most := [3]int{3, 3, 3} // voxels of the moving image
	for k := range a.moving.Axes() {
		most[k] = longest
	}
	return rotationSearch{
		searcher: newSearcher(f.intoComponents(basis, threads).leading(searchComponents), most, threads),
		moving:   downsample(a.moving, a.opt.MovingMask, spacing, threads), basis: basis, spacing: spacing,
	}, true
}

// rotationGrid returns the voxel of the search over rotations, mm, and the most that the moving image has of them along
// any axis in any frame.
func (a *aligner) rotationGrid(h float64) (spacing float64, longest int) {
	diagonal := volume.Norm(a.moving.Lengths())
	const fine = 64 // voxels of the diagonal: no thin image needs the search to be finer
	for spacing = max(a.within(turnSpacing*h), min(turnSpacing*h, diagonal/fine)); ; spacing *= 1.1 {
		longest = int(diagonal/spacing) + 4
		voxels := 1.0
		for k, n := range boundingGrid(a.fixed.Geometry, spacing, volume.Identity).Size {
			if k == 2 && a.fixed.Flat() {
				n = 0
			}
			voxels *= float64(n + longest)
		}
		if voxels <= mostVoxels {
			return spacing, longest
		}
	}
}

// sweeps are the searches over the rotations of a volume, one after the other as long as no pose is far ahead: how many
// rotations, about 45 and 30 degrees apart, how many of the best are refined at least, and at most.
var sweeps = []struct{ rotations, least, most int }{{100, 4, 12}, {300, 4, 44}}

// orientations returns the rotations of a sweep.
func (a *aligner) orientations(count int) (all [][9]float64) {
	if !a.fixed.Flat() {
		for i := range count {
			all = append(all, superFibonacci(i, count))
		}
		return all
	}
	for i := range planarRotations {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / planarRotations)
		all = append(all, [9]float64{cos, -sin, 0, sin, cos, 0, 0, 0, 1})
	}
	return all
}

// best returns the best translation of the moving image turned by frame, a rotation; its score is 0 where there is
// none. MIND compares along the axes of a grid, so the moving image is described anew in every frame.
func (t rotationSearch) best(frame [9]float64) peak {
	threads := t.searcher.threads
	w := newResampled(t.moving, t.spacing, frame, threads)
	if w.bodyCount == 0 {
		return peak{}
	}
	m := describe(w, threads).intoComponents(t.basis, threads).leading(searchComponents)
	if found := t.searcher.search(m, [3]float64{1, 1, 1}); len(found) > 0 {
		return found[0]
	}
	return peak{}
}

// axisFlipped reports whether the moving image fits far better after a half turn about one of the axes, as it does
// where a header has wrong directions.
func (t rotationSearch) axisFlipped() bool {
	upright := t.best(volume.Identity).score
	for axis := range 3 {
		if axis < 2 && t.searcher.fixed.image.Flat() { // a slice is not turned over
			continue
		}
		half := [9]float64{-1, 0, 0, 0, -1, 0, 0, 0, -1}
		half[4*axis] = 1
		if t.best(half).score > upright+farBetter {
			return true
		}
	}
	return false
}

// turnedResult is what a search over rotations came to.
type turnedResult struct {
	turned  outcome // the best; its rival is any other pose
	views   views   // in its frame; without objective where there is none
	upright rival   // of the pose that was there before
}

// searchRotations looks for the moving image in every orientation: translations at a coarse grid, rigid refinement of the
// best, and the whole comparison, at voxels of h mm, in the frame found, against the upright pose.
func (a *aligner) searchRotations(t rotationSearch, upright outcome, h float64) (turnedResult, error) {
	largest := max(extent(a.fixed.Geometry), extent(a.moving.Geometry))
	fine := max(h, a.within(a.fixed.Root(largest/turnedVoxels[a.fixed.Axes()])))
	middle := max(fine, a.within(2*h))
	onMiddle, ok := a.newPoser(middle)
	if !ok {
		return turnedResult{}, nil
	}
	there, err := onMiddle.improve(upright.transform, upright.start, 0, 1)
	if err != nil {
		return turnedResult{}, err
	}
	poses := []outcome{there} // of different places, the best first
	for _, sweep := range sweeps {
		peaks, err := a.sweep(t, sweep.rotations)
		if err != nil {
			return turnedResult{}, err
		}
		for k, p := range peaks[:min(sweep.most, len(peaks))] {
			if k >= sweep.least && ahead(poses) > farAhead {
				break
			}
			o, err := onMiddle.improve(p.transform, p.score, 0, 1)
			if err == nil && o.score > poses[0].score-withinReach {
				o, err = onMiddle.improve(o.transform, o.start, o.score, 1)
			}
			if err != nil {
				return turnedResult{}, err
			}
			poses = a.withPose(poses, o)
		}
		if a.fixed.Flat() || ahead(poses) > farAhead {
			break
		}
	}
	onFine := onMiddle
	if fine < middle {
		if onFine, ok = a.newPoser(fine); !ok {
			return turnedResult{}, nil
		}
	}
	var result turnedResult
	var compared []outcome
	for _, o := range poses[:min(comparedPoses, len(poses))] {
		o, err := onFine.improve(o.transform, o.start, 0, 2)
		if err != nil {
			return turnedResult{}, err
		}
		compared = a.withPose(compared, o)
	}
	if there, err = onFine.improve(upright.transform, upright.start, 0, 1); err != nil {
		return turnedResult{}, err
	}
	result.upright = noRival
	for _, o := range compared {
		if !a.onePose(o, there) {
			result.upright = result.upright.or(rival{(there.score - o.score) / max(there.score, 1e-6), a.apart(there, o)})
		}
	}
	if compared[0].score <= there.score {
		return result, nil
	}
	best := compared[0]
	v, err := a.describe(h, best.transform.M)
	if err != nil {
		return result, nil
	}
	// The best of many tries on a coarse grid proves nothing by itself, so the score of its start counts as chance.
	if result.turned, err = a.refineAll(v, []peak{{chance, best.transform}}); err != nil {
		return result, err
	}
	if !a.fixed.Flat() {
		others := a.withPose(compared, there)
		second := rival{margin: ahead(others) / best.score}
		if len(others) > 1 {
			second.mm = a.apart(others[0], others[1])
		}
		result.turned.rival = result.turned.rival.or(second)
	}
	result.views = v
	return result, nil
}

// sweep returns the best translation for each of a count of rotations, the best first.
func (a *aligner) sweep(t rotationSearch, count int) ([]peak, error) {
	var peaks []peak
	for _, frame := range a.orientations(count) {
		if p := t.best(frame); p.score > 0 {
			peaks = append(peaks, p)
		}
		if err := a.checkpoint(0.6); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(peaks, func(p, q peak) int { return cmp.Compare(q.score, p.score) })
	return peaks, nil
}

// poser refines poses rigidly on voxels of one size. What is of the fixed image alone is computed once.
type poser struct {
	*aligner
	spacing float64
	basis   *mat.Dense
	fixed   features // in components
	smooth  []float32
	moving  downsampled
}

// newPoser prepares the refinement of poses on voxels of h mm. It reports false where the fixed image has no body at
// that size.
func (a *aligner) newPoser(h float64) (poser, bool) {
	threads := a.opt.Threads
	h = affordable(h, a.fixed.Geometry, a.moving.Geometry, volume.Identity)
	w := newResampled(downsample(a.fixed, a.opt.FixedMask, h, threads), h, volume.Identity, threads)
	if w.bodyCount == 0 {
		return poser{}, false
	}
	moving := downsample(a.moving, a.opt.MovingMask, h, threads)
	f, m := describe(w, threads), newResampled(moving, h, volume.Identity, threads)
	if m.bodyCount == 0 {
		return poser{}, false
	}
	basis := principal(f, describe(m, threads), threads)
	f = f.intoComponents(basis, threads)
	return poser{a, h, basis, f, f.interleaved(coarseSigma, threads), moving}, true
}

// improve refines a pose. Each step computes the moving features anew in the frame where the last one ended, for MIND
// depends on the axes. A pose in which the moving image has no body keeps its score.
func (p poser) improve(t volume.Affine, start, score float64, steps int) (outcome, error) {
	o := outcome{transform: t, start: start, score: score}
	for range steps {
		w := newResampled(p.moving, p.spacing, p.rotationOf(o.transform), p.opt.Threads)
		if w.bodyCount == 0 {
			return o, nil
		}
		m := describe(w, p.opt.Threads).intoComponents(p.basis, p.opt.Threads)
		v := views{fixed: p.fixed, moving: m}
		plain := p.objective(v, samples{p.smooth, m.interleaved(coarseSigma, p.opt.Threads), len(m.planes)}, coarsePoints)
		t, score, err := plain.maximise(p.ctx, o.transform, true, coarse)
		if err != nil {
			return o, p.failed(err)
		}
		o.transform, o.score = t, score
		if err := p.checkpoint(0.7); err != nil {
			return o, err
		}
	}
	return o, nil
}

// ahead is by how much the first of some poses scores more than the second.
func ahead(poses []outcome) float64 {
	if len(poses) == 1 {
		return poses[0].score
	}
	return poses[0].score - poses[1].score
}

// onePose says whether two transforms carry the fixed image to about the same place, as where one turns it by less than
// 17 degrees.
func (a *aligner) onePose(p, q outcome) bool {
	const near = 0.15 // of the diagonal
	corners := boxCorners(a.fixed.Geometry, 0)
	return a.apart(p, q) <= near*volume.Distance(corners[0], corners[7])
}

// apart is the mean distance between the corners of the fixed image under two transforms, mm.
func (a *aligner) apart(p, q outcome) float64 {
	return meanDistance(boxCorners(a.fixed.Geometry, 0), p.transform, q.transform)
}

// withPose adds a pose to others of different places, the best first.
func (a *aligner) withPose(poses []outcome, o outcome) []outcome {
	at := slices.IndexFunc(poses, func(p outcome) bool { return a.onePose(p, o) })
	switch {
	case at < 0:
		poses = append(poses, o)
	case poses[at].score < o.score:
		poses[at] = o
	}
	slices.SortStableFunc(poses, func(p, q outcome) int { return cmp.Compare(q.score, p.score) })
	return poses
}

// rotationOf returns the rotation nearest to a transform; of a slice, one in its plane.
func (a *aligner) rotationOf(t volume.Affine) [9]float64 {
	frame := volume.NearestRotation(t.M)
	return a.withinPlane(volume.Affine{M: frame}).M
}

// withinPlane returns a slice's transform without the rounding errors that lead out of the plane, and a volume's as it
// is.
func (a *aligner) withinPlane(t volume.Affine) volume.Affine {
	if a.fixed.Flat() {
		return t.WithinPlane()
	}
	return t
}

// turnLimit is how far, in radians, the moving image may turn against the frame that it is described in.
const turnLimit = 0.2

// reframe computes the moving features anew in the frame that the alignment has found and refines again, until the
// frame no longer turns.
func (a *aligner) reframe(best outcome, v views, h float64) (outcome, views, error) {
	for range 3 {
		frame := a.rotationOf(best.transform)
		if angle(frame, v.moving.grid.Direction) < turnLimit {
			break
		}
		turned, err := a.describe(h, frame)
		if err != nil {
			break
		}
		t, score, err := turned.plain.maximise(a.ctx, best.transform, a.opt.Method == Rigid, coarse)
		if err != nil {
			return best, v, a.failed(err)
		}
		if err := a.checkpoint(0.8); err != nil {
			return best, v, err
		}
		if score <= best.score {
			break
		}
		best.transform, best.score, v = t, score, turned
	}
	return best, v, nil
}

// angle is that between two rotations, radians.
func angle(p, q [9]float64) float64 {
	trace := 0.0
	for i := range p {
		trace += float64(p[i] * q[i])
	}
	return math.Acos(min(max((trace-1)/2, -1), 1))
}

// superFibonacci returns rotation i of n that cover all orientations evenly (Alexa, CVPR 2022).
func superFibonacci(i, n int) [9]float64 {
	const psi = 1.533751168755204288118041
	s := float64(i) + 0.5
	t := s / float64(n)
	r, q := math.Sqrt(t), math.Sqrt(1-t)
	sa, ca := math.Sincos(2 * math.Pi * s / math.Sqrt2)
	sb, cb := math.Sincos(2 * math.Pi * s / psi)
	x, y, z, w := r*sa, r*ca, q*sb, q*cb
	return [9]float64{
		1 - float64(2*(float64(y*y)+float64(z*z))), 2 * (float64(x*y) - float64(z*w)), 2 * (float64(x*z) + float64(y*w)),
		2 * (float64(x*y) + float64(z*w)), 1 - float64(2*(float64(x*x)+float64(z*z))), 2 * (float64(y*z) - float64(x*w)),
		2 * (float64(x*z) - float64(y*w)), 2 * (float64(y*z) + float64(x*w)), 1 - float64(2*(float64(x*x)+float64(y*y))),
	}
}
