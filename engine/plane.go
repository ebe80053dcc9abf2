package engine

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Two slices are registered in the plane of the fixed one: the stages see images of two axes whose third has one voxel
// (volume.Geometry.Flat), and the result is laid back into space. So a slice may lie anywhere, along any axes, and
// nothing but this file asks where.

// planes says where the planes of two slices lie.
type planes struct {
	fixed, moving     volume.Affine // from a plane's coordinates, mm, whose third is 0, to LPS mm
	onFixed, onMoving volume.Geometry
}

// mostTilted is how many degrees the planes of two slices may be apart. They are registered as if they lay in one.
const mostTilted = 30

// flattened returns a pair of slices in their planes; planes are nil, and the pair is what it was, where the images are
// volumes.
func (p Pair) flattened() (Pair, *planes, error) {
	thin := [2]bool{p.Fixed.Thin() >= 0, p.Moving.Thin() >= 0}
	if thin == [2]bool{} {
		return p, nil, nil
	}
	if !thin[0] || !thin[1] {
		slice, whole, size := "fixed", "moving", p.Moving.Size
		if thin[1] {
			slice, whole, size = whole, slice, p.Fixed.Size
		}
		return p, nil, fault.New(fault.ThinVolume, "%s image is one slice and the %s image a volume of size %v: a slice is registered to a slice; cut the one that shows the same out of the volume", slice, whole, size)
	}
	frame := frameOf(p.Fixed.Geometry)
	tilt, degrees := tiltOf(frame, p.Moving.Geometry)
	if degrees > mostTilted {
		return p, nil, fault.New(fault.GridMismatch, "the fixed and the moving slice lie in planes that are %.0f degrees apart, and slices are registered within a plane; give slices of one orientation, or images without a third axis", degrees)
	}
	flat := p
	at := &planes{onFixed: p.Fixed.Geometry, onMoving: p.Moving.Geometry}
	at.fixed = planeThrough(frame, p.Fixed.Center())
	at.moving = planeThrough(volume.Affine{M: tilt}.After(volume.Affine{M: frame}).M, p.Moving.Center())
	if tilt != volume.Identity { // the middle stays where it is beside the fixed plane
		at.moving = laidAt(at.moving, frame, p.Moving.Center())
	}
	flat.Fixed, flat.Moving = flattenedImage(p.Fixed, at.fixed), flattenedImage(p.Moving, at.moving)
	flat.FixedMask, flat.MovingMask = flattenedImage(p.FixedMask, at.fixed), flattenedImage(p.MovingMask, at.moving)
	flat.Rigid = flattenedImage(p.Rigid, at.fixed)
	flat.Channels = slices.Clone(p.Channels)
	for k := range flat.Channels {
		c := &flat.Channels[k]
		for _, v := range []struct {
			image **volume.Volume
			plane volume.Affine
			side  string
		}{{&c.Fixed, at.fixed, "fixed"}, {&c.Moving, at.moving, "moving"}} {
			if (*v.image).Thin() < 0 {
				return p, nil, fault.New(fault.ThinVolume, "%s, %s, is a volume and the first image one slice: all channels of a slice are slices; cut it out of the volume", p.ChannelName(k), v.side)
			}
			if _, degrees := tiltOf(v.plane.M, (*v.image).Geometry); degrees > mostTilted {
				return p, nil, fault.New(fault.GridMismatch, "%s, %s, lies in a plane that is %.0f degrees from the first image's; give slices of one orientation", p.ChannelName(k), v.side, degrees)
			}
			*v.image = flattenedImage(*v.image, v.plane)
		}
	}
	back := inverted(at.moving)
	if p.Initial != nil {
		initial, err := withinPlane(back.After(*p.Initial).After(at.fixed))
		if err != nil {
			return p, nil, err
		}
		flat.Initial = &initial
	}
	if f := p.InitialField; f != nil {
		if f.Thin() < 0 {
			return p, nil, fault.New(fault.GridMismatch, "the initial field is of a volume, of size %v, and the images are slices; sample it on the fixed slice", f.Size)
		}
		flat.InitialField = at.flattenedField(f, p.Initial == nil)
	}
	flat.Landmarks = slices.Clone(p.Landmarks)
	there := inverted(at.fixed)
	for i := range flat.Landmarks {
		l := &flat.Landmarks[i]
		l.Fixed, l.Moving = there.Apply(l.Fixed), back.Apply(l.Moving)
		l.Fixed[2], l.Moving[2] = 0, 0
	}
	return flat, at, nil
}

