package metric

import (
	"math"
	"slices"
)

// point is a voxel of a grid.
type point [3]int32

// brick is the side of the cubes of voxels by which surfaces are gone through, so that neighbours come together.
const brick = 4

// squared returns the squared distance in mm.
func squared(p, q point, spacing [3]float64) float64 {
	x, y, z := float64(p[0]-q[0])*spacing[0], float64(p[1]-q[1])*spacing[1], float64(p[2]-q[2])*spacing[2]
	return float64(x*x) + float64(y*y) + float64(z*z)
}

// target is a surface, ready to be asked for its voxel nearest to others: a tree over its bricks, which grows when it
// is needed.
type target struct {
	surface *mask
	spacing [3]float64
	points  []point
	nodes   []node
}

// node holds points[from:to]. Its one half is the next node, the other nodes[other]; other is 0 where it is not halved.
type node struct {
	lo, hi          point // of its points, inclusive
	from, to, other int32
}

func newTarget(surface *mask, spacing [3]float64) *target {
	return &target{surface: surface, spacing: spacing}
}

// grown returns the target with its tree.
func (t *target) grown() *target {
	if t.nodes == nil {
		points, boxes := t.surface.points()
		t.points, t.nodes = points, make([]node, 0, 2*len(boxes))
		t.grow(boxes)
	}
	return t
}

// reach widens the node to lo and hi.
func (n *node) reach(lo, hi point) {
	for a := range 3 {
		n.lo[a], n.hi[a] = min(n.lo[a], lo[a]), max(n.hi[a], hi[a])
	}
}

// grow adds the node of these leaves, halved across its longest side.
func (t *target) grow(leaves []node) {
	i := len(t.nodes)
	t.nodes = append(t.nodes, leaves[0])
	if len(leaves) == 1 {
		return
	}
	whole := leaves[0]
	for _, n := range leaves[1:] {
		whole.reach(n.lo, n.hi)
	}
	axis, longest := 0, 0.0
	for a := range 3 {
		if side := float64(whole.hi[a]-whole.lo[a]) * t.spacing[a]; side > longest {
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
}

// search is for the voxel of a surface nearest to p. It may end at any that is enough or less away.
type search struct {
	p       point
	enough  float64
	nearest point   // so far; at first one that is likely to be near
	squared float64 // its distance, mm
}

func (t *target) find(s *search) {
	if s.squared = squared(s.p, s.nearest, t.spacing); s.squared > s.enough {
		t.look(0, s)
	}
}

func (t *target) look(i int32, s *search) {
	n := &t.nodes[i]
	if n.other == 0 {
		for _, q := range t.points[n.from:n.to] {
			if d := squared(s.p, q, t.spacing); d < s.squared {
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
	return squared(p, point{min(max(p[0], n.lo[0]), n.hi[0]), min(max(p[1], n.lo[1]), n.hi[1]), min(max(p[2], n.lo[2]), n.hi[2])}, t.spacing)
}

// farthestOf returns the greatest of the squared distances, mm, from what is left of s to t: the most of them that are
// asked for. Only they are measured: of the parts of s the one that may be farthest is looked into first, until none
// can hold a voxel farther than all of these.
func (t *target) farthestOf(s *target, left *rest, most int) *greatest {
	if 2*left.count < s.surface.count { // else the tree of all serves the other way, too
		s = newTarget(left.mask(), s.spacing)
	}
	t, s = t.grown(), s.grown()
	top := &greatest{most: most}
	var parts heap[part] // the one that may be farthest first
	q := search{nearest: t.points[0]}
	for next := t.part(s, 0, t.points[0]); next.most > top.least(); next = parts.pop() {
		n := &s.nodes[next.node]
		if n.other != 0 {
			for _, half := range [2]int32{next.node + 1, n.other} {
				p := t.part(s, half, next.nearest)
				parts.push(-p.most, p)
			}
		} else {
			q.nearest = next.nearest
			for _, p := range s.points[n.from:n.to] {
				q.p, q.enough = p, top.least()
				if t.find(&q); q.squared > q.enough {
					top.add(q.squared)
				}
			}
		}
		if len(parts.values) == 0 {
			break
		}
	}
	return top
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
	most := math.Sqrt(q.squared) + math.Sqrt(squared(reach, point{}, t.spacing))
	return part{float64(float64(most*most) * (1 + 1e-9)), q.nearest, i}
}

// heap keeps values, that of the least key first.
type heap[T any] struct {
	keys   []float64
	values []T
}

func (h *heap[T]) push(key float64, x T) {
	h.keys, h.values = append(h.keys, key), append(h.values, x)
	k, v, i := h.keys, h.values, len(h.keys)-1
	for ; i > 0 && k[(i-1)/2] > key; i = (i - 1) / 2 {
		k[i], v[i] = k[(i-1)/2], v[(i-1)/2]
	}
	k[i], v[i] = key, x
}

// replace puts a value in the place of the first.
func (h *heap[T]) replace(key float64, x T) {
	k, v, i := h.keys, h.values, 0
	for {
		next := 2*i + 1
		if next+1 < len(k) && k[next+1] < k[next] {
			next++
		}
		if next >= len(k) || k[next] >= key {
			break
		}
		k[i], v[i], i = k[next], v[next], next
	}
	k[i], v[i] = key, x
}

// pop takes the first away.
func (h *heap[T]) pop() T {
	first, last := h.values[0], len(h.keys)-1
	key, x := h.keys[last], h.values[last]
	if h.keys, h.values = h.keys[:last], h.values[:last]; last > 0 {
		h.replace(key, x)
	}
	return first
}

// greatest keeps the greatest of the values that it is given, the least of them first.
type greatest struct {
	heap[struct{}]
	most int
}

// least returns what a value must exceed to be kept.
func (g *greatest) least() float64 {
	if len(g.keys) < g.most {
		return -1
	}
	return g.keys[0]
}

// second returns the least but one, or the least where it is alone.
func (g *greatest) second() float64 {
	if len(g.keys) == 1 {
		return g.keys[0]
	}
	return slices.Min(g.keys[1:min(3, len(g.keys))])
}

// add takes a value that exceeds the least.
func (g *greatest) add(x float64) {
	if len(g.keys) < g.most {
		g.push(x, struct{}{})
	} else {
		g.replace(x, struct{}{})
	}
}
