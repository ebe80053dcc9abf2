// Package refine improves a registration on the pair at hand: gradient steps on a local similarity, coarse to fine,
// after whatever field came before.
//
// A step composes a small smooth displacement with the refinement v so far, v <- v o (id + g), g being the similarity's
// gradient after a Gaussian (fluid regularisation) and scaled to a fraction of a voxel; a narrower Gaussian on v
// follows (elastic, or diffusion, regularisation). That is a flow of small diffeomorphisms in time (Christensen et al.,
// IEEE Trans. Image Process. 1996; Avants et al., Med. Image Anal. 2008). The result is start o (id + v), so the
// regularisation does not wear away what came before.
//
// The steps are Go kernels and not a graph of the networks' runtime: on a CPU, which is what most users have, one
// iteration of the same arithmetic takes that runtime several times as long, most of it in 5-D GridSample and pooling.
package refine

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/bodies"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/interp"
	"github.com/morphseek/morphseek/engine/volume"
)

// Similarity names what a refinement maximises.
type Similarity string

// The similarities.
const (
	NCC  Similarity = "ncc"  // local normalised cross-correlation
	MSE  Similarity = "mse"  // minus the mean squared difference of normalised intensities
	MIND Similarity = "mind" // minus the mean squared difference of MIND-SSC descriptors
)

// Options says how to refine.
type Options struct {
	Similarity Similarity
	Iterations int     // at most, at the finest resolution; twice as many at each coarser one
	Voxels     int     // of the finest grid, at most: coarser than the fixed volume's where that has more
	Threads    int     // 0: every core; the result does not depend on it
	Locked     [3]bool // axes of the grids (x, y, z) along which nothing moves

	// Progress is told the fraction done; it may be nil.
	Progress func(fraction float64)
}

// Regularisation keeps the deformation smooth. Lengths are in voxels of the resolution at hand.
type Regularisation struct {
	Fluid   float64 // standard deviation of the Gaussian on the gradient: tissue within it moves together
	Elastic float64 // standard deviation of the Gaussian on the displacement after every step: it holds back the total motion
	Fading  float64 // 0: every step is as long as the first; 1: steps shorten with the force
	Sharpen float64 // amount of detail added to the images (see aligned.Images.Sharpened)
}

// Level is how the refinement went at one resolution.
type Level struct {
	Spacing    float64   // mm
	Similarity []float64 // before each iteration
}

// The steps and the images, in voxels of the resolution at hand.
const (
	longest  = 0.5         // displacement of one step, at most
	shortest = longest / 8 // the same of the last step
	halving  = 5           // iterations without a rise, after which a step is half as long
	window   = 2           // radius of the correlation's window

	detail = 0.7 // standard deviation of the blur that sharpening takes away

	margin      = 8    // how far a displacement may reach beyond the fixed volume
	revalidate  = 10   // iterations after which the voxels that are valid in both volumes are determined again
	minJacobian = 0.01 // least Jacobian determinant of the result
)

// similarity is a measure on one pair of images. Its value rises as they come to match.
type similarity interface {
	// validate determines which voxels are valid in both images under u.
	validate(u *field.Field)
	// voxels is how many voxels the last validate found valid.
	voxels() int
	// force returns the sum of the valid voxels' values under u and writes its derivative by the warped image's motion, times
	// perValue, to g, or a ring of part slices. It calls done(from, to) for slices from, ..., to-1 that are complete.
	force(g, u *field.Field, done func(from, to int)) float64
	// part is the number of slices for which force calls done, but for the last ones: even, or all.
	part() int
	// reach is the rows outside which the force is 0, since the last validate.
	reach() filter.Band
}

// Refinement is a refinement under way: first Coarse, which tells how well the images agree, then Fine.
type Refinement struct {
	pair   aligned.Pair
	start  *field.Field
	opt    Options
	grids  []volume.Geometry // coarse to fine
	images []aligned.Images  // on the grids, without start; each made when first read
	v      *field.Field      // the displacement so far: the result is start o (id + v)
	done   int               // grids that are finished
	fluid  float64           // Regularisation.Fluid of Coarse
	levels []Level
	work   float64 // done so far, in voxels times iterations
	total  float64 // to be done, likewise
}