// broad returns the axes of a slice's grid but that of its thickness.
func broad(g volume.Geometry) [2]int { return [3][2]int{{1, 2}, {0, 2}, {0, 1}}[g.Thin()] }

// frameOf returns the axes of a slice's plane, as columns: two along it, in the order of L, P and S that they run along
// the nearest, and one across.
func frameOf(g volume.Geometry) (frame [9]float64) {
	c, _, _ := g.Canonical()
	for k, a := range broad(c) {
		for r := range 3 {
			frame[3*r+k] = c.Direction[3*r+a]
		}
	}
	column := func(k int) [3]float64 { return [3]float64{frame[k], frame[3+k], frame[6+k]} }
	across := volume.Cross(column(0), column(1))
	length := volume.Norm(across)
	for r := range 3 {
		frame[3*r+2] = across[r] / length
	}
	second := volume.Cross(column(2), column(0)) // at right angles, where a header's directions are nearly
	for r := range 3 {
		if math.Abs(second[r]-frame[3*r+1]) > 1e-9 {
			frame[3*r+1] = second[r]
		}
	}
	return frame
}

func normalOf(frame [9]float64) [3]float64 { return [3]float64{frame[2], frame[5], frame[8]} }

// tiltOf returns the least turn of the plane along frame onto that of a slice, and how many degrees it is.
func tiltOf(frame [9]float64, slice volume.Geometry) (tilt [9]float64, degrees float64) {
	tilt = turnOnto(normalOf(frame), normalOf(frameOf(slice)))
	return tilt, volume.Affine{M: tilt}.Turn()
}

// turnOnto returns the least rotation that turns one normal onto another or onto its opposite, which is the same plane.
func turnOnto(from, to [3]float64) [9]float64 {
	cosine := volume.Dot(from, to)
	if cosine < 0 {
		cosine, to = -cosine, [3]float64{-to[0], -to[1], -to[2]}
	}
	w := volume.Cross(from, to) // as long as the sine
	if volume.Dot(w, w) < 1e-12 {
		return volume.Identity
	}
	k := volume.Affine{M: [9]float64{0, -w[2], w[1], w[2], 0, -w[0], -w[1], w[0], 0}}
	square, m := k.After(k).M, volume.Identity
	for i := range m {
		m[i] += k.M[i] + square[i]/(1+cosine)
	}
	return m
}

// planeThrough returns the map from the coordinates of the plane through a point, along frame, to space.
func planeThrough(frame [9]float64, p [3]float64) volume.Affine {
	normal := normalOf(frame)
	height := volume.Dot(normal, p)
	return volume.Affine{M: frame, T: [3]float64{height * normal[0], height * normal[1], height * normal[2]}}
}

// laidAt returns a plane's map moved along the plane so that a point of it has the coordinates that it has along frame.
func laidAt(plane volume.Affine, frame [9]float64, p [3]float64) volume.Affine {
	want := inverted(volume.Affine{M: frame}).Apply(p)
	want[2] = 0
	for a, x := range plane.Apply(want) {
		plane.T[a] += p[a] - x
	}
	return plane
}

// inverted returns the inverse of a map that has one.
func inverted(a volume.Affine) volume.Affine {
	inverse, err := a.Inverse()
	if err != nil {
		panic("engine: a plane's map has no inverse")
	}
	return inverse
}

