package engine

import (
	"cmp"
	"fmt"
	"math"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// limits of channels.
const (
	mostChannels = 16
	mostWeight   = 1000
	mostLabels   = 4096
)

// checkChannels reports the first fault of the channels.
func (p Pair) checkChannels() error {
	if n := len(p.Channels); n > mostChannels {
		return fault.New(fault.InvalidArgument, "%d channels are given beside the first; %d are the most", n, mostChannels)
	}
	for k, c := range p.Channels {
		name := p.ChannelName(k)
		if w := c.Weight; !(w >= 0 && w <= mostWeight) {
			return fault.New(fault.InvalidArgument, "the weight of %s is %g; it must be from 0 (which is 1) to %d", name, w, mostWeight)
		}
		for _, side := range []struct {
			name        string
			image, main *volume.Volume
		}{{"fixed", c.Fixed, p.Fixed}, {"moving", c.Moving, p.Moving}} {
			called, check := name+", "+side.name, side.image.Check
			if c.Labels {
				check = side.image.CheckShape
			}
			if err := check(called); err != nil {
				return err
			}
			if !meet(side.image.Geometry, side.main.Geometry) {
				return fault.New(fault.NoOverlap, "%s volume lies outside the %s image: all channels of one side are of one patient in one space; check its header", called, side.name)
			}
			if !c.Labels {
				continue
			}
			for _, x := range side.image.Data {
				if !(x >= 0 && x < 1<<24) || x != float32(math.Trunc(float64(x))) {
					return fault.New(fault.InvalidArgument, "%s volume holds %g, which is no label; labels are whole numbers, 0 for the background", called, x)
				}
			}
		}
		if !c.Labels {
			continue
		}
		switch n := len(common(c.Fixed.Labels(), c.Moving.Labels())); {
		case n == 0:
			return fault.New(fault.InvalidArgument, "the fixed and the moving labels of %s have no label in common; give maps with the same numbers for the same structures", name)
		case n > mostLabels:
			return fault.New(fault.InvalidArgument, "the label maps of %s have %d labels in common; %d are the most", name, n, mostLabels)
		}
	}
	return nil
}

// meet says whether a box around one grid meets the other grid; how far two slices lie apart across their plane does not
// count.
func meet(a, b volume.Geometry) bool {
	toIndex := b.PhysicalToIndex().After(a.IndexToPhysical())
	lo, hi := [3]float64{math.Inf(1), math.Inf(1), math.Inf(1)}, [3]float64{math.Inf(-1), math.Inf(-1), math.Inf(-1)}
	for _, corner := range a.Corners(0.5) {
		for k, x := range toIndex.Apply(corner) {
			lo[k], hi[k] = min(lo[k], x), max(hi[k], x)
		}
	}
	for k, n := range b.Size {
		if n > 1 && (hi[k] < -0.5 || lo[k] > float64(n)-0.5) {
			return false
		}
	}
	return true
}

// checkLandmarks reports the first fault of the landmarks, err being the option landmark_error.
func (p Pair) checkLandmarks(err float64) error {
	const most = 1000 // the matrix of their covariances is solved many times
	if n := len(p.Landmarks); n > most {
		return fault.New(fault.InvalidArgument, "%d pairs of landmarks are given; %d are the most that a registration keeps to: leave out those of the least use", n, most)
	}
	if len(p.Landmarks) > 0 && err == 0 {
		return fault.New(fault.InvalidArgument, "landmarks are given and landmark_error is 0; set it to how exactly they were marked, mm (1 to 2 for clear points), or leave them out")
	}
	for i, l := range p.Landmarks {
		for _, side := range []struct {
			name  string
			at    [3]float64
			image *volume.Volume
		}{{"fixed", l.Fixed, p.Fixed}, {"moving", l.Moving, p.Moving}} {
			for _, x := range side.at {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					return fault.New(fault.InvalidArgument, "the %s landmark %s lies at %v; each needs three finite numbers", side.name, p.name(i), side.at)
				}
			}
			index := side.image.PhysicalToIndex().Apply(side.at)
			for a, n := range side.image.Size {
				if index[a] < -float64(n) || index[a] > float64(2*n) {
					return fault.New(fault.InvalidArgument, "the %s landmark %s lies at (%.1f, %.1f, %.1f), far outside the %s image; landmarks are LPS mm of their own image", side.name, p.name(i), side.at[0], side.at[1], side.at[2], side.name)
				}
			}
		}
	}
	return nil
}

// check reports the first fault of the inputs.
func (p Pair) check(opt Options) error {
	for _, in := range []struct {
		name    string
		v, mask *volume.Volume
	}{{"fixed", p.Fixed, p.FixedMask}, {"moving", p.Moving, p.MovingMask}} {
		if err := in.v.Check(in.name); err != nil {
			return err
		}
		if in.mask == nil {
			continue
		}
		if err := in.v.CheckMask(in.name, in.mask); err != nil {
			return err
		}
	}
	return cmp.Or(p.checkField(opt.Threads), p.checkRigid(), p.checkChannels(), p.checkInitial(), p.checkUnits(), p.checkLandmarks(opt.LandmarkError))
}

