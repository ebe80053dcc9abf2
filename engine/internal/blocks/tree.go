package blocks

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// tree is a spanning tree of a control grid: nodes ordered by depth from the root.
type tree struct {
	order    []int   // nodes, the root first
	depth    []int   // depth[d] is where the nodes of depth d begin in order; one entry more ends the last
	parent   []int   // by node; -1 at the root
	children [][]int // by node
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
	near := make([][]int, n)
	for _, e := range edges {
		if a, b := find(e[0]), find(e[1]); a != b {
			set[a] = b
			near[e[0]] = append(near[e[0]], e[1])
			near[e[1]] = append(near[e[1]], e[0])
		}
	}

	t := &tree{parent: make([]int, n), children: near}
	root := size[0]/2 + size[0]*(size[1]/2+size[1]*(size[2]/2))
	t.parent[root] = -1
	t.order = append(t.order, root)
	for lo := 0; lo < len(t.order); {
		hi := len(t.order)
		t.depth = append(t.depth, lo)
		for _, i := range t.order[lo:hi] {
			t.children[i] = slices.DeleteFunc(t.children[i], func(j int) bool { return j == t.parent[i] })
			for _, j := range t.children[i] {
				t.parent[j] = i
				t.order = append(t.order, j)
			}
		}
		lo = hi
	}
	t.depth = append(t.depth, n)
	return t
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
func (t tension) between(p *penalties, from, to int) {
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
	at := func(x []float32, i int) []float32 { return x[i*labels : (i+1)*labels] }
	// below writes to dst the node's costs and the messages of its children.
	below := func(dst []float32, i int) {
		copy(dst, at(costs, i))
		for _, c := range t.children[i] {
			filter.Add(dst, at(up, c))
		}
	}
	level := func(d int, do func(i int, r *room)) {
		nodes := t.order[t.depth[d]:t.depth[d+1]]
		parallel.For(len(nodes), 4, threads, func(lo, hi int) {
			r := rooms.Get().(*room)
			defer rooms.Put(r)
			for _, i := range nodes[lo:hi] {
				do(i, r)
			}
		})
	}
	for d := len(t.depth) - 2; d > 0; d-- {
		level(d, func(i int, r *room) {
			below(r.rest, i)
			between.between(r.penalties, i, t.parent[i])
			envelope(at(up, i), r.rest, r.scratch, r.penalties)
		})
	}
	for d := range len(t.depth) - 1 {
		level(d, func(i int, r *room) {
			own := at(up, i)
			if d > 0 {
				subtract(r.rest, at(up, t.parent[i]), own)
				between.between(r.penalties, t.parent[i], i)
				envelope(r.down, r.rest, r.scratch, r.penalties)
			}
			below(own, i)
			if d > 0 {
				filter.Add(own, r.down)
			}
			addShare(at(sum, i), own, leastOf(own), share)
		})
	}
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
