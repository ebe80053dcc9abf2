package blocks

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// tree is a spanning tree of a control grid. In its order a node stands directly before all that hangs from it.
type tree struct {
	order    []int32   // nodes, the root first
	parent   []int32   // by node; -1 at the root
	children [][]int32 // by node
}

// neighbours returns the pairs of neighbouring nodes of the 6-connected grid.
func neighbours(size [3]int) [][2]int {
	n := size[0] * size[1] * size[2]
	pairs := make([][2]int, 0, 3*n)
	stride := [3]int{1, size[0], size[0] * size[1]}
	for i := range n {
		at := [3]int{i % size[0], i / size[0] % size[1], i / (size[0] * size[1])}
		for a := range 3 {
			if at[a]+1 < size[a] {
				pairs = append(pairs, [2]int{i, i + stride[a]})
			}
		}
	}
	return pairs
}

// spanningTree returns a random spanning tree of the 6-connected grid (Kruskal), rooted at its centre, by its index and
// size alone: along a tree that follows the image, noise of a millionth exchanged edges, and whole branches moved.
func spanningTree(size [3]int, index int) *tree {
	n, edges := size[0]*size[1]*size[2], neighbours(size)
	rand.New(rand.NewPCG(uint64(index), 0)).Shuffle(len(edges), func(i, j int) { edges[i], edges[j] = edges[j], edges[i] })

	set := make([]int, n)
	for i := range set {
		set[i] = i
	}
	find := func(i int) int {
		for set[i] != i {
			set[i] = set[set[i]]
			i = set[i]
		}
		return i
	}
	degree := make([]int, n)
	kept := edges[:0]
	for _, e := range edges {
		if a, b := find(e[0]), find(e[1]); a != b {
			set[a] = b
			kept = append(kept, e)
			degree[e[0]]++
			degree[e[1]]++
		}
	}
	t := &tree{parent: make([]int32, n), children: make([][]int32, n)}
	for i, memory := 0, make([]int32, 2*len(kept)); i < n; i++ {
		t.children[i], memory = memory[:0:degree[i]], memory[degree[i]:]
	}
	for _, e := range kept {
		t.children[e[0]] = append(t.children[e[0]], int32(e[1]))
		t.children[e[1]] = append(t.children[e[1]], int32(e[0]))
	}

	root := int32(size[0]/2 + size[0]*(size[1]/2+size[1]*(size[2]/2)))
	t.parent[root] = -1
	for stack := []int32{root}; len(stack) > 0; {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t.order = append(t.order, i)
		t.children[i] = slices.DeleteFunc(t.children[i], func(c int32) bool { return c == t.parent[i] })
		for _, c := range t.children[i] {
			t.parent[c] = i
			stack = append(stack, c)
		}
	}
	return t
}

// cut divides the tree into subtrees of at most so many nodes, which are parts of the order and do not need each other, the
// largest first, and the ancestors of all of them, in order.
func (t *tree) cut(most int) (subtrees [][]int32, ancestors []int32) {
	size := make([]int, len(t.order)) // by node, of what hangs from it, itself included
	for _, i := range slices.Backward(t.order) {
		size[i]++
		if p := t.parent[i]; p >= 0 {
			size[p] += size[i]
		}
	}
	for k := 0; k < len(t.order); {
		i := t.order[k]
		if size[i] > most {
			ancestors = append(ancestors, i)
			k++
			continue
		}
		subtrees = append(subtrees, t.order[k:k+size[i]])
		k += size[i]
	}
	slices.SortStableFunc(subtrees, func(a, b []int32) int { return len(b) - len(a) })
	return subtrees, ancestors
}

// tension is the cost of neighbours that move differently, in units of 1/grain: weight times the squared difference of their
// total displacements (label plus earlier levels), in labels, and less where the image differs, as between organs.
type tension struct {
	width    int
	deep     int // labels along z
	weight   float32
	found    [3][]float32 // displacement of the levels before, along x, y and z, by node; nil: none
	means    []float32    // of the image, by node
	contrast float32      // difference of two means at which the weight is half
}

// newTension returns the tension on a grid of nodes where the image has these means, loosest where they differ by more
// than neighbours do on average.
func newTension(width, deep int, weight float32, found [3][]float32, means []float32, size [3]int) tension {
	t := tension{width: width, deep: deep, weight: weight, found: found, means: means}
	sum, edges := 0.0, neighbours(size)
	for _, e := range edges {
		sum += math.Abs(float64(means[e[0]] - means[e[1]]))
	}
	t.contrast = float32(sum / float64(max(len(edges), 1)))
	return t
}

