// Package search finds large displacements without weights: a discrete search over self-similarity descriptors on control
// grids, coarse to fine, after the initial transform.
//
// Each level gives every control point the cost of all displacements in a window (the Hamming distance between quantised
// MIND-SSC descriptors and, where the two images' intensities correspond, ranks of intensity, averaged over the point's patch), finds the set
// of displacements of least cost plus squared differences along spanning trees of the control grid, exactly on each, by
// message passing, and composes it with what came before (Heinrich et al., IEEE Trans. Med. Imaging 2013, and MICCAI 2013). It
// does so from the fixed image to the moving one and back, and reconciles the two maps after every level: a wrong match is
// seldom the same in both directions. RATIONALE.md (The search) has what each part is worth.
package search

import (
	"cmp"
	"context"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/bodies"
	"github.com/morphseek/morphseek/engine/volume"
)

// level is one control grid and the window searched there; lengths are in voxels of the working grid.
type level struct {
	spacing int // between control points
	radius  int // displacements are quantum*(-radius..radius) along each axis
	quantum int
	// stiffness is the cost, in bits a descriptor, of a unit strain between neighbours. It is higher where the window is wide, for a wide window
	// holds more false matches.
	stiffness float64
}

// reach is the longest displacement of a level.
func (l level) reach() int { return l.radius * l.quantum }

var levels = []level{{6, 5, 2, 36}, {5, 5, 1, 36}, {4, 3, 1, 12}, {3, 2, 1, 12}}

// reachShare bounds a level's reach, as a share of the working grid's mean side: in a small crop only the finer levels run.
const reachShare = 0.12

// workingVoxels is about how many voxels the working grid has: 4 mm for a torso, 2 mm for a head.
const workingVoxels = 850e3

// workingPixels is about how many a slice's has: with the same number along a side the levels reach as far.
const workingPixels = 16e3

// Dilations of the descriptors, voxels: near suits two contrasts, wide one contrast whose intensities are compared too (RATIONALE.md, MIND at a
// dilation of one voxel).
const near, wide = 1, 2

const (
	smoothing   = 0.5 // standard deviation, in control spacings, of the Gaussian on a level's field
	minJacobian = 0.1 // least Jacobian determinant of a level's own step and of the result
)

// Options of a search.
type Options struct {
	// Passes is how often every level is searched, each pass from the result of the one before; 0: once. What the first pass corrects helps
	// neighbours in the second. A third finds nothing more.
	Passes int

	// Trees is the number of spanning trees of the control grid over which the min-marginals are averaged; 0: one. Where two displacements match
	// nearly alike the choice depends on the tree, so that several trees leave less to chance.
	Trees int

	// Stiffness multiplies the cost of neighbours that move differently; 0: 1.
	Stiffness float64

	Locked [3]bool // axes of the grid (x, y, z) along which nothing moves

	// Intensities is set where the intensities of the two images correspond: they are then compared, too.
	Intensities bool

	Threads  int                    // 0: every core; the result does not depend on it
	Progress func(fraction float64) // may be nil
}

// workingGrid returns the grid of isotropic voxels, over the fixed volume, that the search works on.
func workingGrid(pair aligned.Pair) volume.Geometry {
	own := aligned.Spacing(pair.Fixed.Geometry)
	most := workingVoxels
	if pair.Fixed.Flat() {
		most = workingPixels
	}
	return pair.Grid(max(own, own*pair.Fixed.Root(float64(pair.Fixed.Voxels())/most)))
}

// fits says whether the level's reach is within bounds on a working grid.
func (l level) fits(grid volume.Geometry) bool {
	return float64(l.reach()) <= reachShare*grid.Side()
}

// levelsFor returns the levels that run on a working grid, and their longest reach in voxels.
func levelsFor(grid volume.Geometry) (plan []level, margin int) {
	for _, l := range levels {
		if l.fits(grid) {
			plan = append(plan, l)
			margin = max(margin, l.reach())
		}
	}
	return plan, margin
}

