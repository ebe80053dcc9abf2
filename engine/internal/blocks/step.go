package blocks

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Step is the search at one level.
type Step struct {
	Level
	Grid          volume.Geometry // of the fixed descriptors; the moving ones have Margin voxels more on every side
	Margin        int
	Locked        [3]bool // axes along which nothing moves
	Threads       int
	Fixed, Moving []Descriptor
	Image         []float32    // fixed intensities, for the tree
	Total         *field.Field // the displacement of the levels before; nil: none
	Channels      []*Step      // further descriptors on the same grids
	Weight        float32      // of a channel's costs; the pair's own images have 1
	Room          *Room
}

// NewStep returns the search at level l between descriptors of im, whose moving image has a margin in voxels and is
// resampled through total already.
func NewStep(l Level, im aligned.Images, fixed, moving []Descriptor, total *field.Field, room *Room, threads int) *Step {
	return &Step{
		Level: l, Grid: im.Fixed.Geometry, Margin: im.Margin(), Threads: threads,
		Fixed: fixed, Moving: moving, Image: im.Fixed.Data, Total: total, Room: room,
	}
}

// found returns the displacement of the levels before at the points of the control grid, in steps of this level's
// labels.
func (s *Step) found(control volume.Geometry) (u [3][]float32) {
	if s.Total == nil {
		return u
	}
	at := s.Total.Resample(control, s.Threads) // in control spacings
	labels := float32(s.Spacing) / float32(s.Quantum)
	for i := range at.Data {
		at.Data[i] *= labels
	}
	return [3][]float32{at.X, at.Y, at.Z}
}

// Marginals are what the min-marginals of the labels of a control point exceed the least of them by, point by point.
type Marginals struct {
	Control volume.Geometry
	Labels  int // of a point, x fastest

	values []uint16 // sums over trees, in units of 1/grain, with room for whole vectors at each point
	trees  int
}

// MinMarginals returns the marginals of the level's control points, as means over so many spanning trees; 0: one. They lie in
// the room.
func (s *Step) MinMarginals(trees int) Marginals {
	trees = max(trees, 1)
	control := s.Control(s.Grid)
	width := 2*s.Radius + 1
	labels, deep := s.Labels(s.Grid)
	stride := padded(labels)
	n := control.Voxels() * stride
	room := s.Room.costs(3 * n)
	costs, up, sum := room[:n], room[n:2*n], room[2*n:]
	clear(sum)
	phased := s.byPhase()
	channels := make([][]Descriptor, len(s.Channels))
	for k, c := range s.Channels {
		channels[k] = c.byPhase()
	}
	parallel.For(control.Voxels(), 16, s.Threads, func(lo, hi int) {
		p := newPatch(s, phased)
		for k, c := range s.Channels {
			c.Locked = s.Locked
			p.others = append(p.others, newPatch(c, channels[k]))
		}
		exact := make([]float32, labels)
		for node := lo; node < hi; node++ {
			p.costs(exact, control.Size, node)
			for l, c := range exact {
				costs[node*stride+l] = uint16(float32(min(c, mostCost/grain)*grain) + 0.5)
			}
		}
	})
	strain := float64(s.Quantum) / float64(s.Spacing)
	image := &volume.Volume{Geometry: s.Grid, Data: s.Image}
	means, _ := image.BlockMeans([3]int{s.Spacing, s.Spacing, s.Spacing}, nil, s.Threads)
	between := newTension(width, deep, grain*float32(s.Stiffness*strain*strain), s.found(control), means.Data, control.Size)
	for _, t := range s.Room.spanning(control.Size, trees, s.Threads) {
		t.marginals(sum, costs, up, uint16(math.MaxUint16/trees), between, s.Threads)
	}
	return Marginals{Control: control, Labels: labels, values: sum, trees: trees}
}

// Gibbs returns a function that writes to p the weights of a point's labels under their Gibbs distribution at a temperature, a
// cost: exp(-marginal/temperature), 1 at most, and 0 from 16 temperatures on.
func (m Marginals) Gibbs(temperature float64) func(p []float32, point int) {
	const faintest = 16                         // temperatures above the least, from which a label counts as nothing
	one := temperature * float64(grain*m.trees) // temperature, in the units of the values
	weights := make([]float32, min(int(faintest*one), math.MaxUint16)+1)
	for k := range weights[:len(weights)-1] {
		weights[k] = float32(math.Exp(-float64(k) / one))
	}
	stride := padded(m.Labels)
	return func(p []float32, point int) {
		values := m.values[point*stride:][:m.Labels]
		least := leastOf(values)
		for l, v := range values {
			p[l] = weights[min(int(v-least), len(weights)-1)]
		}
	}
}

// Solve returns the displacements on the control grid: at every point the mean of all labels under their Gibbs distribution
// at a temperature, a cost. Where two match nearly alike, noise would decide which has the least.
func (s *Step) Solve(trees int, temperature float64) *field.Field {
	m := s.MinMarginals(trees)
	u := field.New(m.Control)
	width := 2*s.Radius + 1
	_, deep := s.Labels(s.Grid)
	scale, gibbs := float64(s.Quantum)/float64(s.Spacing), m.Gibbs(temperature)
	parallel.For(m.Control.Voxels(), 64, s.Threads, func(lo, hi int) {
		weights := make([]float32, m.Labels)
		for node := lo; node < hi; node++ {
			gibbs(weights, node)
			var total, x, y, z float64
			for r := range m.Labels / width {
				var sum, along float64 // of a row of labels
				for i, w := range weights[r*width : (r+1)*width] {
					sum += float64(w)
					along += float64(float64(w) * float64(i-s.Radius))
				}
				total += sum
				x += along
				y += float64(sum * float64(r%width-s.Radius))
				z += float64(sum * float64(r/width-deep/2))
			}
			u.X[node], u.Y[node], u.Z[node] = float32(scale*x/total), float32(scale*y/total), float32(scale*z/total)
		}
	})
	return u
}