// between sets p to the penalties of a message from one node to another.
func (t tension) between(p *penalties, from, to int32) {
	var apart [3]float32
	for axis, u := range t.found {
		if u != nil {
			apart[axis] = u[from] - u[to]
		}
	}
	weight := t.weight
	if t.contrast > 0 {
		d := (t.means[from] - t.means[to]) / t.contrast
		weight /= 1 + float32(d*d)
	}
	p.set(t.width, t.deep, weight, apart)
}

// Costs of labels are whole numbers of 1/grain: half the memory of floats, and twice as many in a vector. Sums saturate. That of
// a node less one message is still right where it matters, below mostMessage more than its least, as long as the least is
// below 2^16 - 2 mostMessage.
const (
	grain       = 128
	mostCost    = 75 * grain // descriptors are at most 75 apart
	mostMessage = 20000
)

// lanes is how many costs a vector has. Each node has room for whole vectors.
const lanes = 16

// padded returns n, or the next whole number of vectors.
func padded(n int) int { return (n + lanes - 1) &^ (lanes - 1) }

// marginals adds to sum, at each node, what the min-marginals exceed the least of them by, at most as much as given: the
// least, over all labellings of the tree, of the sum of the nodes' costs and of the tension between neighbours. costs and sum
// have width^2*deep labels a node, x fastest, and room for whole vectors. up, as long, is room: for the messages from the nodes
// to their parents, each of which gives way to the node's min-marginals.
func (t *tree) marginals(sum, costs, up []uint16, most uint16, between tension, threads int) {
	labels := between.width * between.width * between.deep
	stride := padded(labels)
	rooms := sync.Pool{New: func() any { return newRoom(labels, between.width) }}
	at := func(x []uint16, i int32) []uint16 { return x[int(i)*stride : (int(i)+1)*stride] }
	// below writes to dst the node's costs and the messages of its children.
	below := func(dst []uint16, i int32) {
		from := at(costs, i)
		for _, c := range t.children[i] {
			add(dst, from, at(up, c))
			from = dst
		}
		if len(t.children[i]) == 0 {
			copy(dst, from)
		}
	}
	toParent := func(i int32, r *room) {
		p := t.parent[i]
		if p < 0 {
			return
		}
		below(r.rest, i)
		between.between(r.penalties, i, p)
		r.message(at(up, i), labels)
	}
	fromParent := func(i int32, r *room) {
		own, p := at(up, i), t.parent[i]
		if p >= 0 {
			subtract(r.rest, at(up, p), own)
			between.between(r.penalties, p, i)
			r.message(r.down, labels)
		}
		below(own, i)
		if p >= 0 {
			add(own, own, r.down)
		}
		addAbove(at(sum, i), own, leastOf(own[:labels]), most)
	}
	subtrees, ancestors := t.cut(len(t.order)/(8*parallel.Threads(threads)) + 1)
	inSubtrees := func(do func(nodes []int32, r *room)) {
		parallel.Each(len(subtrees), 1, threads, func(k int) {
			r := rooms.Get().(*room)
			defer rooms.Put(r)
			do(subtrees[k], r)
		})
	}
	ofAncestors := rooms.Get().(*room)
	inSubtrees(func(nodes []int32, r *room) {
		for _, i := range slices.Backward(nodes) {
			toParent(i, r)
		}
	})
	for _, i := range slices.Backward(ancestors) {
		toParent(i, ofAncestors)
	}
	for _, i := range ancestors {
		fromParent(i, ofAncestors)
	}
	inSubtrees(func(nodes []int32, r *room) {
		for _, i := range nodes {
			fromParent(i, r)
		}
	})
}

// room is what a message takes while it is made, by label.
type room struct {
	rest, down []uint16    // what the message is of; a message from the parent
	axis       [2][]uint16 // lower envelopes along one axis and along two
	*penalties
}

// beyond is how many costs the vectors of a row may read or write behind it.
const beyond = 2 * lanes

func newRoom(labels, width int) *room {
	r := &room{penalties: newPenalties(width)}
	for _, x := range []*[]uint16{&r.rest, &r.down, &r.axis[0], &r.axis[1]} {
		*x = make([]uint16, padded(labels)+beyond)
	}
	r.rest, r.down = r.rest[:padded(labels)], r.down[:padded(labels)]
	return r
}

