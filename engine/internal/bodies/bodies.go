// Package bodies makes regions of a deformation rigid: each moves as one body, and within a rim around it tissue
// follows.
package bodies

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// rim is how wide, in voxels, the tissue around a body follows it, less with distance. In a narrower rim it folds where
// the body moves by itself.
const rim = 4

// Bodies are the regions of a label map on a grid.
type Bodies struct {
	grid   volume.Geometry
	voxel  float64 // of the label map, mm
	parts  []part
	inside []float32 // 0 in a body, else 1: where a fold may be opened
}

// part is one body.
type part struct {
	label  float32
	inside []int32 // voxels
	rim    []share // voxels around it
}

// share is how much of a voxel's displacement is a body's.
type share struct {
	at     int32
	weight float32
}

// On returns the bodies of a label map, in which 0 is none, on a grid; nil for nil. A body too small for any voxel of a
// coarse grid is left out.
func On(g volume.Geometry, labels *volume.Volume, threads int) *Bodies {
	if labels == nil {
		return nil
	}
	voxel := math.Cbrt(labels.Spacing[0] * labels.Spacing[1] * labels.Spacing[2])
	if !labels.SameGrid(g) {
		labels = labels.Resample(g, volume.IdentityAffine(), volume.Nearest, 0, threads)
	}
	b := &Bodies{grid: g, voxel: voxel, inside: make([]float32, g.Voxels())}
	names := labels.Labels()
	boxes := make([]volume.Box, len(names))
	for i := range names {
		boxes[i] = volume.EmptyBox(g.Size)
		b.parts = append(b.parts, part{label: names[i]})
	}
	for i, label := range labels.Data {
		b.inside[i] = 1
		if label == 0 {
			continue
		}
		k, _ := slices.BinarySearch(names, label)
		b.inside[i] = 0
		b.parts[k].inside = append(b.parts[k].inside, int32(i))
		boxes[k] = boxes[k].With(g.Index(i))
	}
	width := rim * math.Cbrt(g.Spacing[0]*g.Spacing[1]*g.Spacing[2])
	none := slices.Repeat([]float32{1}, g.Voxels()) // share of a voxel that belongs to no body
	for k := range b.parts {
		p := &b.parts[k]
		p.rim = around(g, p.inside, boxes[k], width, b.inside)
		for _, s := range p.rim {
			none[s.at] *= 1 - s.weight
		}
	}
	for k := range b.parts { // where rims overlap, no body's share counts more than the others leave
		for i, s := range b.parts[k].rim {
			b.parts[k].rim[i].weight = s.weight * none[s.at] / (1 - s.weight)
		}
	}
	return b
}

// around returns the free voxels within width mm of a body and the body's share of each: 1 at its border, 0 at the
// width, and smooth in between.
func around(g volume.Geometry, inside []int32, of volume.Box, width float64, free []float32) (shares []share) {
	const most = 0.999 // a weight of 1 would leave nothing to share
	reach := 0
	var steps [3]int
	for a := range 3 {
		steps[a] = int(math.Ceil(width / g.Spacing[a]))
		reach = max(reach, steps[a])
	}
	of = of.Grown(reach, g.Size)
	size := of.Size()
	far := width * width
	squares := slices.Repeat([]float64{far}, size[0]*size[1]*size[2])
	for _, i := range inside {
		at := g.Index(int(i))
		squares[((at[2]-of.Lo[2])*size[1]+at[1]-of.Lo[1])*size[0]+at[0]-of.Lo[0]] = 0
	}
	stride := [3]int{1, size[0], size[0] * size[1]}
	for a := range 3 { // squared distances add up axis by axis
		line := make([]float64, size[a])
		for start := range squares {
			if start/stride[a]%size[a] != 0 {
				continue
			}
			for k := range line {
				line[k] = squares[start+k*stride[a]]
			}
			for k := range line {
				least := line[k]
				for j := max(k-steps[a], 0); j <= min(k+steps[a], size[a]-1); j++ {
					d := float64(k-j) * g.Spacing[a]
					least = min(least, line[j]+float64(d*d))
				}
				squares[start+k*stride[a]] = least
			}
		}
	}
	for i, square := range squares {
		if square >= far || square == 0 {
			continue
		}
		x, y, z := i%size[0]+of.Lo[0], i/size[0]%size[1]+of.Lo[1], i/(size[0]*size[1])+of.Lo[2]
		at := (z*g.Size[1]+y)*g.Size[0] + x
		if free[at] == 0 {
			continue
		}
		t := 1 - math.Sqrt(square)/width
		shares = append(shares, share{int32(at), float32(most * t * t * (3 - 2*t))})
	}
	return shares
}

