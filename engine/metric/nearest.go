package metric

import (
	"cmp"
	"math"
	"slices"
)

// neighbourhood is the voxels around one on a grid, as many as there surely is none nearer beside them, the nearest first.
type neighbourhood struct {
	size    [3]int
	around  []neighbour
	spacing [3]float64
	within  float64 // squared, mm: what is not around is at least so far
}

type neighbour struct {
	offset  int
	by      point
	squared float64 // its distance, mm
}

const around = 2 // voxels along an axis that a neighbourhood reaches

func newNeighbourhood(size [3]int, spacing [3]float64) *neighbourhood {
	beyond := (around + 1) * min(spacing[0], spacing[1], spacing[2])
	n := &neighbourhood{size: size, spacing: spacing, within: float64(beyond * beyond)}
	for z := -around; z <= around; z++ {
		for y := -around; y <= around; y++ {
			for x := -around; x <= around; x++ {
				by := point{int32(x), int32(y), int32(z)}
				if d := squared(by, point{}, spacing); d < n.within {
					n.around = append(n.around, neighbour{x + size[0]*(y+size[1]*z), by, d})
				}
			}
		}
	}
	slices.SortStableFunc(n.around, func(a, b neighbour) int { return cmp.Compare(a.squared, b.squared) })
	return n
}

// covers says whether the whole neighbourhood of p lies on the grid.
func (n *neighbourhood) covers(p point) bool {
	for a, x := range p {
		if x < around || int(x) >= n.size[a]-around {
			return false
		}
	}
	return true
}

// squared returns the squared distance in mm.
func squared(p, q point, spacing [3]float64) float64 {
	x, y, z := float64(p[0]-q[0])*spacing[0], float64(p[1]-q[1])*spacing[1], float64(p[2]-q[2])*spacing[2]
	return float64(x*x) + float64(y*y) + float64(z*z)
}

// target is a surface, ready to be asked for its voxel nearest to others: a tree over its bricks.
type target struct {
	*surface
	label int32
	at    []int32 // of all surfaces
	near  *neighbourhood
	nodes []node
}

// node holds points[from:to]. Its one half is the next node, the other nodes[other]; other is 0 where it is not halved.
type node struct {
	lo, hi          point // of its points, inclusive
	from, to, other int32
}

func (all surfaces) target(label int, near *neighbourhood) *target {
	s := all.byLabel[label]
	t := &target{surface: s, label: int32(label), at: all.at, near: near, nodes: make([]node, 0, 2*len(s.boxes))}
	t.grow(slices.Clone(s.boxes))
	return t
}

// reach widens the node to lo and hi.
func (n *node) reach(lo, hi point) {
	for a := range 3 {
		n.lo[a], n.hi[a] = min(n.lo[a], lo[a]), max(n.hi[a], hi[a])
	}
}

// grow adds the node of these leaves, halved across its longest side, and returns it.
func (t *target) grow(leaves []node) node {
	i := len(t.nodes)
	t.nodes = append(t.nodes, leaves[0])
	if len(leaves) == 1 {
		return leaves[0]
	}
	whole := leaves[0]
	for _, n := range leaves[1:] {
		whole.reach(n.lo, n.hi)
	}
	axis, longest := 0, 0.0
	for a := range 3 {
		if side := float64(whole.hi[a]-whole.lo[a]) * t.near.spacing[a]; side > longest {
			axis, longest = a, side
		}
	}
	middle, k := whole.lo[axis]+whole.hi[axis], 0
	for j, n := range leaves {
		if n.lo[axis]+n.hi[axis] < middle {
			leaves[j], leaves[k] = leaves[k], n
			k++
		}
	}
	if k == 0 || k == len(leaves) {
		k = len(leaves) / 2
	}
	t.grow(leaves[:k])
	whole.other = int32(len(t.nodes))
	t.grow(leaves[k:])
	t.nodes[i] = whole
	return whole
}

// search is for the voxel of a surface nearest to p. It may end at any that is enough or less away.
type search struct {
	p       point
	enough  float64
	nearest point   // so far; at first one that is likely to be near
	squared float64 // its distance, mm
}

func (t *target) find(s *search) {
	s.squared = squared(s.p, s.nearest, t.near.spacing)
	if s.squared <= s.enough {
		return
	}
	const far = 4 // times as far, the neighbourhood is likely to be empty
	if s.squared < far*t.near.within && t.near.covers(s.p) {
		o := int(s.p[0]) + t.near.size[0]*(int(s.p[1])+t.near.size[1]*int(s.p[2]))
		for _, n := range t.near.around {
			if n.squared >= s.squared {
				return
			}
			if t.at[o+n.offset] == t.label {
				s.squared, s.nearest = n.squared, point{s.p[0] + n.by[0], s.p[1] + n.by[1], s.p[2] + n.by[2]}
				return
			}
		}
	}
	t.look(0, s)
}