// New prepares the refinement of start, a field on any grid; nil is the identity.
func New(pair aligned.Pair, start *field.Field, opt Options) *Refinement {
	grids := resolutions(pair, opt, start == nil)
	r := &Refinement{pair: pair, start: start, opt: opt, grids: grids, images: make([]aligned.Images, len(grids))}
	for i := range r.grids {
		r.total += r.cost(i)
	}
	return r
}

// iterations is the most iterations at resolution i.
func (r *Refinement) iterations(i int) int { return r.opt.Iterations << (len(r.grids) - 1 - i) }

func (r *Refinement) cost(i int) float64 {
	return float64(float64(r.grids[i].Voxels()) * float64(r.iterations(i)))
}

// Spacing is the voxel of the finest resolution, mm.
func (r *Refinement) Spacing() float64 { return aligned.Spacing(r.grids[len(r.grids)-1]) }

// Shortest is how many voxels the finest resolution has along its shortest axis; of a slice, in its plane.
func (r *Refinement) Shortest() int {
	g := r.grids[len(r.grids)-1]
	return slices.Min(g.Size[:g.Axes()])
}

// Coarse refines at all resolutions but the finest and measures how well the images agree at the last of them. If there
// is only one resolution it measures them there, unrefined. With brief it takes a third of the iterations, which show
// the agreement as well. Within one body that is also as good a start for Fine as all of them.
//
// Errors: InvalidArgument for an unknown similarity; Cancelled.
func (r *Refinement) Coarse(ctx context.Context, by Regularisation, brief bool) (Agreement, error) {
	r.fluid = by.Fluid
	if err := r.coarser(ctx, by, brief); err != nil {
		return Agreement{}, err
	}
	return r.agreement(), nil
}

// coarser refines at all resolutions but the finest.
func (r *Refinement) coarser(ctx context.Context, by Regularisation, brief bool) error {
	for r.done < len(r.grids)-1 {
		iterations := r.iterations(r.done)
		if brief {
			iterations = (iterations + 2) / 3
		}
		if err := r.level(ctx, by, iterations); err != nil {
			return err
		}
	}
	return nil
}

// OfChannels returns, for every channel whose intensities are compared, what Coarse and Detail return for the pair's
// own images.
func (r *Refinement) OfChannels() (all []Agreement) {
	for _, c := range r.pair.Channels {
		if c.Labels > 0 || !c.Intensities {
			continue
		}
		one := *r
		one.pair, one.images = c.Under(r.pair.Initial), make([]aligned.Images, len(r.grids))
		a := one.agreement()
		a.Detail = one.Detail()
		all = append(all, a)
	}
	return all
}

// agreement measures the pair under start o (id + v).
func (r *Refinement) agreement() Agreement {
	im := r.atHalf()
	return agree(im.Through(r.start, r.opt.Threads), onto(im.Fixed.Geometry, r.v, r.opt.Threads), r.opt.Threads)
}

// Found returns the displacement v that Coarse has found, without start; nil before.
func (r *Refinement) Found() *field.Field { return r.v }

// Bend returns the standard deviation of the logarithm of the Jacobian determinant of Found; 0 where that moves nothing.
func (r *Refinement) Bend() float64 {
	if r.v == nil {
		return 0
	}
	return r.v.Stats(r.opt.Threads).SDLogJ
}

// Agreement measures the pair under u, a whole deformation on any grid (nil: none), as Coarse does.
func (r *Refinement) Agreement(u *field.Field) Agreement {
	im := r.atHalf()
	return agree(im, onto(im.Fixed.Geometry, u, r.opt.Threads), r.opt.Threads)
}

