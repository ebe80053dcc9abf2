package engine

import (
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
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

// lockedCanonical is locked of the grids that the stages work on, whose axes run along LPS.
func (r *registration) lockedCanonical() (locked [3]bool) {
	own := r.opt.locked()
	_, perm, _ := r.fixed.Geometry.Canonical()
	for a, from := range perm {
		locked[a] = own[from]
	}
	return locked
}

// checkShape reports what cannot be asked of a deformation together.
func (r *registration) checkShape() error {
	if r.model != nil && r.opt.Along != "all" {
		return fault.New(fault.InvalidArgument, "along is %q, and a network's displacement keeps to no axis; leave model at none", r.opt.Along)
	}
	return nil
}

// shaped returns the total transform of a deformation on the fixed grid; nil is the identity.
func (r *registration) shaped(deform *field.Field) *field.Field {
	locked := r.opt.locked()
	if deform != nil {
		deform.Lock(locked)
	}
	if locked != [3]bool{} && deform != nil && r.initial == volume.IdentityAffine() {
		return deform // to the last bit: through millimetres, an axis that is locked would get a rounding error
	}
	return field.Total(r.initial, deform, r.fixed.Geometry, r.opt.Threads)
}
