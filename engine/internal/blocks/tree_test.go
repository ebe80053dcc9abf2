package blocks

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func random(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32()
	}
	return x
}

// randomCosts returns n costs below most.
func randomCosts(n, most int, r *rand.Rand) []uint16 {
	x := make([]uint16, n)
	for i := range x {
		x[i] = uint16(r.IntN(most))
	}
	return x
}

// distance2 is the squared distance between two labels, where that of a is so far ahead already.
func distance2(a, b, width int, ahead [3]float32) float32 {
	dx, dy := float32(a%width-b%width)+ahead[0], float32(a/width%width-b/width%width)+ahead[1]
	dz := float32(a/(width*width)-b/(width*width)) + ahead[2]
	return dx*dx + dy*dy + dz*dz
}

// The least energy over all labellings that give a node a label, by enumeration, is what message passing must find, but for the
// penalties, which are rounded.
func TestMarginalsAreExact(t *testing.T) {
	t.Parallel()
	const width, weight = 2, 450
	const labels, stride = width * width * width, lanes
	size := [3]int{3, 2, 1}
	nodes := 6
	for seed := range uint64(5) {
		costs := randomCosts(nodes*stride, 1500, rand.New(rand.NewPCG(seed, 0)))
		tree := spanningTree(size, int(seed%2))
		means, contrast := random(nodes, seed+100), float32(0)
		for _, e := range [][2]int{{0, 1}, {1, 2}, {3, 4}, {4, 5}, {0, 3}, {1, 4}, {2, 5}} {
			contrast += float32(math.Abs(float64(means[e[0]]-means[e[1]]))) / 7
		}
		var found [3][]float32
		if seed > 1 {
			for k := range found {
				found[k] = random(nodes, 10*seed+uint64(k))
			}
		}
		apart := func(i, p int) (d [3]float32) {
			for k, u := range found {
				if u != nil {
					d[k] = u[i] - u[p]
				}
			}
			return d
		}
		want := slices.Repeat([]float32{float32(math.Inf(1))}, nodes*labels)
		labelling := make([]int, nodes)
		for code := range 1 << (3 * nodes) { // 8 labels a node
			e := float32(0)
			for i := range labelling {
				labelling[i] = code >> (3 * i) & 7
			}
			for i, l := range labelling {
				e += float32(costs[i*stride+l])
				if p := int(tree.parent[i]); p >= 0 {
					d := (means[i] - means[p]) / contrast
					e += weight / (1 + d*d) * distance2(l, labelling[p], width, apart(i, p))
				}
			}
			for i, l := range labelling {
				want[i*labels+l] = min(want[i*labels+l], e)
			}
		}
		got := make([]uint16, len(costs))
		tree.marginals(got, costs, make([]uint16, len(got)), math.MaxUint16, newTension(width, width, weight, found, means, size), 2)
		const rounded = 2 * 0.5 * 3 * 5 // of the least and of another labelling: along three axes of five edges
		for i := range nodes {
			g, w := got[i*stride:][:labels], want[i*labels:(i+1)*labels]
			for l := range g {
				if d := float32(g[l]-slices.Min(g)) - (w[l] - slices.Min(w)); math.Abs(float64(d)) > rounded {
					t.Errorf("seed %d, node %d, label %d: %d above the least, want %g", seed, i, l, g[l]-slices.Min(g), w[l]-slices.Min(w))
				}
			}
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	for _, width := range []int{1, 2, 5, 7, 9, 11, 17} {
		testMessage(t, width)
	}
}

func testMessage(t *testing.T, width int) {
	const weight = 90
	labels := width * width * width
	r := newRoom(labels, width)
	copy(r.rest, randomCosts(labels, 2000, rand.New(rand.NewPCG(1, 0))))
	apart := [3]float32{0.3, -1.25, 2}
	r.set(width, width, weight, apart)
	got := make([]uint16, padded(labels))
	r.message(got, labels)
	want := make([]float32, labels)
	for i := range want {
		want[i] = float32(math.Inf(1))
		for j, v := range r.rest[:labels] {
			want[i] = min(want[i], float32(v)+weight*distance2(j, i, width, apart))
		}
	}
	const rounded = 2 * 0.5 * 3 // of the least and of another label: along three axes
	least := slices.Min(want)
	for i := range want {
		if w := min(want[i]-least, mostMessage); math.Abs(float64(float32(got[i])-w)) > rounded {
			t.Fatalf("width %d, label %d: %d, want %g", width, i, got[i], w)
		}
	}
}

// The spanning trees reach every node and are others by index.
func TestSpanningTree(t *testing.T) {
	size := [3]int{5, 4, 3}
	var parents [3][]int32
	for index := range parents {
		tree := spanningTree(size, index)
		for rank, i := range tree.order {
			p := tree.parent[i]
			if rank > 0 && (slices.Index(tree.order, p) >= rank || !slices.Contains(tree.children[p], i)) {
				t.Fatalf("tree %d: node %d does not follow its parent %d", index, i, p)
			}
			if rank == 0 {
				continue
			}
			if dx, dy, dz := i%5-p%5, i/5%4-p/5%4, i/20-p/20; dx*dx+dy*dy+dz*dz != 1 {
				t.Fatalf("tree %d: node %d is no neighbour of its parent %d", index, i, p)
			}
		}
		if len(tree.order) != 60 {
			t.Fatalf("tree %d: %d of 60 nodes", index, len(tree.order))
		}
		subtrees, ancestors := tree.cut(7)
		parts := slices.Clone(ancestors)
		for _, subtree := range subtrees {
			for k, i := range subtree {
				if inside := k > 0 && slices.Contains(subtree[:k], tree.parent[i]); !inside && !slices.Contains(append(ancestors, -1), tree.parent[i]) {
					t.Fatalf("tree %d: node %d needs a node of another subtree", index, i)
				}
			}
			if parts = append(parts, subtree...); len(subtree) > 7 {
				t.Errorf("tree %d: a subtree of %d nodes, at most 7 were asked for", index, len(subtree))
			}
		}
		slices.Sort(parts)
		if got := slices.Compact(slices.Clone(parts)); len(parts) != 60 || len(got) != 60 || len(ancestors) > 40 {
			t.Errorf("tree %d: ancestors and subtrees have %d nodes, %d of them once, of 60", index, len(parts), len(got))
		}
		parents[index] = tree.parent
		if again := spanningTree(size, index); !slices.Equal(again.parent, tree.parent) {
			t.Errorf("tree %d is another one the second time", index)
		}
		for i := range index {
			if slices.Equal(parents[i], tree.parent) {
				t.Errorf("trees %d and %d are one", i, index)
			}
		}
	}
}