// Make makes each body rigid under p -> initial(start(p + v(p))), LPS mm, by the nearest rigid motion, and changes v; start
// (nil: the identity), with which each call brings v closer, lies on the bodies' grid, too.
func (b *Bodies) Make(v, start *field.Field, initial volume.Affine) {
	if b == nil {
		return
	}
	undo, err := initial.Inverse()
	if err != nil { // it was checked
		return
	}
	toMM, toIndex := b.grid.IndexToPhysical(), b.grid.PhysicalToIndex()
	// leads returns a voxel and its image before the initial transform, in voxels.
	leads := func(i int32) (from, to [3]float64) {
		from = b.grid.Point(int(i))
		to = v.Target(int(i))
		if start != nil {
			u := start.At(to)
			for a := range 3 {
				to[a] += u[a]
			}
		}
		return from, to
	}
	for _, p := range b.parts {
		motion := rigid(initial, b.voxel, func(yield func(from, to [3]float64)) {
			for _, i := range p.inside {
				from, to := leads(i)
				yield(toMM.Apply(from), initial.Apply(toMM.Apply(to)))
			}
		})
		wanted := toIndex.After(undo).After(motion).After(toMM)
		move := func(i int32, weight float64) {
			from, to := leads(i)
			want := wanted.Apply(from)
			if weight == 1 && start == nil { // to the last bit
				v.SetTarget(int(i), want)
				return
			}
			v.X[i] += float32(weight * (want[0] - to[0]))
			v.Y[i] += float32(weight * (want[1] - to[1]))
			v.Z[i] += float32(weight * (want[2] - to[2]))
		}
		for _, i := range p.inside {
			move(i, 1)
		}
		for _, s := range p.rim {
			move(s.at, float64(s.weight))
		}
	}
}

// Unfold opens folds outside the bodies, as field.Unfold does everywhere. Between bodies that touch and move apart some
// may stay.
func (b *Bodies) Unfold(v *field.Field, minJacobian float32, threads int) {
	if b == nil {
		v.Unfold(minJacobian, threads)
		return
	}
	v.UnfoldWhere(b.inside, minJacobian, threads)
}

// rigid returns the least-squares rigid motion of pairs of points (Kabsch, Acta Cryst. A 1976). What a single point or
// points on a line do not determine is taken from like, as by points a voxel apart.
func rigid(like volume.Affine, voxel float64, pairs func(yield func(from, to [3]float64))) volume.Affine {
	var n float64
	var p, q [3]float64
	pairs(func(from, to [3]float64) {
		n++
		for a := range 3 {
			p[a] += from[a]
			q[a] += to[a]
		}
	})
	if n == 0 {
		return like
	}
	for a := range 3 {
		p[a] /= n
		q[a] /= n
	}
	var m [9]float64
	spread := 0.0
	pairs(func(from, to [3]float64) {
		for r := range 3 {
			for c := range 3 {
				m[3*r+c] += float64((to[r] - q[r]) * (from[c] - p[c]))
			}
			spread += float64((from[r] - p[r]) * (from[r] - p[r]))
		}
	})
	const slight = 1e-9
	turn := volume.NearestRotation(like.M)
	for i := range m {
		m[i] += float64(slight * (spread + float64(voxel*voxel)) * turn[i])
	}
	motion := volume.Affine{M: volume.NearestRotation(m)}
	motion.T = volume.Sub(q, motion.Apply(p))
	return motion
}