func (t *target) look(i int32, s *search) {
	n := &t.nodes[i]
	if n.other == 0 {
		for _, q := range t.points[n.from:n.to] {
			if d := squared(s.p, q, t.near.spacing); d < s.squared {
				s.squared, s.nearest = d, q
			}
		}
		return
	}
	first, then := i+1, n.other
	a, b := t.beyond(first, s.p), t.beyond(then, s.p)
	if b < a {
		first, then, a, b = then, first, b, a
	}
	if a < s.squared {
		t.look(first, s)
	}
	if b < s.squared && s.squared > s.enough {
		t.look(then, s)
	}
}

// beyond returns the squared distance in mm from p to the box of node i.
func (t *target) beyond(i int32, p point) float64 {
	n := &t.nodes[i]
	return squared(p, point{min(max(p[0], n.lo[0]), n.hi[0]), min(max(p[1], n.lo[1]), n.hi[1]), min(max(p[2], n.lo[2]), n.hi[2])}, t.near.spacing)
}

// percentile95 returns the 95th percentile of the distances in mm from the voxels of s to t, by numpy's linear rule. Only the greatest are
// measured: of the parts of s the one that may be farthest is looked into first, until none can hold a voxel farther than all of these.
func (t *target) percentile95(s *target) float64 {
	pos := float64(0.95 * float64(len(s.points)-1))
	i := int(pos)
	top := greatest{most: len(s.points) - i}
	var parts farthest
	q := search{nearest: t.points[0]}
	for next := t.part(s, 0, t.points[0]); next.most > top.least(); next = parts.pop() {
		n := &s.nodes[next.node]
		if n.other != 0 {
			parts.push(t.part(s, next.node+1, next.nearest))
			parts.push(t.part(s, n.other, next.nearest))
		} else {
			q.nearest = next.nearest
			for _, p := range s.points[n.from:n.to] {
				q.p, q.enough = p, top.least()
				if t.find(&q); q.squared > q.enough {
					top.add(q.squared)
				}
			}
		}
		if len(parts) == 0 {
			break
		}
	}
	low, high := math.Sqrt(top.least()), math.Sqrt(top.second())
	return low + float64((high-low)*(pos-float64(i)))
}

// part is a node of one surface as seen from another.
type part struct {
	most    float64 // none of its voxels is farther: squared, mm, a little too much
	nearest point   // to its middle
	node    int32
}

// part sees node i of s from t; near is a voxel of t that is likely to be near.
func (t *target) part(s *target, i int32, near point) part {
	n := &s.nodes[i]
	q := search{nearest: near, enough: -1}
	var reach point
	for a := range 3 {
		q.p[a] = (n.lo[a] + n.hi[a]) / 2
		reach[a] = n.hi[a] - q.p[a]
	}
	t.find(&q)
	most := math.Sqrt(q.squared) + math.Sqrt(squared(reach, point{}, t.near.spacing))
	return part{float64(float64(most*most) * (1 + 1e-9)), q.nearest, i}
}

// farthest is a heap of parts, the one that may be farthest first.
type farthest []part

func (f *farthest) push(p part) {
	h := append(*f, p)
	*f = h
	i := len(h) - 1
	for ; i > 0 && h[(i-1)/2].most < p.most; i = (i - 1) / 2 {
		h[i] = h[(i-1)/2]
	}
	h[i] = p
}

func (f *farthest) pop() part {
	h := *f
	first, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*f = h
	i := 0
	for {
		k := 2*i + 1
		if k+1 < len(h) && h[k+1].most > h[k].most {
			k++
		}
		if k >= len(h) || h[k].most <= last.most {
			break
		}
		h[i], i = h[k], k
	}
	if len(h) > 0 {
		h[i] = last
	}
	return first
}

// greatest keeps the greatest of the values that it is given: a heap, the least of them first.
type greatest struct {
	most int
	heap []float64
}

// least is what a value must exceed to be kept.
func (g *greatest) least() float64 {
	if len(g.heap) < g.most {
		return -1
	}
	return g.heap[0]
}

// second is the least but one, or the least where it is alone.
func (g *greatest) second() float64 {
	if len(g.heap) == 1 {
		return g.heap[0]
	}
	return slices.Min(g.heap[1:min(3, len(g.heap))])
}

// add takes a value that exceeds the least.
func (g *greatest) add(x float64) {
	if len(g.heap) < g.most {
		g.heap = append(g.heap, x)
		h := g.heap
		i := len(h) - 1
		for ; i > 0 && h[(i-1)/2] > x; i = (i - 1) / 2 {
			h[i] = h[(i-1)/2]
		}
		h[i] = x
		return
	}
	h, i := g.heap, 0
	for {
		k := 2*i + 1
		if k+1 < len(h) && h[k+1] < h[k] {
			k++
		}
		if k >= len(h) || h[k] >= x {
			break
		}
		h[i], i = h[k], k
	}
	h[i] = x
}
