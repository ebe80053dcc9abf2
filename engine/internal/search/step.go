package search

import (
	"math/bits"
	"slices"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// step is the search at one level.
type step struct {
	level
	grid          volume.Geometry // of the fixed descriptors; the moving ones have margin voxels more on every side
	margin        int
	locked        [3]bool // axes along which nothing moves
	threads       int
	fixed, moving []uint64
	image         []float32    // fixed intensities, for the tree
	total         *field.Field // the displacement of the levels before; nil: none
	channels      []*step      // further descriptors on the same grids
	weight        float32      // of a channel's costs; the pair's own images have 1
}

// found returns the displacement of the levels before at the points of the control grid, in steps of this level's labels.
func (s *step) found(control volume.Geometry) (u [3][]float32) {
	if s.total == nil {
		return u
	}
	at := s.total.Resample(control, s.threads) // in control spacings
	labels := float32(s.spacing) / float32(s.quantum)
	for i := range at.Data {
		at.Data[i] *= labels
	}
	return [3][]float32{at.X, at.Y, at.Z}
}

// across is the margin along z: 0 for slices.
func (s *step) across() int {
	if s.grid.Flat() {
		return 0
	}
	return s.margin
}

// labels returns how many labels (displacements) a point has, and how many of them lie along z: one for slices.
func (s *step) labels() (all, deep int) {
	width := 2*s.radius + 1
	if deep = width; s.grid.Flat() {
		deep = 1
	}
	return width * width * deep, deep
}

// newStep returns the search at level l. The moving image of im has a margin in voxels and is resampled through total already (nil: none); fixed
// are the descriptors of the fixed image, moving the thresholds of the moving one.
func newStep(l level, im aligned.Images, fixed []uint64, moving thresholds, dilation int, total *field.Field, margin, threads int) *step {
	return &step{
		level: l, total: total, grid: im.Fixed.Geometry, margin: margin, threads: threads,
		fixed: fixed, moving: describe(im.Moving, im.MovingValid, moving, dilation, threads), image: im.Fixed.Data,
	}
}

// control returns the grid of control points: the centres of blocks of spacing voxels a side.
func (s *step) control() volume.Geometry {
	return s.grid.Blocks([3]int{s.spacing, s.spacing, s.spacing})
}

// minMarginals returns the level's control grid and the min-marginals of its labels, point by point, as means over so many spanning trees. A
// constant may be missing from those of a point.
func (s *step) minMarginals(trees int) (control volume.Geometry, marginals []float32) {
	control = s.control()
	width := 2*s.radius + 1
	labels, deep := s.labels()
	costs := make([]float32, control.Voxels()*labels)
	phased := s.byPhase()
	channels := make([][]uint64, len(s.channels))
	for k, c := range s.channels {
		channels[k] = c.byPhase()
	}
	parallel.For(control.Voxels(), 16, s.threads, func(lo, hi int) {
		p := newPatch(s, phased)
		for k, c := range s.channels {
			c.locked = s.locked
			p.others = append(p.others, newPatch(c, channels[k]))
		}
		for node := lo; node < hi; node++ {
			p.costs(costs[node*labels:(node+1)*labels], control.Size, node)
		}
	})
	strain := float64(s.quantum) / float64(s.spacing)
	means := s.blockMeans(control.Size)
	between := tension{width: width, deep: deep, weight: float32(s.stiffness * strain * strain), found: s.found(control)}
	up := make([]float32, len(costs))
	if trees <= 1 {
		spanningTree(control.Size, means, 0).marginals(costs, up, between, s.threads)
		return control, costs
	}
	marginals, one, share := make([]float32, len(costs)), make([]float32, len(costs)), 1/float32(trees)
	for index := range trees {
		copy(one, costs)
		spanningTree(control.Size, means, index).marginals(one, up, between, s.threads)
		parallel.For(control.Voxels(), 64, s.threads, func(lo, hi int) {
			for node := lo; node < hi; node++ {
				sum, m := marginals[node*labels:(node+1)*labels], one[node*labels:(node+1)*labels]
				least := leastOf(m)
				for l, v := range m {
					sum[l] += float32(share * (v - least))
				}
			}
		})
	}
	return control, marginals
}

// solve returns the level's displacements on its control grid: at every point the label of least min-marginal.
func (s *step) solve(trees int) *field.Field {
	control, marginals := s.minMarginals(trees)
	u := field.New(control)
	width := 2*s.radius + 1
	labels, deep := s.labels()
	scale := float32(s.quantum) / float32(s.spacing)
	parallel.For(control.Voxels(), 64, s.threads, func(lo, hi int) {
		for node := lo; node < hi; node++ {
			label := argmin(marginals[node*labels : (node+1)*labels])
			u.X[node] = scale * float32(label%width-s.radius)
			u.Y[node] = scale * float32(label/width%width-s.radius)
			u.Z[node] = scale * float32(label/(width*width)-deep/2)
		}
	})
	return u
}

// blockMeans returns the mean fixed intensity of every control point's block.
func (s *step) blockMeans(size [3]int) []float32 {
	means := make([]float32, size[0]*size[1]*size[2])
	n := s.grid.Size
	for node := range means {
		lo := [3]int{node % size[0] * s.spacing, node / size[0] % size[1] * s.spacing, node / (size[0] * size[1]) * s.spacing}
		sum, count := float32(0), float32(0)
		for z := lo[2]; z < min(lo[2]+s.spacing, n[2]); z++ {
			for y := lo[1]; y < min(lo[1]+s.spacing, n[1]); y++ {
				row := (z*n[1] + y) * n[0]
				for _, v := range s.image[row+lo[0] : row+min(lo[0]+s.spacing, n[0])] {
					sum += v
					count++
				}
			}
		}
		means[node] = sum / count
	}
	return means
}

// byPhase returns the moving descriptors with each row's sorted by x modulo quantum, so that those under neighbouring labels stand
// side by side, and as many more as a vector may read beyond them.
func (s *step) byPhase() []uint64 {
	n, q := s.grid.Size[0]+2*s.margin, s.quantum
	length := s.phase()
	rows := len(s.moving) / n
	out := make([]uint64, rows*q*length+mostLabels)
	for r := range rows {
		for x, c := range s.moving[r*n : (r+1)*n] {
			out[(r*q+x%q)*length+x/q] = c
		}
	}
	return out
}

// phase is how many descriptors of a row have the same x modulo quantum, rounded up.
func (s *step) phase() int { return (s.grid.Size[0] + 2*s.margin + s.quantum - 1) / s.quantum }

// mostLabels is a whole number of vectors, and no level has as many labels along an axis.
const mostLabels = 16

// patch computes the costs of one control point at a time.
type patch struct {
	*step
	phased []uint64  // byPhase
	stride int       // between samples of a block, voxels
	codes  []uint64  // the fixed samples
	at     []int     // their indices in phased under a displacement of zero
	first  int       // the least of these indices
	last   int       // the greatest
	missed []int32   // by label, how many samples are unknown in the moving volume
	others []*patch  // of the channels
	costly []float32 // costs by one of these

	// For each label of a row along x: the sum of the distances, and the number of valid samples.
	sums, valid [mostLabels]uint64
}

func newPatch(s *step, phased []uint64) *patch {
	return &patch{step: s, phased: phased, stride: 1 + s.spacing/5}
}

// never is the cost of a label that moves along a locked axis: more than that of any match and any tension.
const never = 1e6

// costs writes the cost of every label of the point to dst.
func (p *patch) costs(dst []float32, size [3]int, node int) {
	p.compare(dst, size, node)
	p.mix(dst, size, node)
	if p.locked == [3]bool{} {
		return
	}
	for label := range dst {
		if p.leads(label) {
			dst[label] = never
		}
	}
}

// mix replaces the costs in dst by the weighted mean of these and the channels'.
func (p *patch) mix(dst []float32, size [3]int, node int) {
	if len(p.others) == 0 {
		return
	}
	if p.costly == nil {
		p.costly = make([]float32, len(dst))
	}
	whole := float32(1)
	for _, o := range p.others {
		o.compare(p.costly, size, node)
		for l, c := range p.costly {
			dst[l] += float32(o.weight * c)
		}
		whole += o.weight
	}
	for l := range dst {
		dst[l] /= whole
	}
}

// leads says whether a label moves along a locked axis.
func (p *patch) leads(label int) bool {
	for _, locked := range p.locked[:p.grid.Axes()] {
		if locked && label%(2*p.radius+1) != p.radius {
			return true
		}
		label /= 2*p.radius + 1
	}
	return false
}

// compare writes to dst the mean distance of the point's samples under every displacement. A sample that leaves the moving
// volume's valid part costs the mean over all valid ones, so the edge of a field of view neither draws nor repels.
func (p *patch) compare(dst []float32, size [3]int, node int) {
	n, q, length := p.grid.Size, p.quantum, p.phase()
	mx, my := q*length, n[1]+2*p.margin
	p.codes, p.at = p.codes[:0], p.at[:0]
	x0, y0, z0 := node%size[0]*p.spacing, node/size[0]%size[1]*p.spacing, node/(size[0]*size[1])*p.spacing
	for z := z0; z < min(z0+p.spacing, n[2]); z += p.stride {
		for y := y0; y < min(y0+p.spacing, n[1]); y += p.stride {
			for x := x0; x < min(x0+p.spacing, n[0]); x += p.stride {
				if c := p.fixed[(z*n[1]+y)*n[0]+x]; c != unknown {
					x := x + p.margin
					p.codes = append(p.codes, c)
					p.at = append(p.at, ((z+p.across())*my+y+p.margin)*mx+x%q*length+x/q)
				}
			}
		}
	}
	clear(dst)
	if len(p.codes) == 0 {
		return
	}
	p.first, p.last = slices.Min(p.at), slices.Max(p.at)
	if p.missed == nil {
		p.missed = make([]int32, len(dst))
	}
	width := 2*p.radius + 1
	label, total, valid := 0, uint64(0), uint64(0)
	_, deep := p.labels()
	for dz := -(deep / 2); dz <= deep/2; dz++ {
		for dy := -p.radius; dy <= p.radius; dy++ {
			if p.locked[1] && dy != 0 || p.locked[2] && dz != 0 {
				clear(p.missed[label : label+width])
				label += width
				continue
			}
			p.row(q*(dz*my+dy)*mx-p.radius, width)
			for l := range width {
				dst[label] = float32(p.sums[l])
				p.missed[label] = int32(len(p.codes)) - int32(p.valid[l])
				total += p.sums[l]
				valid += p.valid[l]
				label++
			}
		}
	}
	if valid == 0 {
		return
	}
	neutral := float32(total) / float32(valid)
	scale := 1 / float32(len(p.codes))
	for l := range dst {
		dst[l] = scale * (dst[l] + float32(neutral*float32(p.missed[l])))
	}
}

// row compares the samples with the moving descriptors at offset and the width-1 after.
func (p *patch) row(offset, width int) {
	if p.rowVector(offset, width) {
		return
	}
	for l := range width {
		var sum, valid uint64
		for k, c := range p.codes {
			if m := p.phased[p.at[k]+offset+l]; m != unknown {
				valid++
				sum += uint64(bits.OnesCount64(c ^ m))
			}
		}
		p.sums[l], p.valid[l] = sum, valid
	}
}
