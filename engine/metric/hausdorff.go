package metric

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// HD95 returns the 95 % Hausdorff distance in mm of every label but 0 that occurs in a or b, in ascending order: the greater
// of the two directed 95th percentiles of the distances between surface voxels, as MONAI has it. Surface voxels have a face
// neighbour outside their label; the border of the volume counts as outside. A label that only one map holds scores +Inf.
// The maps must lie on one grid.
func HD95(a, b *volume.Volume, threads int) []LabelScore {
	return NewReference(a, threads).HD95(b, threads)
}

// Reference is a label map that others are compared with: its surfaces are found once.
type Reference struct {
	labels   *volume.Volume
	surfaces surfaces
	near     *neighbourhood
	numbers  []int // of its labels, ascending
	targets  []*target
}

// NewReference prepares a label map to be compared with others on its grid.
func NewReference(a *volume.Volume, threads int) *Reference {
	r := &Reference{labels: a, surfaces: surfacesOf(a, threads), near: newNeighbourhood(a.Size, a.Spacing)}
	for l := range r.surfaces.byLabel {
		r.numbers = append(r.numbers, l)
	}
	slices.Sort(r.numbers)
	r.targets = make([]*target, len(r.numbers))
	parallel.For(len(r.numbers), 1, threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			r.targets[i] = r.surfaces.target(r.numbers[i], r.near)
		}
	})
	return r
}

// HD95 is the function HD95 of the reference and another map.
func (r *Reference) HD95(b *volume.Volume, threads int) []LabelScore {
	second := surfacesOf(b, threads)
	scores := []LabelScore{}
	for _, l := range r.numbers {
		scores = append(scores, LabelScore{l, math.Inf(1)})
	}
	for l := range second.byLabel {
		if r.surfaces.byLabel[l] == nil {
			scores = append(scores, LabelScore{l, math.Inf(1)})
		}
	}
	sortByLabel(scores)
	parallel.For(len(scores), 1, threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			l := scores[i].Label
			if k, found := slices.BinarySearch(r.numbers, l); found && second.byLabel[l] != nil {
				own, other := r.targets[k], second.target(l, r.near)
				scores[i].Score = max(other.percentile95(own), own.percentile95(other))
			}
		}
	})
	return scores
}

// Agreement is how well a label of two maps agrees: its Dice, and its HD95 in mm.
type Agreement struct {
	Label      int
	Dice, HD95 float64
}

// Compare returns Dice and HD95 of every label but 0 that occurs in the reference or in b, in ascending order.
func (r *Reference) Compare(b *volume.Volume, threads int) []Agreement {
	distances := r.HD95(b, threads)
	found := make([]Agreement, len(distances))
	for i, d := range Dice(r.labels, b, threads) {
		found[i] = Agreement{d.Label, d.Score, distances[i].Score}
	}
	return found
}
