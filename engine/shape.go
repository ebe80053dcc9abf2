package engine

import (
	"fmt"
	"math"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/bodies"
	"github.com/morphseek/morphseek/engine/volume"
)

// This file holds what a caller may ask of the deformation's shape, beside how smooth it is.

// locked returns the axes of a grid with the fixed image's axes, in their order in the file, that the option along locks.
func (o Options) locked() (locked [3]bool) {
	for a, axis := range []string{"i", "j", "k"} {
		locked[a] = o.Along != "all" && !strings.Contains(o.Along, axis)
	}
	return locked
}

// locked is that of the option, on the grid that is registered.
func (r *registration) locked() [3]bool {
	locked := r.opt.locked()
	if r.planes != nil {
		locked = r.planes.locked(locked)
	}
	locked[2] = locked[2] || r.isFlat()
	return locked
}

// lockedCanonical is locked of the grids that the stages work on, whose axes run along LPS.
func (r *registration) lockedCanonical() (locked [3]bool) {
	own := r.locked()
	_, perm, _ := r.fixed.Geometry.Canonical()
	for a, from := range perm {
		locked[a] = own[from]
	}
	return locked
}

// checkShape reports what cannot be asked of a deformation together.
func (r *registration) checkShape() error {
	if r.locked() == [3]bool{true, true, true} {
		return fault.New(fault.InvalidArgument, "along is %q, which is the thickness of the fixed slice: nothing could move; name an axis of its plane", r.opt.Along)
	}
	if r.pair.Rigid != nil && (r.model != nil || r.opt.Along != "all") {
		return fault.New(fault.InvalidArgument, "rigid regions are for the search and the refinement along all axes: leave model at none and along at all")
	}
	if r.opt.Symmetric == "on" && (r.model != nil || r.pair.Rigid != nil || r.opt.Along != "all") {
		return fault.New(fault.InvalidArgument, "a symmetric registration has neither a network, nor rigid regions, nor axes that it keeps to, which would hold one way alone: leave symmetric off, or model at none, along at all and rigid regions out")
	}
	if r.opt.Symmetric == "on" && len(r.pair.Landmarks) > 0 {
		return fault.New(fault.InvalidArgument, "a symmetric registration keeps to no landmarks; leave symmetric off, or the landmarks out")
	}
	if r.opt.Symmetric == "on" && r.begun != nil {
		return fault.New(fault.InvalidArgument, "a symmetric registration starts from a linear transform, and this one bends; leave symmetric off, or start from its initial part")
	}
	if r.model != nil && r.opt.Along != "all" {
		return fault.New(fault.InvalidArgument, "along is %q, and a network's displacement keeps to no axis; leave model at none", r.opt.Along)
	}
	return nil
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
	switch n := len(bodies.Labels(p.Rigid)); {
	case n == 0:
		return fault.New(fault.EmptyMask, "rigid regions are empty: every voxel is 0; correct the label map or leave it out")
	case n > mostBodies:
		return fault.New(fault.InvalidArgument, "rigid regions have %d labels, more than %d; is it a label map?", n, mostBodies)
	}
	return nil
}

// saysShape notes in the plan what was asked of the deformation.
func (r *registration) saysShape() {
	if r.opt.Along != "all" {
		axes := strings.Join(strings.Split(r.opt.Along, ""), " and ")
		r.because("the deformation keeps to the fixed image's axes: " + axes)
	}
	if r.pair.Rigid != nil {
		if n := len(bodies.Labels(r.pair.Rigid)); n == 1 {
			r.because("a region moves as one body")
		} else {
			r.because(fmt.Sprintf("%d regions move each as one body", n))
		}
	}
}

// shaped returns the total transform of a deformation on the fixed grid; nil is the identity.
func (r *registration) shaped(deform *field.Field) *field.Field {
	if r.pair.Rigid != nil {
		if deform == nil { // the initial transform may scale
			deform = field.New(r.fixed.Geometry)
		}
		rigid := bodies.On(deform.Geometry, r.pair.Rigid, r.opt.Threads)
		rigid.Make(deform, nil, r.initial)
		rigid.Unfold(deform, minJacobian, r.opt.Threads)
	}
	locked := r.locked()
	if deform != nil {
		deform.Lock(locked)
	}
	if locked != [3]bool{} && deform != nil && r.initial == volume.IdentityAffine() {
		return deform // exactly: by way of millimetres, a locked axis would get a rounding error
	}
	return field.Total(r.initial, deform, r.fixed.Geometry, r.opt.Threads)
}