// checkInitial reports why a registration cannot start from a transform.
func (p Pair) checkInitial() error {
	if p.Initial == nil {
		return nil
	}
	for _, x := range append(p.Initial.M[:], p.Initial.T[:]...) {
		if !(math.Abs(x) <= farthest) {
			return fault.New(fault.SingularTransform, "initial transform %v has numbers that are not finite, or beyond %g; correct it", *p.Initial, farthest)
		}
	}
	if _, err := p.Initial.Inverse(); err != nil {
		return fault.Wrap(fault.SingularTransform, err, "initial transform is singular; correct it")
	}
	return nil
}

// checkUnits reports fields of view that differ too much for one body, as of headers in metres and in millimetres.
// Their working grids would have more voxels than any memory, or none.
func (p Pair) checkUnits() error {
	const most = 100
	fixed, moving, scale, given := p.Fixed.Longest(), p.Moving.Longest(), 1.0, ""
	if p.Initial != nil {
		scale = math.Cbrt(math.Abs(p.Initial.Det()))
		given = fmt.Sprintf(", with an initial transform that scales by %.3g", scale)
	}
	if r := moving / (scale * fixed); !(r <= most && r >= 1.0/most) {
		return fault.New(fault.InvalidSpacing, "the fixed field of view is %.3g mm long and the moving one %.3g mm%s: more than a factor of %d lies between them; check the units of the headers, which must be millimetres", fixed, moving, given, most)
	}
	return nil
}

const (
	// leastReached is the share of the fixed volume that the deformation's grid must cover.
	leastReached = 0.5
	// farthest is how far, mm, a given transform may move a point: products of what is farther are no numbers any more.
	farthest = 1e9
	// straight is the displacement, voxels, below which a field counts as no deformation.
	straight = 1e-3
	// explained is the share of a displacement, by its squares, that an affine map must explain to be taken for a part
	// of it.
	explained = 0.75
)

// checkField reports why a registration cannot start from a displacement field.
func (p Pair) checkField(threads int) error {
	f := p.InitialField
	if f == nil {
		return nil
	}
	if err := f.Geometry.Check("initial field"); err != nil {
		return err
	}
	if f.Thin() >= 0 && p.Fixed.Thin() < 0 {
		return fault.New(fault.ThinVolume, "initial field is of one slice, of size %v, and the fixed image is a volume; sample it on the fixed volume's grid", f.Size)
	}
	if len(f.Data) != 3*f.Voxels() {
		return fault.New(fault.GridMismatch, "initial field has %d numbers where its size %v needs %d", len(f.Data), f.Size, 3*f.Voxels())
	}
	bad := parallel.Reduce(len(f.Data), 1<<16, threads, func(lo, hi int) (n int) {
		for _, x := range f.Data[lo:hi] {
			if !(math.Abs(float64(x)) <= farthest) {
				n++
			}
		}
		return n
	}, func(a, b int) int { return a + b })
	if bad > 0 {
		return fault.New(fault.SingularTransform, "initial field has %d components that are NaN, infinite or beyond %g mm; make it anew", bad, farthest)
	}
	if share := p.reached(); share < leastReached {
		return fault.New(fault.GridMismatch, "initial field covers %.0f %% of the fixed volume, where it must cover %.0f %%: it belongs to another space, or is to be inverted; sample it on the fixed volume's grid", 100*share, 100*leastReached)
	}
	return nil
}

// reached returns the share of the fixed volume that lies on the initial field's grid.
func (p Pair) reached() float64 {
	const steps = 32 // along an axis, at most
	fixed, f := p.Fixed.Geometry, p.InitialField
	toField := f.PhysicalToIndex().After(fixed.IndexToPhysical())
	var n [3]int
	for a := range 3 {
		n[a] = min(fixed.Size[a], steps)
	}
	within, all := 0, n[0]*n[1]*n[2]
	for i := range all {
		var x [3]float64
		for a, k := range (volume.Geometry{Size: n}).Index(i) {
			x[a] = float64(k) * float64(fixed.Size[a]-1) / float64(max(n[a]-1, 1))
		}
		inside := true
		for a, at := range toField.Apply(x) {
			inside = inside && at >= -0.5 && at <= float64(f.Size[a])-0.5 // a voxel reaches half a voxel beyond its centre
		}
		if inside {
			within++
		}
	}
	return float64(within) / float64(all)
}

// mostBodies is the most rigid regions of a label map. More mean that an image was given by mistake.
const mostBodies = 1000

// checkRigid reports the first fault of the rigid regions.
func (p Pair) checkRigid() error {
	if p.Rigid == nil {
		return nil
	}
	if err := p.Rigid.CheckShape("rigid regions"); err != nil {
		return err
	}
	if err := p.Fixed.CheckGrid("fixed", "the label map of rigid regions", p.Rigid); err != nil {
		return err
	}
	for _, label := range p.Rigid.Data {
		if label != float32(math.Trunc(float64(label))) || !volume.IsFinite(label) {
			return fault.New(fault.InvalidArgument, "rigid regions have a voxel of %g; give a label map: whole numbers, 0 where tissue may bend", label)
		}
	}
	switch n := len(p.Rigid.Labels()); {
	case n == 0:
		return fault.New(fault.EmptyMask, "rigid regions are empty: every voxel is 0; correct the label map or leave it out")
	case n > mostBodies:
		return fault.New(fault.InvalidArgument, "rigid regions have %d labels, more than %d; is it a label map?", n, mostBodies)
	}
	return nil
}
