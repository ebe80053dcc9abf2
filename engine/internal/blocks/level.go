// Package blocks matches blocks of two images: it searches the displacements of a window at every point of a control
// grid.
//
// The cost of a displacement is the L1 distance between descriptors, averaged over the point's patch: 5 at most by each of
// MIND-SSC's twelve channels, 1 by each threshold of intensity.
// What is found has the least cost plus squared differences along spanning trees of the grid, exactly on each, by
// message passing.
package blocks

import (
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/volume"
)

// Level is one control grid and the window searched there; lengths are in voxels of the working grid.
type Level struct {
	Spacing int // between control points
	Radius  int // displacements are Quantum*(-Radius..Radius) along each axis
	Quantum int
	// Stiffness is the cost of a unit strain between neighbours. It is higher where the window is
	// wide, for a wide window holds more false matches.
	Stiffness float64
}

// Reach returns the longest displacement of a level.
func (l Level) Reach() int { return l.Radius * l.Quantum }

// reachShare bounds a level's reach, as a share of the working grid's mean side: in a small crop only the finer levels
// run.
const reachShare = 0.12

// Fits says whether the level's reach is within bounds on a working grid.
func (l Level) Fits(grid volume.Geometry) bool { return float64(l.Reach()) <= reachShare*grid.Side() }

// Control returns the control points on a working grid: the centres of blocks of Spacing voxels a side.
func (l Level) Control(grid volume.Geometry) volume.Geometry {
	return grid.Blocks([3]int{l.Spacing, l.Spacing, l.Spacing})
}

// Labels returns how many labels (displacements) a point has, and how many of them lie along z: one for slices.
func (l Level) Labels(grid volume.Geometry) (all, deep int) {
	all, deep = 1, 1
	for axis := range grid.Axes() {
		all *= 2*l.Radius + 1
		if axis == 2 {
			deep = 2*l.Radius + 1
		}
	}
	return all, deep
}

// workingVoxels is about how many voxels the working grid has: 4 mm for a torso, 2 mm for a head.
const workingVoxels = 850e3

// workingPixels is about how many a slice's has: with the same number along a side the levels reach as far.
const workingPixels = 16e3

// WorkingGrid returns the grid of isotropic voxels, over the fixed volume, that blocks are matched on.
func WorkingGrid(pair aligned.Pair) volume.Geometry {
	own := aligned.Spacing(pair.Fixed.Geometry)
	most := workingVoxels
	if pair.Fixed.Flat() {
		most = workingPixels
	}
	return pair.Grid(max(own, own*pair.Fixed.Root(float64(pair.Fixed.Voxels())/most)))
}