// Detail returns the ratio of the squared local correlation at the finest resolution to that at half of it, under the
// displacement that Coarse has found, in the middle half of the fixed image along each axis. Noise makes it small.
func (r *Refinement) Detail() float64 {
	fine := r.grids[len(r.grids)-1].Middle(2)
	half := r.atHalf().Fixed.Geometry.Middle(2)
	left := func(g volume.Geometry) float64 {
		im := r.pair.At(g, margin, aligned.RepeatedEdge, r.opt.Threads).Through(r.start, r.opt.Threads)
		return agree(im, onto(g, r.v, r.opt.Threads), r.opt.Threads).Correlation
	}
	if coarse := left(half); coarse > 0 {
		return left(fine) / coarse
	}
	return 0
}

// atHalf returns the pair at half the finest resolution.
func (r *Refinement) atHalf() aligned.Images { return r.at(max(len(r.grids)-2, 0)) }

// at returns the pair at resolution i.
func (r *Refinement) at(i int) aligned.Images {
	if r.images[i].Fixed == nil {
		r.images[i] = r.pair.At(r.grids[i], margin, aligned.RepeatedEdge, r.opt.Threads)
	}
	return r.images[i]
}

// Fine refines at the finest resolution, after Coarse, and returns start o (id + v) there. If the fluid Gaussian is
// narrower than in Coarse, the coarser resolutions are refined again first: the finest one does not recover what they
// smoothed away.
//
// Errors: InvalidArgument for an unknown similarity; Cancelled.
func (r *Refinement) Fine(ctx context.Context, by Regularisation) (*field.Field, []Level, error) {
	if by.Fluid < r.fluid {
		r.v, r.done, r.work, r.levels = nil, 0, 0, nil
		if err := r.coarser(ctx, by, false); err != nil {
			return nil, nil, err
		}
	}
	if err := r.level(ctx, by, r.opt.Iterations); err != nil {
		return nil, nil, err
	}
	v := r.v
	if r.start != nil {
		v = field.Compose(nil, r.start.Resample(v.Geometry, r.opt.Threads), v, r.opt.Threads)
	}
	v.Lock(r.opt.Locked)
	rigid := bodies.On(v.Geometry, r.pair.Rigid, r.opt.Threads)
	rigid.Make(v, nil, r.pair.Initial)
	rigid.Unfold(v, minJacobian, r.opt.Threads)
	return v, r.levels, nil
}

// level refines at the next resolution, for so many iterations at most.
func (r *Refinement) level(ctx context.Context, by Regularisation, iterations int) error {
	g, im, finest := r.grids[r.done], r.at(r.done), r.done == len(r.grids)-1
	if finest {
		clear(r.images) // nobody reads them again, and the finest resolution takes most memory
	}
	s, err := newSimilarity(r.opt.Similarity, r.sharpened(im, by), r.opt.Threads)
	if err != nil {
		return err
	}
	if s, err = r.channels(s, g, by); err != nil {
		return err
	}
	work := float64(float64(g.Voxels()) * float64(iterations))
	before := r.v
	c := ascent{similarity: s, v: onto(g, before, r.opt.Threads), by: by, iterations: iterations, locked: r.opt.Locked, threads: r.opt.Threads,
		finest: finest,
		progress: func(fraction float64) {
			if r.opt.Progress != nil {
				r.opt.Progress(min((r.work+float64(work*fraction))/r.total, 1))
			}
		}}
	c.v.Lock(r.opt.Locked)
	if rigid := bodies.On(g, r.pair.Rigid, r.opt.Threads); rigid != nil {
		var start *field.Field
		if r.start != nil {
			start = r.start.Resample(g, r.opt.Threads)
		}
		c.shape = func(v *field.Field) { rigid.Make(v, start, r.pair.Initial) }
		c.shape(c.v)
	}
	values, err := c.run(ctx)
	if err != nil {
		return err
	}
	r.v = c.v
	if len(values) > 0 && values[len(values)-1] < values[0] {
		r.v = onto(g, before, r.opt.Threads) // it began at a maximum, and steps that do not fade only led away
	}
	r.levels = append(r.levels, Level{aligned.Spacing(g), values})
	r.work += work
	r.done++
	return nil
}

