package search

import (
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/blocks"
)

// Bytes is about how much memory a search over the pair takes.
func Bytes(pair aligned.Pair) int64 {
	const (
		live  = 100 // a voxel of the grown grid: two directions of images, what is known of them, descriptors and fields
		costs = 4   // of a level at a time: its costs, the min-marginals by one tree, messages up, the sum over trees
	)
	grid := blocks.WorkingGrid(pair)
	plan, margin := levelsFor(grid)
	peak := int64(0)
	for _, l := range plan {
		labels, _ := l.Labels(grid)
		peak = max(peak, 4*costs*int64(l.Control(grid).Voxels())*int64(labels))
	}
	return live*int64(aligned.Grow(grid, margin).Voxels()) + peak
}
