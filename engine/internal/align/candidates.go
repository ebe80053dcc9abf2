package align

import (
	"cmp"
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// search returns the best distinct peaks over all translations and scales.
func (a *aligner) search(v views) ([]peak, error) {
	f, m := v.fixed.halved(searchComponents, a.opt.Threads), v.moving.halved(searchComponents, a.opt.Threads)
	factors := scales
	if a.opt.Method == Rigid {
		factors = []float64{1}
	}
	var largest [3]int
	for i := range 3 {
		largest[i] = int(math.Ceil(float64(m.grid.Size[i]) / factors[0]))
	}
	s := newSearcher(f, largest, a.opt.Threads)
	var all []peak
	along := factors
	if f.image.Flat() {
		along = []float64{1}
	}
	for i, axial := range along {
		for j, plane := range factors {
			all = append(all, s.search(m, [3]float64{plane, plane, axial})...)
			done := float64(i*len(factors)+j+1) / float64(len(along)*len(factors))
			if err := a.checkpoint(0.2 + float64(0.4*done)); err != nil {
				return nil, err
			}
		}
	}
	return distinct(all, f.grid, starts), nil
}

// distinct returns the count highest peaks that differ by three voxels of the grid g on average over its corners.
func distinct(all []peak, g volume.Geometry, count int) []peak {
	slices.SortStableFunc(all, func(p, q peak) int { return cmp.Compare(q.score, p.score) })
	corners := boxCorners(g, 0)
	var kept []peak
	for _, p := range all {
		near := slices.ContainsFunc(kept, func(k peak) bool {
			return meanDistance(corners, p.transform, k.transform) <= 3*g.Spacing[0]
		})
		if !near {
			kept = append(kept, p)
		}
		if len(kept) == count {
			break
		}
	}
	return kept
}

// outcome is where the refinement of several starts ended.
type outcome struct {
	transform volume.Affine
	score     float64
	start     float64 // score of the start that led here
	rival     rival
	same      bool // the intensities of the starts correspond
}

// rival is the best other place.
type rival struct {
	margin float64 // how far its score is below, as a share; 1 where there is none
	mm     float64 // how far it lies apart, on average over the corners of the fixed image
}

var noRival = rival{margin: 1}

// or returns the one of two that is the closer in score.
func (r rival) or(other rival) rival {
	if other.margin < r.margin {
		return other
	}
	return r
}

func (o outcome) evidence() float64 { return math.Sqrt(max(o.score, 0) * max(o.start, 0)) }

func (o outcome) confidence() float64 {
	strength := (o.evidence() - chance) / (certain - chance)
	return min(max(strength, 0), 1) * min(max(o.rival.margin/0.1, 0), 1)
}

// refineAll refines every candidate and returns the best. It compares features, and intensities too if these correspond
// under any candidate.
func (a *aligner) refineAll(v views, candidates []peak) (outcome, error) {
	compared, o := v.coarse, v.plain
	same := slices.ContainsFunc(candidates, func(c peak) bool { return v.sameModality(c.transform, a.opt.Threads) })
	if same {
		compared = v.bright().added(v.coarse, coarseSigma, a.opt.Threads)
		o = a.objective(v, compared, coarsePoints)
	}
	candidates, err := a.cluster(v, compared, candidates)
	if err != nil {
		return outcome{}, err
	}
	ends, err := a.refineEach(o, candidates, coarse)
	if err != nil {
		return outcome{}, err
	}
	if err := a.checkpoint(0.8); err != nil {
		return outcome{}, err
	}
	winner := ends[0]
	for _, e := range ends {
		if e.value > winner.value {
			winner = e
		}
	}
	corners := o.corners()
	second := noRival
	for _, e := range ends {
		mm := meanDistance(corners, e.transform, winner.transform)
		if apart := mm/o.clusterRadius() - 1; apart > 0 {
			below := min((winner.value-e.value)/max(winner.score, 1e-6), 1)
			second = second.or(rival{1 - float64(min(apart, 1)*(1-below)), mm}) // between one radius and two it counts in part
		} else {
			winner.start = max(winner.start, e.start)
		}
	}
	return outcome{
		transform: winner.transform, score: v.score(winner.transform), start: winner.start,
		rival: second, same: same,
	}, nil
}

// end is where the refinement of one candidate led.
type end struct {
	transform           volume.Affine
	value, score, start float64 // value: score less the penalty of strain; start: the candidate's score
}

// refineEach refines every candidate, several at once where there are threads.
func (a *aligner) refineEach(o *objective, candidates []peak, by effort) ([]end, error) {
	ends, errs := make([]end, len(candidates)), make([]error, len(candidates))
	o = o.with(max(parallel.Threads(o.threads)/len(candidates), 1))
	parallel.Each(len(candidates), 1, a.opt.Threads, func(i int) {
		t, score, err := o.maximise(a.ctx, candidates[i].transform, a.opt.Method == Rigid, by)
		penalty, _ := strain(t.M)
		ends[i], errs[i] = end{t, score - float64(strainWeight*penalty), score, candidates[i].score}, err
	})
	if err := cmp.Or(errs...); err != nil {
		return nil, a.failed(err)
	}
	return ends, nil
}

// cluster refines every candidate a little. Of those that end at one position it returns the best, with the best score
// of their starts.
func (a *aligner) cluster(v views, s samples, candidates []peak) ([]peak, error) {
	if len(candidates) < 2 {
		return candidates, nil
	}
	o := a.objective(v, s, fewPoints)
	ends, err := a.refineEach(o, candidates, brief)
	if err != nil {
		return nil, err
	}
	if err := a.checkpoint(0.7); err != nil {
		return nil, err
	}
	slices.SortStableFunc(ends, func(p, q end) int { return cmp.Compare(q.value, p.value) })
	corners := o.corners()
	var places []peak
	for _, e := range ends {
		k := slices.IndexFunc(places, func(p peak) bool {
			return meanDistance(corners, p.transform, e.transform) <= o.clusterRadius()
		})
		if k < 0 {
			places = append(places, peak{e.start, e.transform})
		} else {
			places[k].score = max(places[k].score, e.start)
		}
	}
	return places, nil
}

// failed is the error of a refinement that ended early.
func (a *aligner) failed(err error) error {
	if cancelled := a.cancelled(); cancelled != nil {
		return cancelled
	}
	return fault.Wrap(fault.Internal, err, "refinement of the initial transform failed")
}

// meanDistance is the mean distance between the images of points under two maps, mm.
func meanDistance(points [][3]float64, a, b volume.Affine) float64 {
	total := 0.0
	for _, p := range points {
		total += volume.Distance(a.Apply(p), b.Apply(p))
	}
	return total / float64(len(points))
}