// sharpened returns images, sharpened, with the moving one resampled through start.
func (r *Refinement) sharpened(im aligned.Images, by Regularisation) aligned.Images {
	if by.Sharpen != 0 {
		im = im.Sharpened(detail, float32(by.Sharpen), r.opt.Threads)
	}
	return im.Through(r.start, r.opt.Threads)
}

// Run refines start, a field on any grid (nil: the identity), regularised alike at all resolutions, and returns start o
// (id + v) on the finest grid.
//
// Errors: InvalidArgument for an unknown similarity; Cancelled.
func Run(ctx context.Context, pair aligned.Pair, start *field.Field, by Regularisation, opt Options) (*field.Field, []Level, error) {
	r := New(pair, start, opt)
	if _, err := r.Coarse(ctx, by, false); err != nil {
		return nil, nil, err
	}
	return r.Fine(ctx, by)
}

// onto returns v, or the identity where that is nil, on g.
func onto(g volume.Geometry, v *field.Field, threads int) *field.Field {
	if v == nil {
		return field.New(g)
	}
	return v.Resample(g, threads)
}

// nativeSpacing is an image's voxel size, mm: its spacing where that is isotropic. For thick slices it is the geometric
// mean of the least spacing and of the isotropic voxel with the same volume.
func nativeSpacing(v *volume.Volume) float64 {
	// A single slice's third spacing is the mean of the others.
	return math.Sqrt(aligned.Spacing(v.Geometry) * slices.Min(v.Spacing[:]))
}

// minSpacing is the least spacing of the finest grid, in voxels of the fixed image, if the moving image is finer and so
// would lose detail on the fixed grid (RATIONALE.md, Grids).
const minSpacing = 0.8

// finer is the ratio of the moving image's voxel to the fixed one's below which the moving image counts as finer.
const finer = 0.95

// voxel returns the voxel size, mm, at which a pair is refined, if the grid may have so many voxels.
func voxel(pair aligned.Pair) float64 {
	fixed, moving := nativeSpacing(pair.Fixed), nativeSpacing(pair.Moving)
	if moving > finer*fixed {
		return fixed
	}
	return max(moving, minSpacing*fixed)
}

// FinestSpacing is the voxel size of a pair's finest level, mm, by the voxels that it may have.
func FinestSpacing(pair aligned.Pair, maxVoxels int) float64 {
	_, spacing := finest(pair, maxVoxels)
	return spacing
}

// Bytes is about how much memory the refinement of a pair takes, by the voxels that its finest level may have.
func Bytes(pair aligned.Pair, maxVoxels int) int64 {
	const float, live = 4, 24 // a voxel holds so many values: images, window moments, fields
	g, _ := finest(pair, maxVoxels)
	return float * live * int64(g.Voxels())
}

// finest returns the grid of the finest level and its voxel size, mm. It has more voxels than the fixed image where the slices
// are thick or the moving image is finer, and about maxVoxels at most.
func finest(pair aligned.Pair, maxVoxels int) (g volume.Geometry, spacing float64) {
	spacing = voxel(pair)
	n := pair.Grid(spacing).Voxels()
	switch {
	case n <= maxVoxels && spacing == nativeSpacing(pair.Fixed):
		return pair.GridOfFixed(spacing), spacing
	case n <= maxVoxels:
		return pair.Grid(spacing), spacing
	}
	spacing *= pair.Fixed.Root(float64(n) / float64(maxVoxels))
	// Along its thickness a thin volume's grid keeps the least size.
	for g = pair.Grid(spacing); g.Voxels() > maxVoxels+maxVoxels/2; g = pair.Grid(spacing) {
		spacing *= 1.1
	}
	return g, spacing
}

