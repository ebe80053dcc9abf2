package metric

import (
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// point is a voxel of a grid.
type point [3]int32

// brick is the side of the cubes of voxels by which surfaces are gone through, so that neighbours come together.
const brick = 4

// surfaces are the surface voxels of a label map: they have a face neighbour outside their label. What lies beyond the grid is outside.
type surfaces struct {
	at      []int32 // the label of every voxel of the grid that is one, else 0
	byLabel map[int]*surface
}

// surface is the voxels of one label's surface, brick after brick.
type surface struct {
	points []point
	boxes  []node // of each brick
}

func surfacesOf(v *volume.Volume, threads int) surfaces {
	type voxel struct {
		label int32
		at    point
	}
	nx, ny, nz := v.Size[0], v.Size[1], v.Size[2]
	at := make([]int32, len(v.Data))
	beams := (ny + brick - 1) / brick // of bricks, along x
	all := parallel.Reduce(beams*((nz+brick-1)/brick), parallel.Rows(brick*brick*nx), threads, func(lo, hi int) [][]voxel {
		var found []voxel
		bricks := make([][]voxel, (nx+brick-1)/brick) // of a beam
		for beam := lo; beam < hi; beam++ {
			y0, z0 := beam%beams*brick, beam/beams*brick
			for z := z0; z < min(z0+brick, nz); z++ {
				for y := y0; y < min(y0+brick, ny); y++ {
					o := (z*ny + y) * nx
					outer := y == 0 || y == ny-1 || z == 0 || z == nz-1
					for x, value := range v.Data[o : o+nx] {
						if value == 0 {
							continue
						}
						inner := !outer && x > 0 && x < nx-1
						if inner && alike(v.Data, o+x, nx, nx*ny) {
							continue
						}
						l := label(value)
						if l == 0 || inner && within(v.Data, l, o+x, nx, nx*ny) {
							continue
						}
						at[o+x] = int32(l)
						bricks[x/brick] = append(bricks[x/brick], voxel{int32(l), point{int32(x), int32(y), int32(z)}})
					}
				}
			}
			for k, b := range bricks {
				found, bricks[k] = append(found, b...), b[:0]
			}
		}
		return [][]voxel{found}
	}, func(a, b [][]voxel) [][]voxel { return append(a, b...) })

	byLabel := map[int]*surface{}
	last, s := int32(0), (*surface)(nil) // labels come in runs
	for _, found := range all {
		for _, p := range found {
			if p.label != last {
				if last, s = p.label, byLabel[int(p.label)]; s == nil {
					s = new(surface)
					byLabel[int(last)] = s
				}
			}
			n := len(s.points)
			if n == 0 || !sameBrick(s.points[n-1], p.at) {
				s.boxes = append(s.boxes, node{from: int32(n), lo: p.at, hi: p.at})
			}
			s.points = append(s.points, p.at)
			box := &s.boxes[len(s.boxes)-1]
			box.to = int32(n + 1)
			box.reach(p.at, p.at)
		}
	}
	return surfaces{at, byLabel}
}

// alike says whether voxel i and its six neighbours have one value.
func alike(data []float32, i, row, plane int) bool {
	x := data[i]
	return data[i-1] == x && data[i+1] == x && data[i-row] == x && data[i+row] == x && data[i-plane] == x && data[i+plane] == x
}

// within says whether the six neighbours of voxel i have label l.
func within(data []float32, l, i, row, plane int) bool {
	return label(data[i-1]) == l && label(data[i+1]) == l && label(data[i-row]) == l && label(data[i+row]) == l && label(data[i-plane]) == l && label(data[i+plane]) == l
}

func sameBrick(p, q point) bool {
	return p[0]/brick == q[0]/brick && p[1]/brick == q[1]/brick && p[2]/brick == q[2]/brick
}
