package field

import (
	"math"
	"sync"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Endless is a field that goes on where its grid ends: the displacement d of the border before an affine map, Phi(p) =
// last(p + d(p)), fades linearly to none within a margin of whole voxels, and beyond it that map alone remains.
//
// A grid larger by that margin, whose nodes hold the faded displacements, is the same map for everybody who reads it
// trilinearly: ITK, which has no displacement beyond a grid, and VTK, which repeats the last one.
type Endless struct {
	*Field

	last, undo volume.Affine // the affine map in voxels of the field, and back
	lastMM     volume.Affine
	margin     [3][2]int // for users Margin()
	measured   sync.Once
}

// Endless returns f as it goes on beyond its grid, under the affine map, LPS mm, that it ends with.
func (f *Field) Endless(last volume.Affine) (*Endless, error) {
	if _, err := last.Inverse(); err != nil {
		return nil, err
	}
	e := &Endless{Field: f, lastMM: last, last: f.PhysicalToIndex().After(last).After(f.IndexToPhysical())}
	undo, err := e.last.Inverse()
	if err != nil {
		return nil, err
	}
	e.undo = undo
	return e, nil
}

// Last returns the affine map, LPS mm, that it ends with.
func (e *Endless) Last() volume.Affine { return e.lastMM }

// Margin returns how many voxels the margin has below and above the grid along x, y and z: as many as the border's largest
// displacement, and twice its largest outward one, so that the fading does not fold; within bounds.
func (e *Endless) Margin() [3][2]int {
	e.measured.Do(e.measure)
	return e.margin
}

func (e *Endless) measure() {
	f := e.Field
	nothing := 1e-3 * min(f.Spacing[0], f.Spacing[1], f.Spacing[2])
	for a, n := range f.Size {
		if n == 1 { // across a slice nothing fades
			continue
		}
		b, c := (a+1)%3, (a+2)%3
		for side := range 2 {
			var longest, outward float64
			x := [3]int{}
			x[a] = side * (n - 1)
			for x[b] = 0; x[b] < f.Size[b]; x[b]++ {
				for x[c] = 0; x[c] < f.Size[c]; x[c]++ {
					o := x[0] + f.Size[0]*(x[1]+f.Size[1]*x[2])
					at, to := f.Point(o), e.undo.Apply(f.Target(o))
					var square float64
					for k := range 3 {
						mm := (to[k] - at[k]) * f.Spacing[k] // the length where the axes are at right angles
						square += float64(mm * mm)
					}
					longest = max(longest, math.Sqrt(square))
					outward = max(outward, float64(2*side-1)*(to[a]-at[a])*f.Spacing[a])
				}
			}
			if longest > nothing {
				most := max(n/16, min(8, n))
				e.margin[a][side] = min(int(math.Ceil(min(max(longest, 2*outward)/f.Spacing[a], float64(most)))), most)
			}
		}
	}
}

// Grid returns the field's grid with the margin.
func (e *Endless) Grid() volume.Geometry {
	g, margin := e.Geometry, e.Margin()
	first := [3]float64{-float64(margin[0][0]), -float64(margin[1][0]), -float64(margin[2][0])}
	g.Origin = e.IndexToPhysical().Apply(first)
	for a := range g.Size {
		g.Size[a] += margin[a][0] + margin[a][1]
	}
	return g
}

// weight returns the share of the border's displacement that is left at index x along axis a, and its slope. It needs
// the margin measured.
func (e *Endless) weight(a int, x float64) (w, slope float64) {
	if e.Size[a] == 1 { // a slice is as thick as its voxel
		if math.Abs(x) <= 0.5 {
			return 1, 0
		}
		return 0, 0
	}
	beyond, side, sign := -x, 0, 1.0
	if last := float64(e.Size[a] - 1); x > last {
		beyond, side, sign = x-last, 1, -1
	}
	width := float64(e.margin[a][side])
	switch {
	case beyond <= 0:
		return 1, 0
	case beyond >= width:
		return 0, 0
	}
	return 1 - beyond/width, sign / width
}

// TransformPoints maps points, LPS mm with x, y, z interleaved, from fixed to moving space in place.
func (e *Endless) TransformPoints(points []float64) {
	toIndex, toPhysical := e.PhysicalToIndex(), e.IndexToPhysical()
	for ; len(points) >= 3; points = points[3:] {
		x := toIndex.Apply([3]float64(points[:3]))
		if e.contains(x) {
			e.Field.TransformPoints(points[:3])
			continue
		}
		e.Margin()
		p, w := e.last.Apply(x), 1.0
		var c [3]float64 // the nearest point of the grid
		for a, n := range e.Size {
			c[a] = min(max(x[a], 0), float64(n-1))
			share, _ := e.weight(a, x[a])
			w *= share
		}
		if w > 0 {
			ux, uy, uz := e.at(c[0], c[1], c[2])
			without := e.last.Apply(c)
			for a, u := range [3]float32{ux, uy, uz} {
				p[a] += float64(w * (c[a] + float64(u) - without[a]))
			}
		}
		p = toPhysical.Apply(p)
		copy(points, p[:])
	}
}

// BehindMM writes to dst, as MM does and on Grid, the displacements before the affine map.
func (e *Endless) BehindMM(dst []float32, threads int) error {
	g := e.Grid()
	if len(dst) != 3*g.Voxels() {
		panic("field: BehindMM needs three floats a voxel")
	}
	row, err := e.behind(e.lastMM)
	if err != nil {
		return err
	}
	nx, ny := g.Size[0], g.Size[1]
	low, high := e.margin[0][0], e.margin[0][0]+e.Size[0] // where the field's row lies in the larger one
	parallel.Each(ny*g.Size[2], parallel.Rows(nx), threads, func(r int) {
		y, z := r%ny-e.margin[1][0], r/ny-e.margin[2][0]
		wy, _ := e.weight(1, float64(y))
		wz, _ := e.weight(2, float64(z))
		cy, cz := min(max(y, 0), e.Size[1]-1), min(max(z, 0), e.Size[2]-1)
		out := dst[3*r*nx : 3*(r+1)*nx]
		inside := out[3*low : 3*high]
		row(inside, cy, cz)
		first, final := [3]float32(inside), [3]float32(inside[len(inside)-3:])
		w := wy * wz
		if w != 1 {
			for i, d := range inside {
				inside[i] = float32(w * float64(d))
			}
		}
		for i := range low {
			share, _ := e.weight(0, float64(i-low))
			for k := range 3 {
				out[3*i+k] = float32(w * share * float64(first[k]))
			}
		}
		for i := high; i < nx; i++ {
			share, _ := e.weight(0, float64(i-low))
			for k := range 3 {
				out[3*i+k] = float32(w * share * float64(final[k]))
			}
		}
	})
	return nil
}