// resolutions returns the grids, coarse to fine: up to three after the initial transform, up to two after another
// stage.
func resolutions(pair aligned.Pair, opt Options, first bool) []volume.Geometry {
	const smallest, smallestSlice = 12, 48 // voxels along the shortest axis that still make a level
	// Descriptors have many values a voxel: a smaller grid keeps the memory within bounds.
	if opt.Similarity.Descriptors() || slices.ContainsFunc(pair.Channels, func(c aligned.Channel) bool { return !c.Intensities }) {
		opt.Voxels = min(opt.Voxels, 2<<20)
	}
	fine, spacing := finest(pair, opt.Voxels)
	grids := []volume.Geometry{fine}
	maxLevels := 2
	if first {
		maxLevels = 3
	}
	flat := pair.Fixed.Flat()
	for len(grids) < maxLevels || flat && first { // slices may be large
		spacing *= 2
		g := pair.Grid(spacing)
		if shortest := slices.Min(g.Size[:g.Axes()]); shortest < smallest || len(grids) >= maxLevels && shortest < smallestSlice {
			break
		}
		grids = append([]volume.Geometry{g}, grids...)
	}
	return grids
}

func newSimilarity(name Similarity, im aligned.Images, threads int) (similarity, error) {
	switch name {
	case NCC:
		return newNCC(im, threads), nil
	case MSE:
		fixed, moving := [][]float32{im.Fixed.Data}, [][]float32{im.Moving.Data}
		return newSSD(im, 1, interleaved(fixed, 1, 0, threads), interleaved(moving, 1, 0, threads), threads), nil
	case MIND:
		return newMIND(im, threads), nil
	}
	return nil, fault.New(fault.InvalidArgument, "similarity %q is unknown; the option's choices are the similarities", name)
}

// Descriptors says whether a similarity compares several values of a voxel, which tell of its surroundings whatever the contrast.
func (s Similarity) Descriptors() bool { return s == MIND }

// openRow sets, in the row y, z of open, bit k where a voxel and both its neighbours along axis k have weight 1.
func openRow(open []uint8, weight []float32, size [3]int, y, z int) {
	nx, slice := size[0], size[0]*size[1]
	acrossY, acrossZ := y > 0 && y < size[1]-1, z > 0 && z < size[2]-1
	for x := range nx {
		i := z*slice + y*nx + x
		open[i] = 0
		if weight[i] == 0 {
			continue
		}
		if x > 0 && x < nx-1 && weight[i-1] == 1 && weight[i+1] == 1 {
			open[i] |= 1
		}
		if acrossY && weight[i-nx] == 1 && weight[i+nx] == 1 {
			open[i] |= 2
		}
		if acrossZ && weight[i-slice] == 1 && weight[i+slice] == 1 {
			open[i] |= 4
		}
	}
}

// ascent is the gradient ascent at one resolution.
type ascent struct {
	similarity similarity
	v          *field.Field
	by         Regularisation
	iterations int
	finest     bool // no decision follows: wide Gaussians may act on half of the grid
	locked     [3]bool
	shape      func(v *field.Field) // what every step ends with; may be nil
	threads    int
	progress   func(fraction float64)
}

// run takes steps until the similarity stops rising, and returns its value before each: a mean over the voxels that are
// valid at first. One that leaves the other field of view counts as the first mean, so that leaving gains nothing.
func (c *ascent) run(ctx context.Context) ([]float64, error) {
	grid := c.v.Geometry
	part, done := grid, func(_, _ int) {}
	var g, force *field.Field // the gradient, and what force writes: the same, or a part on the grid
	if c.finest && c.by.Fluid >= wide && isLarge(grid.Size) {
		g = field.New(halved(grid))
		part.Size[2] = c.similarity.part()
		force = field.New(part)
		done = func(from, to int) { halve(g, force, from, to, c.threads) }
	} else {
		g = field.New(grid)
		force = g
	}
	step, farthest := float64(longest), 0.0 // farthest: the longest vector of any gradient so far
	var valid, mean float64                 // at first
	var values []float64
	for it := range c.iterations {
		if err := ctx.Err(); err != nil {
			return nil, fault.Wrap(fault.Cancelled, err, "the refinement was cancelled")
		}
		c.progress(float64(it) / float64(c.iterations))
		if it%revalidate == 0 {
			c.similarity.validate(c.v)
		}
		sum, n := c.similarity.force(force, c.v, done), float64(c.similarity.voxels())
		g.Lock(c.locked)
		if it == 0 {
			if n == 0 {
				break
			}
			valid, mean = n, sum/n
		}
		values = append(values, mean+(sum-float64(mean*n))/valid)
		if step *= math.Exp2(-stalled(values) / halving); step < shortest {
			break
		}
		most := float64(c.smooth(g))
		if !(most > 0) {
			break
		}
		farthest = max(farthest, most)
		c.flow(g, float32(step/(math.Pow(farthest, c.by.Fading)*math.Pow(most, 1-c.by.Fading))))
		if c.shape != nil {
			c.shape(c.v)
		}
	}
	return values, nil
}