// byPhase returns the moving descriptors with each row's sorted by x modulo quantum, so that those under neighbouring
// labels stand side by side, and as many more as a vector may read beyond them.
func (s *Step) byPhase() []Descriptor {
	n, q := s.Grid.Size[0]+2*s.Margin, s.Quantum
	length := s.phase()
	rows := len(s.Moving) / n
	out := make([]Descriptor, rows*q*length+mostLabels)
	parallel.Each(rows, parallel.Rows(n), s.Threads, func(r int) {
		for x, c := range s.Moving[r*n : (r+1)*n] {
			out[(r*q+x%q)*length+x/q] = c
		}
	})
	return out
}

// phase is how many descriptors of a row have the same x modulo quantum, rounded up.
func (s *Step) phase() int { return (s.Grid.Size[0] + 2*s.Margin + s.Quantum - 1) / s.Quantum }

// mostLabels is a whole number of vectors, and no level has as many labels along an axis.
const mostLabels = 16

// patch computes the costs of one control point at a time.
type patch struct {
	*Step
	phased []Descriptor // byPhase
	stride int          // between samples of a block, voxels
	codes  []Descriptor // the fixed samples
	at     []int        // their indices in phased under a displacement of zero
	first  int          // the least of these indices
	last   int          // the greatest
	missed []int32      // by label, how many samples are unknown in the moving volume
	others []*patch     // of the channels
	costly []float32    // costs by one of these

	// For each label of a row along x, by the halves of a descriptor: the sum of the distances, and the number of samples
	// that are known in the moving volume.
	sums, valid [mostLabels][2]uint64
}

func newPatch(s *Step, phased []Descriptor) *patch {
	return &patch{Step: s, phased: phased, stride: 1 + s.Spacing/5}
}

// never is the cost of a label that moves along a locked axis: more than that of any match.
const never = mostCost / grain

// costs writes the cost of every label of the point to dst.
func (p *patch) costs(dst []float32, size [3]int, node int) {
	p.compare(dst, size, node)
	p.mix(dst, size, node)
	if p.Locked == [3]bool{} {
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
			dst[l] += float32(o.Weight * c)
		}
		whole += o.Weight
	}
	for l := range dst {
		dst[l] /= whole
	}
}

// leads says whether a label moves along a locked axis.
func (p *patch) leads(label int) bool {
	for _, locked := range p.Locked[:p.Grid.Axes()] {
		if locked && label%(2*p.Radius+1) != p.Radius {
			return true
		}
		label /= 2*p.Radius + 1
	}
	return false
}

// compare writes to dst the mean distance of the point's samples under every displacement. A sample that leaves the moving
// volume's valid part costs the mean over all valid ones, so that the edge of a field of view neither draws nor repels.
func (p *patch) compare(dst []float32, size [3]int, node int) {
	n, q, length := p.Grid.Size, p.Quantum, p.phase()
	mx, my, across := q*length, n[1]+2*p.Margin, p.Margin
	if p.Grid.Flat() {
		across = 0
	}
	p.codes, p.at = p.codes[:0], p.at[:0]
	x0, y0, z0 := node%size[0]*p.Spacing, node/size[0]%size[1]*p.Spacing, node/(size[0]*size[1])*p.Spacing
	for z := z0; z < min(z0+p.Spacing, n[2]); z += p.stride {
		for y := y0; y < min(y0+p.Spacing, n[1]); y += p.stride {
			for x := x0; x < min(x0+p.Spacing, n[0]); x += p.stride {
				if c := p.Fixed[(z*n[1]+y)*n[0]+x]; c[1] != 0 {
					x := x + p.Margin
					p.codes = append(p.codes, c)
					p.at = append(p.at, ((z+across)*my+y+p.Margin)*mx+x%q*length+x/q)
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
	width := 2*p.Radius + 1
	label, total, valid := 0, uint64(0), uint64(0)
	_, deep := p.Labels(p.Grid)
	for dz := -(deep / 2); dz <= deep/2; dz++ {
		for dy := -p.Radius; dy <= p.Radius; dy++ {
			if p.Locked[1] && dy != 0 || p.Locked[2] && dz != 0 {
				clear(p.missed[label : label+width])
				label += width
				continue
			}
			p.row(q*(dz*my+dy)*mx-p.Radius, width)
			for l := range width {
				sum := p.sums[l][0] + p.sums[l][1]
				dst[label] = float32(sum) / unit
				p.missed[label] = int32(len(p.codes)) - int32(p.valid[l][0])
				total += sum
				valid += p.valid[l][0]
				label++
			}
		}
	}
	if valid == 0 {
		return
	}
	neutral := float32(total) / (unit * float32(valid))
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
		var sums, valid [2]uint64
		for k, c := range p.codes {
			if m := p.phased[p.at[k]+offset+l]; m[1] != 0 {
				for half := range c {
					sums[half] += apart(c[half], m[half])
					valid[half]++
				}
			}
		}
		p.sums[l], p.valid[l] = sums, valid
	}
}

// apart returns the sum of the absolute differences of the bytes of a and b.
func apart(a, b uint64) uint64 {
	const even, ones = 0x00ff00ff00ff00ff, 0x0001000100010001
	lanes := func(a, b uint64) uint64 { // of sixteen bits
		d := (a&even | ones<<8) - b&even
		below := d>>8&ones ^ ones // 1 where a is less: the difference is complemented
		return (d&even ^ (below<<8 - below)) + below
	}
	return (lanes(a, b) + lanes(a>>8, b>>8)) * ones >> 48
}
