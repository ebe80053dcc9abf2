package metric

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// HD95 returns the 95 % Hausdorff distance in mm of every label but 0 that occurs in a or b, in ascending order: the greater
// of the two directed 95th percentiles of the distances between surface voxels, as MONAI has it. Surface voxels have a face
// neighbour outside their label; the border of the volume counts as outside. A label that only one map holds scores +Inf.
// The maps must lie on one grid.
func HD95(a, b *volume.Volume, threads int) []LabelScore {
	boxes := map[int]*region{}
	extend(boxes, a)
	extend(boxes, b)
	var scores []LabelScore
	for l, r := range boxes {
		scores = append(scores, LabelScore{l, hd95(a, b, l, *r, threads)})
	}
	sortByLabel(scores)
	return scores
}

// region is a box of voxels, lo..hi inclusive.
type region struct{ lo, hi [3]int }

func (r region) size() (n [3]int) {
	for a := range n {
		n[a] = r.hi[a] - r.lo[a] + 1
	}
	return n
}

// extend grows the bounding box of every label but 0 by the voxels of v.
func extend(boxes map[int]*region, v *volume.Volume) {
	last, r := 0, (*region)(nil) // labels come in runs
	for i, value := range v.Data {
		l := label(value)
		if l == 0 {
			continue
		}
		p := [3]int{i % v.Size[0], i / v.Size[0] % v.Size[1], i / (v.Size[0] * v.Size[1])}
		if l != last {
			if last, r = l, boxes[l]; r == nil {
				r = &region{p, p}
				boxes[l] = r
			}
		}
		for a := range p {
			r.lo[a], r.hi[a] = min(r.lo[a], p[a]), max(r.hi[a], p[a])
		}
	}
}

func hd95(a, b *volume.Volume, l int, r region, threads int) float64 {
	sa, sb := surface(a, l, r), surface(b, l, r)
	if len(sa) == 0 || len(sb) == 0 {
		return math.Inf(1)
	}
	toA := distances(sa, r.size(), a.Spacing, threads)
	toB := distances(sb, r.size(), a.Spacing, threads)
	directed := func(from []int, to []float64) float64 {
		d := make([]float64, len(from))
		for i, o := range from {
			d[i] = math.Sqrt(to[o])
		}
		slices.Sort(d)
		pos := float64(0.95 * float64(len(d)-1))
		i := int(pos)
		return d[i] + float64((d[min(i+1, len(d)-1)]-d[i])*(pos-float64(i)))
	}
	return max(directed(sa, toB), directed(sb, toA))
}

// surface returns the offsets within region r of label l's surface voxels. r must hold the whole label.
func surface(v *volume.Volume, l int, r region) (offsets []int) {
	n := r.size()
	nx, nxy := n[0]+2, (n[0]+2)*(n[1]+2)
	inside := make([]bool, nxy*(n[2]+2)) // r with one voxel of outside around it
	for z := range n[2] {
		for y := range n[1] {
			row := v.Data[r.lo[0]+v.Size[0]*(r.lo[1]+y+v.Size[1]*(r.lo[2]+z)):][:n[0]]
			for x, value := range row {
				inside[x+1+nx*(y+1)+nxy*(z+1)] = label(value) == l
			}
		}
	}
	o := 0
	for z := range n[2] {
		for y := range n[1] {
			for x := range n[0] {
				p := x + 1 + nx*(y+1) + nxy*(z+1)
				if inside[p] && !(inside[p-1] && inside[p+1] && inside[p-nx] && inside[p+nx] && inside[p-nxy] && inside[p+nxy]) {
					offsets = append(offsets, o)
				}
				o++
			}
		}
	}
	return offsets
}

// distances returns the squared distance in mm from every voxel of a box to the nearest of the points: the exact transform
// of Felzenszwalb and Huttenlocher (Theory of Computing 8, 2012), one axis after the other.
func distances(points []int, size [3]int, spacing [3]float64, threads int) []float64 {
	d := make([]float64, size[0]*size[1]*size[2])
	for i := range d {
		d[i] = math.Inf(1)
	}
	for _, o := range points {
		d[o] = 0
	}
	strides := [3]int{1, size[0], size[0] * size[1]}
	for a, n := range size {
		other, outer := (a+1)%3, (a+2)%3
		parallel.For(size[other]*size[outer], parallel.Rows(n), threads, func(lo, hi int) {
			e := envelope{line: make([]float64, n), vertex: make([]int, n), from: make([]float64, n)}
			for i := lo; i < hi; i++ {
				start := i%size[other]*strides[other] + i/size[other]*strides[outer]
				e.transform(d, start, strides[a], spacing[a])
			}
		})
	}
	return d
}

// envelope is the scratch of one line's transform: the lower envelope of parabolas, by the voxel each is rooted in and the
// coordinate from which it is the lowest.
type envelope struct {
	line   []float64
	vertex []int
	from   []float64
}

func (e *envelope) transform(d []float64, start, stride int, spacing float64) {
	n, k := len(e.line), 0 // k parabolas so far
	for i := range n {
		v := d[start+i*stride]
		e.line[i] = v
		if math.IsInf(v, 1) {
			continue
		}
		x, at := float64(spacing*float64(i)), math.Inf(-1)
		for k > 0 {
			p := float64(spacing * float64(e.vertex[k-1]))
			at = (v + float64(x*x) - e.line[e.vertex[k-1]] - float64(p*p)) / (2 * (x - p))
			if at > e.from[k-1] {
				break
			}
			k--
			at = math.Inf(-1)
		}
		e.vertex[k], e.from[k] = i, at
		k++
	}
	if k == 0 {
		return
	}
	j := 0
	for i := range n {
		x := float64(spacing * float64(i))
		for j+1 < k && e.from[j+1] < x {
			j++
		}
		p := x - float64(spacing*float64(e.vertex[j]))
		d[start+i*stride] = float64(p*p) + e.line[e.vertex[j]]
	}
}