// Run returns a smooth field without folding on a working grid of isotropic voxels over the fixed volume.
//
// Errors: Cancelled.
func Run(ctx context.Context, pair aligned.Pair, opt Options) (*field.Field, error) {
	grid := workingGrid(pair)
	plan, margin := levelsFor(grid)
	if len(plan) == 0 {
		return field.New(grid), nil
	}
	directions := bothDirections(pair, grid, margin, opt)
	for _, c := range pair.Channels {
		under, of := c.Under(pair.Initial), opt
		of.Intensities = c.Intensities
		both := labelDirections
		if c.Labels == 0 {
			both = bothDirections
		}
		for k, d := range both(under, grid, margin, of) {
			d.weight = float32(c.Weight)
			directions[k].channels = append(directions[k].channels, d)
		}
	}
	rigid := bodies.On(grid, pair.Rigid, opt.Threads)
	passes := max(opt.Passes, 1)
	for i := range passes * len(plan) {
		for k, d := range directions {
			if ctx.Err() != nil {
				return nil, fault.Wrap(fault.Cancelled, ctx.Err(), "the search was cancelled")
			}
			if opt.Progress != nil {
				opt.Progress(float64(2*i+k) / float64(2*passes*len(plan)))
			}
			l := plan[i/passes]
			l.stiffness *= cmp.Or(opt.Stiffness, 1)
			d.advance(l, margin, opt)
		}
		field.Reconcile(directions[0].u, directions[1].u, opt.Threads)
		for _, d := range directions {
			d.u.Lock(opt.Locked)
		}
		rigid.Make(directions[0].u, nil, pair.Initial)
	}
	u := directions[0].u.Smoothed(nil, 1, opt.Threads)
	rigid.Make(u, nil, pair.Initial)
	rigid.Unfold(u, minJacobian, opt.Threads)
	return u, nil
}

// direction is the search from one image to the other.
type direction struct {
	images   aligned.Images
	fixed    []uint64     // descriptors
	moving   thresholds   // of the moving image
	dilation int          // of the descriptors
	labels   bool         // the images are label maps
	channels []*direction // further images
	weight   float32      // of a channel; the pair's own images have 1
	u        *field.Field // the displacement so far; nil before the first level
}

// bothDirections returns the searches from the fixed image to the moving one and back.
func bothDirections(pair aligned.Pair, grid volume.Geometry, margin int, opt Options) [2]*direction {
	forward, backward := pair.BothDirections(grid, margin, opt.Threads)
	var fixed, moving thresholds
	dilation := near
	if opt.Intensities {
		fixed, moving = thresholdsOf(forward.Fixed, backward.Fixed, forward.FixedValid, backward.FixedValid)
		dilation = wide
	}
	return [2]*direction{newDirection(forward, fixed, moving, dilation, opt), newDirection(backward, moving, fixed, dilation, opt)}
}

// labelDirections is bothDirections of label maps.
func labelDirections(pair aligned.Pair, grid volume.Geometry, margin int, opt Options) (both [2]*direction) {
	forward, backward := pair.LabelsBothDirections(grid, margin, opt.Threads)
	for k, im := range []aligned.Images{forward, backward} {
		both[k] = &direction{images: im, fixed: codes(im.Fixed, im.FixedValid), labels: true}
	}
	return both
}

func newDirection(im aligned.Images, fixed, moving thresholds, dilation int, opt Options) *direction {
	return &direction{images: im, fixed: describe(im.Fixed, im.FixedValid, fixed, dilation, opt.Threads), moving: moving, dilation: dilation}
}

// advance searches at a level, from the displacement of the levels before.
func (d *direction) advance(l level, margin int, opt Options) {
	threads := opt.Threads
	s := d.step(l, d.u, margin, threads)
	s.locked = opt.Locked
	for _, c := range d.channels {
		s.channels = append(s.channels, c.step(l, d.u, margin, threads))
		s.channels[len(s.channels)-1].weight = c.weight
	}
	g := s.solve(opt.Trees).Resample(s.grid, threads)
	g.Lock(opt.Locked)
	g = g.Smoothed(nil, smoothing*float64(l.spacing), threads)
	g.Unfold(minJacobian, threads)
	if d.u != nil {
		g = field.Compose(nil, d.u, g, threads) // the few folds that this makes are opened at the end
	}
	d.u = g
}

// step returns the search at a level, from the displacement u of the levels before.
func (d *direction) step(l level, u *field.Field, margin, threads int) *step {
	if !d.labels {
		return newStep(l, d.images.Through(u, threads), d.fixed, d.moving, d.dilation, u, margin, threads)
	}
	im := d.images
	if u != nil {
		u := u.Resample(im.Moving.Geometry, threads)
		im.Moving, im.MovingValid = u.Warp(im.Moving, volume.Nearest, 0, threads), u.Warp(im.MovingValid, volume.Nearest, 0, threads)
	}
	return &step{level: l, total: u, grid: im.Fixed.Geometry, margin: margin, threads: threads, fixed: d.fixed, moving: codes(im.Moving, im.MovingValid), image: im.Fixed.Data}
}
