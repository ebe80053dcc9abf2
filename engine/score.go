package engine

import (
	"cmp"
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

// LabelScore is the agreement of one label between the fixed map and the moving one, before and after a registration. A
// distance is +Inf where one map has lost the label. VolumeError is by how many percent the transform mistakes the
// label's volume in the moving image, or on slices its area.
type LabelScore struct {
	Label                 int32
	DiceBefore, DiceAfter float64
	HD95Before, HD95After float64
	VolumeError           float64
}

// ScoreLabels scores the labels that both maps have, in ascending order, for the transform f. Before is the identity in
// physical space. The fixed map lies on the grid of f; det is f's Jacobian determinant there. carried is the moving map
// as f carries it there; nil: it is computed here.
func ScoreLabels(f *field.Field, det []float32, fixed, moving LabelMap, carried []int32, threads int) (scores []LabelScore, err error) {
	defer fault.Recovered(&err)
	if !fixed.SameGrid(f.Geometry) {
		return nil, fault.New(fault.GridMismatch, "the fixed labels (%v voxels) are not on the grid of the transform (%v); resample them onto it, with nearest neighbours", fixed.Size, f.Size)
	}
	if err := moving.Geometry.Check("moving labels"); err != nil {
		return nil, err
	}
	toCarry := len(carried)
	if carried != nil {
		toCarry = f.Voxels()
	}
	for _, in := range []struct {
		what    string
		n, want int
	}{
		{"fixed labels have", len(fixed.Data), f.Voxels()}, {"moving labels have", len(moving.Data), moving.Voxels()},
		{"Jacobian determinant has", len(det), f.Voxels()}, {"carried labels have", len(carried), toCarry},
	} {
		if in.n != in.want {
			return nil, fault.New(fault.GridMismatch, "the %s %d values, and their grid %d voxels; give one value a voxel", in.what, in.n, in.want)
		}
	}
	here, there := metric.RunsOf(fixed.Data, fixed.Size, threads), metric.RunsOf(moving.Data, moving.Size, threads)
	shared := common(here.Labels(), there.Labels())
	if len(shared) == 0 {
		return nil, nil
	}
	a, b := fixed.Cell(), moving.Cell()
	scores = make([]LabelScore, len(shared))
	for i, l := range shared {
		predicted, whole := 0.0, 0.0
		for run := range here.Of(l) { // one after another: the same sum for any number of threads
			row := int(run.Row) * fixed.Size[0]
			for _, d := range det[row+int(run.From) : row+int(run.To)] {
				predicted += float64(d)
			}
		}
		for run := range there.Of(l) {
			whole += float64(run.To - run.From)
		}
		scores[i] = LabelScore{Label: int32(l), VolumeError: float64(100 * (float64(predicted*a)/float64(whole*b) - 1))}
	}
	compare := func(other *metric.Runs, put func(s *LabelScore, dice, hd95 float64)) {
		for _, s := range here.Compare(other, f.Spacing, threads) {
			if i, found := slices.BinarySearch(shared, s.Label); found {
				put(&scores[i], s.Dice, s.HD95)
			}
		}
	}
	numbers := numbered(there, moving.Geometry, shared)
	named := func(v *volume.Volume) *metric.Runs {
		runs := metric.RunsOf(v.Data, v.Size, threads)
		runs.Rename(shared)
		return runs
	}
	before := named(numbers.Resample(f.Geometry, volume.IdentityAffine(), volume.Nearest, 0, threads))
	compare(before, func(s *LabelScore, dice, hd95 float64) { s.DiceBefore, s.HD95Before = dice, hd95 })
	var after *metric.Runs
	if carried != nil {
		after = metric.RunsOf(carried, f.Size, threads)
	} else {
		after = named(f.Warp(numbers, volume.Nearest, 0, threads))
	}
	compare(after, func(s *LabelScore, dice, hd95 float64) { s.DiceAfter, s.HD95After = dice, hd95 })
	return scores, nil
}

// common returns the values that two ascending lists share.
func common[T cmp.Ordered](a, b []T) (both []T) {
	for _, l := range a {
		if _, found := slices.BinarySearch(b, l); found {
			both = append(both, l)
		}
	}
	return both
}

// numbered returns a map with every label's place among the given ones, ascending, from 1, and 0 for others: a voxel is
// float32, which does not hold every label.
func numbered(labels *metric.Runs, g volume.Geometry, given []int) *volume.Volume {
	v := volume.Zeros(g)
	for i, l := range given {
		for run := range labels.Of(l) {
			row := v.Data[int(run.Row)*g.Size[0]:]
			for x := run.From; x < run.To; x++ {
				row[x] = float32(i + 1)
			}
		}
	}
	return v
}
