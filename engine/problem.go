package engine

import (
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/landmark"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/plan"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/volume"
)

// problem is one pair with what was asked of it, its images in each form that a stage reads. It does not change once
// made.
type problem struct {
	request Pair    // the caller's
	planes  *planes // where slices lie; nil for volumes
	opt     Options // threads resolved
	facts   plan.Facts

	fixed, moving *volume.Volume // slices in their planes; without voxels far beyond the others, every voxel finite
	original      *volume.Volume // the caller's moving image, every voxel finite: what is resampled
	fixedMask     *volume.Volume // on the grid of fixed; nil: everywhere
	rigid         *volume.Volume // likewise; nil: none
	pair          aligned.Pair   // with axes along LPS: the order of a file's axes must not change the result. It has no initial transform.

	initial     *volume.Affine // the caller's, fixed -> moving, LPS mm; nil: the headers'
	deform      *field.Field   // the caller's deformation behind it, without folds; nil: none
	landmarks   []landmark.Pair
	landmarkFit *volume.Affine // nil without landmarks
	net         *net           // nil: no network

	referee func() *referee.Referee // of pair, which is made when first asked
}

// isFlat says whether the images are slices.
func (p *problem) isFlat() bool { return p.fixed.Flat() }

// locked returns the axes that the option locks, on the grid that is registered.
func (p *problem) locked() [3]bool {
	locked := p.opt.locked()
	if p.planes != nil {
		return p.planes.locked(locked)
	}
	return locked
}

// lockedCanonical is locked of the grids that the stages work on, whose axes run along LPS.
func (p *problem) lockedCanonical() (locked [3]bool) {
	own := p.locked()
	_, perm, _ := p.fixed.Geometry.Canonical()
	for a, from := range perm {
		locked[a] = own[from]
	}
	return locked
}

// minJacobian is the least Jacobian determinant of the deformation on the fixed grid. It bars folds, not compression,
// which networks need where one image lacks a tissue (RATIONALE.md, Folds and compression).
const minJacobian = 0.001

// net is the network of a registration, open on its device.
type net struct {
	*network.Model
	runner  network.Runner
	windows [2][]float64 // percentiles of the fixed and the moving image, which become the ends of the model's range
}
