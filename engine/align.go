package engine

import (
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

// align finds the initial transform.
func (r *registration) align() error {
	r.initial = volume.IdentityAffine()
	if r.pair.Initial != nil {
		r.initial = *r.pair.Initial
	}
	if r.opt.Initial != "none" {
		return fault.New(fault.Internal, "initial alignment %q is not there yet", r.opt.Initial)
	}
	return nil
}
