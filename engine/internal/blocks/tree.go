package blocks

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/morphseek/morphseek/engine/internal/filter"
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

// tension is the cost of neighbours that move differently: weight times the squared difference of their total displacements
// (label plus earlier levels), in labels, and less where the image differs, as between organs.
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

// marginals adds to sum, at each node, share times what the min-marginals exceed the least of them by: the least, over
// all labellings of the tree, of the sum of the nodes' costs and of the tension between neighbours. costs and sum have
// width^2*deep labels a node, x fastest. up, as long, is room: for the messages from the nodes to their parents, each of
// which gives way to the node's min-marginals.
func (t *tree) marginals(sum, costs, up []float32, share float32, between tension, threads int) {
	labels := between.width * between.width * between.deep
	rooms := sync.Pool{New: func() any {
		return &room{make([]float32, labels), make([]float32, labels), make([]float32, labels), newPenalties(between.width)}
	}}
	at := func(x []float32, i int32) []float32 { return x[int(i)*labels : (int(i)+1)*labels] }
	// below writes to dst the node's costs and the messages of its children.
	below := func(dst []float32, i int32) {
		copy(dst, at(costs, i))
		for _, c := range t.children[i] {
			filter.Add(dst, at(up, c))
		}
	}
	toParent := func(i int32, r *room) {
		p := t.parent[i]
		if p < 0 {
			return
		}
		below(r.rest, i)
		between.between(r.penalties, i, p)
		envelope(at(up, i), r.rest, r.scratch, r.penalties)
	}
	fromParent := func(i int32, r *room) {
		own, p := at(up, i), t.parent[i]
		if p >= 0 {
			subtract(r.rest, at(up, p), own)
			between.between(r.penalties, p, i)
			envelope(r.down, r.rest, r.scratch, r.penalties)
		}
		below(own, i)
		if p >= 0 {
			filter.Add(own, r.down)
		}
		addShare(at(sum, i), own, leastOf(own), share)
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

// room is what a message takes while it is made.
type room struct {
	rest, down, scratch []float32 // by label
	penalties           *penalties
}

// subtract writes a - b to dst.
func subtract(dst, a, b []float32) {
	for i := subtractVector(dst, a, b); i < len(dst); i++ {
		dst[i] = a[i] - b[i]
	}
}

// less writes x - least to dst.
func less(dst, x []float32, least float32) {
	for i := lessVector(dst, x, least); i < len(dst); i++ {
		dst[i] = x[i] - least
	}
}

// addShare adds share (x - least) to sum.
func addShare(sum, x []float32, least, share float32) {
	for i := shareVector(sum, x, least, share); i < len(sum); i++ {
		sum[i] += float32(share * (x[i] - least))
	}
}

// leastOf returns the least of x.
func leastOf(x []float32) float32 {
	least, done := leastVector(x)
	for _, v := range x[done:] {
		least = min(least, v)
	}
	return least
}

// vectorPad is how many floats a vector may read or write beyond a line.
const vectorPad = 16

// penalties are the costs that a message adds, by d, the label of its target less that of its source, from 1-width to
// width-1. Along x entry k is that of d = k-width+1, along y and z that of d = width-1-k.
type penalties struct {
	width int
	deep  int // labels along z: width, or one
	axis  [3][]float32
}

func newPenalties(width int) *penalties {
	p := &penalties{width: width}
	for axis := range p.axis {
		p.axis[axis] = make([]float32, 2*width-1+vectorPad)
	}
	return p
}

// set makes the penalties weight*(d-apart)^2. apart is by how many labels the node that a message comes from is
// displaced further already.
func (p *penalties) set(width, deep int, weight float32, apart [3]float32) {
	p.deep = deep
	for axis, table := range p.axis {
		ahead := apart[axis]
		if axis == 0 {
			ahead = -ahead
		}
		for k := range 2*width - 1 {
			d := float32(k-width+1) + ahead
			table[k] = weight * d * d
		}
	}
}

// envelope writes to dst the lower envelope min over e of src(e) + the penalties between d and e, axis by axis, less
// its own minimum.
func envelope(dst, src, scratch []float32, p *penalties) {
	width := p.width
	square := width * width
	lowerRows(scratch, src, p.axis[0], width)
	for z := range p.deep {
		lower(dst[z*square:(z+1)*square], scratch[z*square:(z+1)*square], p.axis[1], width, width)
	}
	if p.deep == 1 {
		copy(scratch, dst)
	} else {
		lower(scratch, dst, p.axis[2], square, width)
	}
	less(dst, scratch, leastOf(scratch))
}

// lowerRows writes to label i of every line, width labels, of dst the least of the line's labels j in src plus
// penalty[width-1+i-j].
func lowerRows(dst, src, penalty []float32, width int) {
	for r := lowerRowsVector(dst, src, penalty, width); r < len(src); r += width {
		row := src[r : r+width]
		for i := range row {
			least := row[0] + penalty[width-1+i]
			for j, v := range row {
				least = min(least, v+penalty[width-1+i-j])
			}
			dst[r+i] = least
		}
	}
}

// lower writes to row i of dst, n labels, the least over count rows j of row j plus penalty[last-i+j], last being dst's last
// row.
func lower(dst, rows, penalty []float32, n, count int) {
	if lowerVector(dst, rows, penalty, n, count) {
		return
	}
	for last := len(dst)/n - 1; len(dst) > 0; last-- {
		to := dst[:n]
		dst = dst[n:]
		for k, v := range rows[:n] {
			to[k] = v + penalty[last]
		}
		for j := 1; j < count; j++ {
			row, p := rows[j*n:][:n], penalty[last+j]
			for k, v := range row {
				to[k] = min(to[k], v+p)
			}
		}
	}
}