// stalled says how far the values have ceased to rise, 0..1: the last span lies above the one before by half or less of a
// hundredth of the gain or a thousandth of the first value. It goes over to 0, so that noise does not decide.
func stalled(values []float64) float64 {
	const span = 5
	n := len(values)
	if n < 2*span {
		return 0
	}
	mean := func(x []float64) float64 {
		sum := 0.0
		for _, v := range x {
			sum += v
		}
		return sum / span
	}
	now := mean(values[n-span:])
	gain := now - mean(values[n-2*span:n-span])
	enough := max(0.01*(now-values[0]), 0.001*math.Abs(values[0]))
	if !(enough > 0) {
		return 1
	}
	return min(max(1.5-gain/enough, 0), 1)
}

// smooth applies the fluid Gaussian to g, which may lie on halved of the grid, and returns the length of its longest vector.
func (c *ascent) smooth(g *field.Field) float32 {
	fluid, band, size := c.by.Fluid, c.similarity.reach(), g.Size
	if size != c.v.Size {
		fluid, band = halfWidth(fluid), nil
	}
	longest := make([]float32, size[1]*size[2])
	filter.GaussianInPlace(band, size, [3]float64{fluid, fluid, fluid}, c.threads, filter.From(size, g.X, g.Y, g.Z), func(y, z int, rows [][]float32) {
		longest[z*size[1]+y] = longestSquare(rows)
	}, g.X, g.Y, g.Z)
	return float32(math.Sqrt(float64(slices.Max(longest))))
}

// longestSquare returns the squared length of the longest vector whose components stand in three rows.
func longestSquare(rows [][]float32) float32 {
	x, y, z := rows[0], rows[1][:len(rows[0])], rows[2][:len(rows[0])]
	most, done := longestVector(x, y, z)
	for i := done; i < len(x); i++ {
		if square := float32(x[i]*x[i]) + float32(y[i]*y[i]) + float32(z[i]*z[i]); square > most {
			most = square
		}
	}
	return most
}

// flow makes v v o (id + step g), after the elastic Gaussian; g may lie on halved of the grid. No vector of step g is
// longer than a voxel, so a row of it reads slices that GaussianInPlace still has.
func (c *ascent) flow(g *field.Field, step float32) {
	size := c.v.Size
	v := interp.Planes{Size: size, Data: [][]float32{c.v.X, c.v.Y, c.v.Z}}
	move := func(rows [][]float32, y, z int, u [3][]float32) { v.Compose(rows, 0, y, z, step, u) }
	if isLarge(size) {
		move = func(rows [][]float32, y, z int, u [3][]float32) { v.Advect(rows, y, z, step, u) }
	}
	compose := func(y, z int, rows [][]float32) { move(rows, y, z, g.Row(y, z)) }
	if g.Size != size {
		lines := sync.Pool{New: func() any { return &doubled{g, size, make([]float32, g.Size[0]+2)} }}
		compose = func(y, z int, rows [][]float32) {
			d := lines.Get().(*doubled)
			d.row(rows, y, z)
			lines.Put(d)
			move(rows, y, z, [3][]float32(rows))
		}
	}
	elastic := [3]float64{c.by.Elastic, c.by.Elastic, c.by.Elastic}
	filter.GaussianInPlace(nil, size, elastic, c.threads, compose, nil, c.v.X, c.v.Y, c.v.Z)
}
