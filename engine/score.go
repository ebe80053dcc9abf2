package engine

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/metric"
	"github.com/morphseek/morphseek/engine/volume"
)

// LabelMap is a label map as it was drawn: 0 is background.
type LabelMap struct {
	volume.Geometry
	Data []int32
}

// LabelScore is the agreement of one label between the fixed map and the moving one, before and after a registration. A distance is
// +Inf where one map has lost the label. VolumeError is by how many percent the transform mistakes the label's volume in the moving
// image.
type LabelScore struct {
	Label                 int32
	DiceBefore, DiceAfter float64
	HD95Before, HD95After float64
	VolumeError           float64
}

// ScoreLabels scores the labels that both maps have, in ascending order, for the transform f. Before is the identity in physical space.
// The fixed map lies on the grid of f; det is f's Jacobian determinant there.
func ScoreLabels(f *field.Field, det []float32, fixed, moving LabelMap, threads int) ([]LabelScore, error) {
	if !fixed.SameGrid(f.Geometry) {
		return nil, fault.New(fault.GridMismatch, "the fixed labels (%v voxels) are not on the grid of the transform (%v); resample them onto it, with nearest neighbours", fixed.Size, f.Size)
	}
	shared := common(labelsOf(fixed.Data), labelsOf(moving.Data))
	if len(shared) == 0 {
		return nil, nil
	}
	here, there := fixed.numbered(shared), moving.numbered(shared)
	reference := metric.NewReference(here, threads)
	scores := make([]LabelScore, len(shared))
	for i, l := range shared {
		scores[i].Label = l
	}
	before := there.Resample(f.Geometry, volume.IdentityAffine(), volume.Nearest, 0, threads)
	for i, s := range reference.Compare(before, threads) {
		scores[i].DiceBefore, scores[i].HD95Before = s.Dice, s.HD95
	}
	after := f.Warp(there, volume.Nearest, 0, threads)
	for i, s := range reference.Compare(after, threads) {
		scores[i].DiceAfter, scores[i].HD95After = s.Dice, s.HD95
	}
	predicted, whole := make([]float64, len(shared)+1), make([]float64, len(shared)+1)
	for i, l := range here.Data { // one after another: the same sum for any number of threads
		if l != 0 {
			predicted[int(l)] += float64(det[i])
		}
	}
	for _, l := range there.Data {
		if l != 0 {
			whole[int(l)]++
		}
	}
	a, b := math.Abs(fixed.IndexToPhysical().Det()), math.Abs(moving.IndexToPhysical().Det())
	for i := range scores {
		scores[i].VolumeError = float64(100 * (float64(predicted[i+1]*a)/float64(whole[i+1]*b) - 1))
	}
	return scores, nil
}

const table = 1 << 20 // labels within such a range are looked up, others searched for

func labelsOf(data []int32) []int32 {
	if len(data) == 0 {
		return nil
	}
	low, high := slices.Min(data), slices.Max(data)
	var found []int32
	if int64(high)-int64(low) < table {
		seen := make([]bool, high-low+1)
		for _, l := range data {
			seen[l-low] = true
		}
		for i, s := range seen {
			if s {
				found = append(found, low+int32(i))
			}
		}
		return found
	}
	seen, last := map[int32]bool{}, data[0]+1
	for _, l := range data { // labels come in runs
		if l != last {
			seen[l], last = true, l
		}
	}
	for l := range seen {
		found = append(found, l)
	}
	slices.Sort(found)
	return found
}

// common returns what two ascending lists have in common but 0.
func common(a, b []int32) []int32 {
	var both []int32
	for _, l := range a {
		if _, found := slices.BinarySearch(b, l); found && l != 0 {
			both = append(both, l)
		}
	}
	return both
}

// numbered returns the map with every label's place among the given ones, ascending, from 1, and 0 for others: a voxel is float32, which
// does not hold every label.
func (m LabelMap) numbered(labels []int32) *volume.Volume {
	v := volume.Zeros(m.Geometry)
	low, high := labels[0], labels[len(labels)-1]
	if int64(high)-int64(low) < table {
		places := make([]float32, high-low+1)
		for i, l := range labels {
			places[l-low] = float32(i + 1)
		}
		for i, l := range m.Data {
			if l >= low && l <= high {
				v.Data[i] = places[l-low]
			}
		}
		return v
	}
	last, place := labels[0], float32(1)
	for i, l := range m.Data {
		if l != last {
			last, place = l, 0
			if k, found := slices.BinarySearch(labels, l); found {
				place = float32(k + 1)
			}
		}
		v.Data[i] = place
	}
	return v
}
