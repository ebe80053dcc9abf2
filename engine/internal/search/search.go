// Package search finds large displacements without weights: a discrete search over self-similarity descriptors on
// control grids, coarse to fine, after the initial transform.
//
// Each level gives every control point the cost of all displacements in a window, by self-similarity and, where the two
// images' intensities correspond, by ranks of intensity (package blocks), and composes what is found with what came
// before (Heinrich et al., IEEE Trans. Med. Imaging 2013, and MICCAI 2013). It does so from the fixed image to the
// moving one and back, and reconciles the two maps after every level: a wrong match is seldom the same in both
// directions. RATIONALE.md (The search) has what each part is worth.
package search

import (
	"cmp"
	"context"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/blocks"
	"github.com/morphseek/morphseek/engine/internal/bodies"
	"github.com/morphseek/morphseek/engine/volume"
)

var levels = []blocks.Level{
	{Spacing: 6, Radius: 5, Quantum: 2, Stiffness: 36},
	{Spacing: 5, Radius: 5, Quantum: 1, Stiffness: 36},
	{Spacing: 4, Radius: 3, Quantum: 1, Stiffness: 12},
	{Spacing: 3, Radius: 2, Quantum: 1, Stiffness: 12},
}

const (
	smoothing   = 0.5 // standard deviation, in control spacings, of the Gaussian on a level's field
	minJacobian = 0.1 // least Jacobian determinant of a level's own step and of the result
)

// Options of a search.
type Options struct {
	// Passes is how often every level is searched, each pass from the result of the one before; 0: once. What the first
	// pass corrects helps neighbours in the second. A third finds nothing more.
	Passes int

	// Trees is the number of spanning trees of the control grid over which the min-marginals are averaged; 0: one. Where
	// two displacements match nearly alike the choice depends on the tree, so that several trees leave less to chance.
	Trees int

	// Stiffness multiplies the cost of neighbours that move differently; 0: 1.
	Stiffness float64

	Locked [3]bool // axes of the grid (x, y, z) along which nothing moves

	// Intensities is set where the intensities of the two images correspond: they are then compared, too.
	Intensities bool

	Threads  int                    // 0: every core; the result does not depend on it
	Progress func(fraction float64) // may be nil
}

// levelsFor returns the levels that run on a working grid, and their longest reach in voxels.
func levelsFor(grid volume.Geometry) (plan []blocks.Level, margin int) {
	for _, l := range levels {
		if l.Fits(grid) {
			plan = append(plan, l)
			margin = max(margin, l.Reach())
		}
	}
	return plan, margin
}

// Fits says whether a pair is large enough for any level.
func Fits(pair aligned.Pair) bool {
	plan, _ := levelsFor(blocks.WorkingGrid(pair))
	return len(plan) > 0
}

// Run returns a smooth field without folding on a working grid of isotropic voxels over the fixed volume: zeros where the
// pair is too small.
// Errors: Cancelled.
func Run(ctx context.Context, pair aligned.Pair, opt Options) (*field.Field, error) {
	grid := blocks.WorkingGrid(pair)
	plan, margin := levelsFor(grid)
	if len(plan) == 0 {
		return field.New(grid), nil
	}
	room := &blocks.Room{}
	directions := bothDirections(pair, grid, margin, room, opt)
	for _, c := range pair.Channels {
		under, of := c.Under(pair.Initial), opt
		of.Intensities = c.Intensities
		both := labelDirections
		if c.Labels == 0 {
			both = bothDirections
		}
		for k, d := range both(under, grid, margin, room, of) {
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
			l.Stiffness *= cmp.Or(opt.Stiffness, 1)
			d.advance(l, opt)
		}
		field.Reconcile(directions[0].u, directions[1].u, opt.Threads)
		for _, d := range directions {
			d.u.Lock(opt.Locked)
		}
		rigid.Make(directions[0].u, nil, pair.Initial)
	}
	u := directions[0].u
	u.Smoothed(u, 1, opt.Threads)
	rigid.Make(u, nil, pair.Initial)
	rigid.Unfold(u, minJacobian, opt.Threads)
	return u, nil
}

// direction is the search from one image to the other.
type direction struct {
	images   aligned.Images
	fixed    []blocks.Descriptor
	moving   blocks.Thresholds // of the moving image
	dilation int               // of the descriptors
	labels   bool              // the images are label maps
	channels []*direction      // further images
	weight   float32           // of a channel; the pair's own images have 1
	u        *field.Field      // the displacement so far; nil before the first level
	room     *blocks.Room      // of the whole search
}

// bothDirections returns the searches from the fixed image to the moving one and back.
func bothDirections(pair aligned.Pair, grid volume.Geometry, margin int, room *blocks.Room, opt Options) [2]*direction {
	forward, backward := pair.BothDirections(grid, margin, opt.Threads)
	var fixed, moving blocks.Thresholds
	dilation := blocks.Near
	if opt.Intensities {
		fixed, moving = blocks.ThresholdsOf(forward.Fixed, backward.Fixed, forward.FixedValid, backward.FixedValid)
		dilation = blocks.Wide
	}
	of := func(im aligned.Images, fixed, moving blocks.Thresholds) *direction {
		codes := blocks.Describe(im.Fixed, im.FixedValid, fixed, dilation, room, opt.Threads)
		return &direction{images: im, fixed: codes, moving: moving, dilation: dilation, room: room}
	}
	return [2]*direction{of(forward, fixed, moving), of(backward, moving, fixed)}
}

// labelDirections is bothDirections of label maps.
func labelDirections(pair aligned.Pair, grid volume.Geometry, margin int, room *blocks.Room, opt Options) (both [2]*direction) {
	forward, backward := pair.LabelsBothDirections(grid, margin, opt.Threads)
	for k, im := range []aligned.Images{forward, backward} {
		both[k] = &direction{images: im, fixed: blocks.LabelCodes(im.Fixed, im.FixedValid), labels: true, room: room}
	}
	return both
}

// advance searches at a level, from the displacement of the levels before.
func (d *direction) advance(l blocks.Level, opt Options) {
	threads := opt.Threads
	s := d.step(l, d.u, threads)
	s.Locked = opt.Locked
	for _, c := range d.channels {
		s.Channels = append(s.Channels, c.step(l, d.u, threads))
		s.Channels[len(s.Channels)-1].Weight = c.weight
	}
	temperature := float64(blocks.Blunt)
	if opt.Intensities {
		temperature = blocks.Sharp
	}
	g := s.Solve(opt.Trees, temperature).Resample(s.Grid, threads)
	g.Lock(opt.Locked)
	g.Smoothed(g, smoothing*float64(l.Spacing), threads)
	g.Unfold(minJacobian, threads)
	if d.u != nil {
		field.Compose(g, d.u, g, threads) // the few folds that this makes are opened at the end
	}
	d.u = g
}

// step returns the search at a level, from the displacement u of the levels before.
func (d *direction) step(l blocks.Level, u *field.Field, threads int) *blocks.Step {
	im, moving := d.images, []blocks.Descriptor(nil)
	if d.labels {
		if u != nil {
			u := u.Resample(im.Moving.Geometry, threads)
			im.Moving = u.Warp(im.Moving, volume.Nearest, 0, threads)
			im.MovingValid = u.Warp(im.MovingValid, volume.Nearest, 0, threads)
		}
		moving = blocks.LabelCodes(im.Moving, im.MovingValid)
	} else {
		im = im.Through(u, threads)
		moving = blocks.Describe(im.Moving, im.MovingValid, d.moving, d.dilation, d.room, threads)
	}
	return blocks.NewStep(l, im, d.fixed, moving, u, d.room, threads)
}