// flattenedGrid returns a slice's grid in the coordinates of a plane, its thickness last.
func flattenedGrid(g volume.Geometry, plane volume.Affine) volume.Geometry {
	m := inverted(plane).After(g.IndexToPhysical())
	flat := volume.Geometry{Size: [3]int{1, 1, 1}, Origin: [3]float64{m.T[0], m.T[1], 0}, Direction: volume.Identity}
	for k, a := range broad(g) {
		flat.Size[k], flat.Spacing[k] = g.Size[a], g.Spacing[a]
		x, y := m.M[a], m.M[3+a]
		length := math.Hypot(x, y)
		flat.Direction[k], flat.Direction[3+k] = x/length, y/length
	}
	flat.Spacing[2] = math.Sqrt(flat.Spacing[0] * flat.Spacing[1]) // so that a mean over all three is that of the plane
	return flat
}

// flattenedImage returns a slice in the coordinates of a plane, with its own voxels; nil for nil.
func flattenedImage(v *volume.Volume, plane volume.Affine) *volume.Volume {
	if v == nil {
		return nil
	}
	return &volume.Volume{Geometry: flattenedGrid(v.Geometry, plane), Data: v.Data}
}

// withinPlane returns a map of the plane's coordinates without what leads out of it, and refuses one that leads out by
// far.
func withinPlane(a volume.Affine) (volume.Affine, error) {
	const most = 0.3
	if math.Hypot(a.M[6], a.M[7]) > most {
		return a, fault.New(fault.SingularTransform, "the initial transform turns the fixed slice out of the plane of the moving one; give one within the plane")
	}
	a = a.WithinPlane()
	if _, err := a.Inverse(); err != nil {
		return a, fault.Wrap(fault.SingularTransform, err, "initial transform is singular within the slice's plane; correct it")
	}
	return a, nil
}

// flattenedField returns the displacements of a field on a slice within the plane. Where the field is the whole map it
// leads from one plane to the other.
func (at *planes) flattenedField(f *field.Field, whole bool) *field.Field {
	out := field.New(flattenedGrid(f.Geometry, at.fixed))
	toSpace, toPlane := f.IndexToPhysical(), inverted(at.fixed)
	if whole {
		toPlane = inverted(at.moving)
	}
	toIndex := out.PhysicalToIndex()
	for i := range f.X {
		out.SetTarget(i, toIndex.Apply(toPlane.Apply(toSpace.Apply(f.Target(i)))))
	}
	clear(out.Z)
	return out
}

// locked returns the axes of the flat grid along which nothing moves, by those of the fixed image's.
func (at *planes) locked(own [3]bool) [3]bool {
	along := broad(at.onFixed)
	return [3]bool{own[along[0]], own[along[1]], true}
}

// initial returns a transform of the planes as one of space.
func (at *planes) initial(flat volume.Affine) volume.Affine {
	return at.moving.After(flat).After(inverted(at.fixed))
}

// exchanged returns a whole map of the exchanged pair, and its initial transform, in these planes; g is the grid of the
// moving slice in its plane.
func (at *planes) exchanged(other *planes, total *field.Field, initial volume.Affine, g volume.Geometry) (*field.Field, volume.Affine) {
	from, to := inverted(other.fixed).After(at.moving), inverted(at.fixed).After(other.moving)
	out := field.New(g)
	m := g.PhysicalToIndex().After(to.WithinPlane()).After(total.IndexToPhysical())
	for i := range out.X {
		to := total.Target(i)
		to[2] = 0
		out.SetTarget(i, m.Apply(to))
	}
	clear(out.Z)
	return out, to.After(initial).After(from).WithinPlane()
}

// layBack makes of a result in the planes the one in space.
func (at *planes) layBack(r *Result) {
	flat := r.Field
	total := field.New(at.onFixed)
	m := at.onFixed.PhysicalToIndex().After(at.moving).After(flat.IndexToPhysical())
	parallel.Each(len(flat.X), 1<<14, r.Threads, func(i int) {
		to := flat.Target(i)
		to[2] = 0
		total.SetTarget(i, m.Apply(to))
	})
	r.Field, r.Initial, r.Moving = total, at.initial(r.Initial), at.onMoving
	for _, v := range []*volume.Volume{r.Warped, r.Uncertainty} {
		if v != nil {
			v.Geometry = at.onFixed
		}
	}
	r.Metrics.Align.Matrix, r.Metrics.Align.Translation = r.Initial.M, r.Initial.T
}