// message writes to dst the lower envelope min over e of rest(e) + the penalties between d and e, axis by axis, less its own
// minimum, mostMessage at most.
func (r *room) message(dst []uint16, labels int) {
	width, x, y := r.width, r.axis[0], r.axis[1]
	square := width * width
	lowerRows(x, r.rest[:cap(r.rest)], r.penalties.axis[0], width, labels/width)
	for z := range r.deep {
		lower(y[z*square:], x[z*square:], r.penalties.axis[1], width, width)
	}
	if r.deep > 1 {
		lower(x, y, r.penalties.axis[2], square, width)
		y = x
	}
	capped(dst, y, leastOf(y[:labels]))
}

// add writes a + b, saturated, to dst.
func add(dst, a, b []uint16) {
	if addVector(dst, a, b) {
		return
	}
	for i := range dst {
		dst[i] = saturated(a[i], b[i])
	}
}

// subtract writes a - b to dst.
func subtract(dst, a, b []uint16) {
	if subtractVector(dst, a, b) {
		return
	}
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

// capped writes x - least to dst, mostMessage at most.
func capped(dst, x []uint16, least uint16) {
	if cappedVector(dst, x, least) {
		return
	}
	for i := range dst {
		dst[i] = min(x[i]-least, mostMessage)
	}
}

// addAbove adds to sum what x exceeds the least by, at most as much as given.
func addAbove(sum, x []uint16, least, most uint16) {
	if addAboveVector(sum, x, least, most) {
		return
	}
	for i := range sum {
		sum[i] += min(x[i]-least, most)
	}
}

// leastOf returns the least of x.
func leastOf(x []uint16) uint16 {
	if least, ok := leastVector(x); ok {
		return least
	}
	return slices.Min(x)
}

// penalties are the costs that a message adds, by d, the label of its target less that of its source, from 1-width to
// width-1. Along x entry k is that of d = k-width+1, along y and z that of d = width-1-k.
type penalties struct {
	width int
	deep  int // labels along z: width, or one
	axis  [3][]uint16
}

func newPenalties(width int) *penalties {
	p := &penalties{width: width}
	for axis := range p.axis {
		p.axis[axis] = make([]uint16, 2*width-1+lanes)
	}
	return p
}

// set makes the penalties weight*(d-apart)^2, less the least of an axis. apart is by how many labels the node that a message
// comes from is displaced further already.
func (p *penalties) set(width, deep int, weight float32, apart [3]float32) {
	p.deep = deep
	first, last := float32(1-width), float32(width-1)
	for axis, table := range p.axis {
		ahead := apart[axis]
		if axis == 0 {
			ahead = -ahead
		}
		nearest := min(max(float32(math.Round(float64(-ahead))), first), last) + ahead
		for k := range 2*width - 1 {
			d := first + float32(k) + ahead
			table[k] = uint16(min(float32(weight*(float32(d*d)-float32(nearest*nearest)))+0.5, math.MaxUint16))
		}
	}
}

// lowerRows writes to label i of so many lines of dst, width labels each, the least of the line's labels j in src plus
// penalty[width-1+i-j]. dst and src go on for lanes more.
func lowerRows(dst, src, penalty []uint16, width, lines int) {
	if lowerRowsVector(dst, src, penalty, width, lines) {
		return
	}
	for r := range lines {
		row := src[r*width : (r+1)*width]
		for i := range row {
			least := uint16(math.MaxUint16)
			for j, v := range row {
				least = min(least, saturated(v, penalty[width-1+i-j]))
			}
			dst[r*width+i] = least
		}
	}
}

// lower writes to row i of dst, n labels, the least over rows j, count each, of row j plus penalty[count-1-i+j]. dst and rows
// go on for beyond more.
func lower(dst, rows, penalty []uint16, n, count int) {
	if lowerVector(dst, rows, penalty, n, count) {
		return
	}
	for i := range count {
		to := dst[i*n : (i+1)*n]
		for k := range to {
			to[k] = math.MaxUint16
		}
		for j := range count {
			p := penalty[count-1-i+j]
			for k, v := range rows[j*n : (j+1)*n] {
				to[k] = min(to[k], saturated(v, p))
			}
		}
	}
}

// saturated returns a + b, or the greatest number of 16 bits.
func saturated(a, b uint16) uint16 { return uint16(min(uint32(a)+uint32(b), math.MaxUint16)) }
