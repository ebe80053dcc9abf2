package metric

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// HD95 returns the 95 % Hausdorff distance in mm of every label but 0 that occurs in a or b, in ascending order: the greater
// of the two directed 95th percentiles of the distances between surface voxels, as MONAI has it. Surface voxels have a face
// neighbour outside their label; the border of the volume counts as outside. A label that only one map holds scores +Inf.
// The maps must lie on one grid.
func HD95(a, b *volume.Volume, threads int) []LabelScore {
	first, second := surfacesOf(a, threads), surfacesOf(b, threads)
	scores := []LabelScore{}
	for l := range first.byLabel {
		scores = append(scores, LabelScore{l, math.Inf(1)})
	}
	for l := range second.byLabel {
		if first.byLabel[l] == nil {
			scores = append(scores, LabelScore{l, math.Inf(1)})
		}
	}
	sortByLabel(scores)
	near := newNeighbourhood(a.Size, a.Spacing)
	parallel.For(len(scores), 1, threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			l := scores[i].Label
			if s, t := first.byLabel[l], second.byLabel[l]; s != nil && t != nil {
				scores[i].Score = max(second.target(l, near).percentile95(s.points), first.target(l, near).percentile95(t.points))
			}
		}
	})
	return scores
}
