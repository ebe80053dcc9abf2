package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/landmark"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/volume"
)

// Landmark is one point of the fixed image and where it is in the moving one, LPS mm.
type Landmark struct {
	Name          string // for messages; empty: its number
	Fixed, Moving [3]float64
}

// name is what messages call the i-th landmark.
func (p Pair) name(i int) string {
	if name := p.Landmarks[i].Name; name != "" {
		return name
	}
	return strconv.Itoa(i + 1)
}

// checkLandmarks reports the first fault of the landmarks.
func (p Pair) checkLandmarks() error {
	const most = 10_000 // the matrix of their covariances has so many squared
	if n := len(p.Landmarks); n > most {
		return fault.New(fault.InvalidArgument, "%d pairs of landmarks are given; %d are the most that a registration keeps to", n, most)
	}
	if e := p.LandmarkError; len(p.Landmarks) > 0 && !(e > 0 && e <= 1000) {
		return fault.New(fault.InvalidArgument, "the landmarks' error is %g mm; give how exactly they were marked, above 0 and at most 1000", e)
	}
	for i, l := range p.Landmarks {
		for _, side := range []struct {
			name  string
			at    [3]float64
			image *volume.Volume
		}{{"fixed", l.Fixed, p.Fixed}, {"moving", l.Moving, p.Moving}} {
			for _, x := range side.at {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					return fault.New(fault.InvalidArgument, "the %s landmark %s lies at %v; each needs three finite numbers", side.name, p.name(i), side.at)
				}
			}
			index := side.image.PhysicalToIndex().Apply(side.at)
			for a, n := range side.image.Size {
				if index[a] < -float64(n) || index[a] > float64(2*n) {
					return fault.New(fault.InvalidArgument, "the %s landmark %s lies at (%.1f, %.1f, %.1f), far outside the %s image; landmarks are LPS mm of their own image", side.name, p.name(i), side.at[0], side.at[1], side.at[2], side.name)
				}
			}
		}
	}
	return nil
}

// startsFrom is where the alignment starts: the caller's transform or, without one, what fits the landmarks.
func (r *registration) startsFrom() *volume.Affine {
	if r.pair.Initial == nil && r.begun == nil && r.opt.Initial != string(align.None) {
		return r.laid
	}
	return r.pair.Initial
}

// layLandmarks fits the landmarks and tells which contradict the rest.
func (r *registration) layLandmarks() {
	given := r.pair.Landmarks
	if len(given) == 0 {
		return
	}
	pairs := make([]landmark.Pair, len(given))
	for i, l := range given {
		pairs[i] = landmark.Pair{Fixed: l.Fixed, Moving: l.Moving}
	}
	m := &LandmarkMetrics{Count: len(given), ErrorMM: r.pair.LandmarkError, LeftOut: []string{}}
	wrong := landmark.Contradictory(pairs, r.pair.LandmarkError)
	for i, p := range pairs {
		if len(wrong) > 0 && wrong[0] == i {
			wrong = wrong[1:]
			m.LeftOut = append(m.LeftOut, r.pair.name(i))
			continue
		}
		r.landmarks = append(r.landmarks, p)
	}
	if n := len(m.LeftOut); n > 0 {
		r.warn(fmt.Sprintf("Landmarks that contradict the others were left out: %s. Check that both points of each mark the same place.", strings.Join(m.LeftOut, ", ")))
	}
	laid := landmark.Fit(r.landmarks, r.opt.Initial == string(align.Affine))
	if math.Abs(laid.Det()) > 1e-3 {
		r.laid = &laid
	}
	before := volume.IdentityAffine()
	if r.pair.Initial != nil {
		before = *r.pair.Initial
	}
	m.BeforeMM = landmark.RMS(r.landmarks, before)
	r.metrics.LandmarkFit = m
}

// leadsAstray says whether the landmarks lie so much farther apart under a start than under what fits them that the images led it astray.
func (r *registration) leadsAstray(start volume.Affine) bool {
	if r.laid == nil || r.pair.Initial != nil {
		return false
	}
	const worse, tail = 1.5, 2
	return landmark.RMS(r.landmarks, start) > float64(worse*landmark.RMS(r.landmarks, *r.laid))+float64(tail*r.pair.LandmarkError)
}

// keepToLandmarks brings the result to the landmarks, as nearly as their error allows, by a displacement that is as smooth as they let it be. The
// refinement goes on from there, for what lies between them, and they are brought together again.
func (r *registration) keepToLandmarks() error {
	m := r.metrics.LandmarkFit
	m.InitialMM, m.ImagesMM = landmark.RMS(r.landmarks, r.initial), r.landmarksApart()
	if r.pull() && r.iterations() > 0 && r.roughness != (refine.Regularisation{}) {
		pulled := r.deform
		u, _, err := refine.Run(r.ctx, r.canonical, pulled, r.roughness, r.refineOptions())
		if err != nil {
			return err
		}
		judge := r.judges()
		if worthwhile(judge.Compare(judge.Look(r.initial, pulled), judge.Look(r.initial, u))) {
			r.deform = u
			r.pull()
		}
		r.end = judge.Look(r.initial, r.deform)
	}
	m.AfterMM = r.landmarksApart()
	return nil
}

// landmarksApart is the root mean square distance of the landmarks under what was found so far, mm.
func (r *registration) landmarksApart() float64 {
	sum := 0.0
	for i, at := range r.carried() {
		d := landmark.Pair{Fixed: at, Moving: r.landmarks[i].Moving}.Distance(r.initial)
		sum += float64(d * d)
	}
	return math.Sqrt(sum / float64(len(r.landmarks)))
}

// carried returns where the deformation takes the fixed landmarks, before the initial transform.
func (r *registration) carried() [][3]float64 {
	points := make([]float64, 0, 3*len(r.landmarks))
	for _, l := range r.landmarks {
		points = append(points, l.Fixed[:]...)
	}
	if r.deform != nil {
		r.deform.TransformPoints(points)
	}
	out := make([][3]float64, len(r.landmarks))
	for i := range out {
		copy(out[i][:], points[3*i:])
	}
	return out
}

// pull adds to the deformation what brings the landmarks together, and says whether there was anything to add.
func (r *registration) pull() bool {
	back, err := r.initial.Inverse()
	if err != nil { // it was checked
		return false
	}
	at, missing := make([][3]float64, len(r.landmarks)), make([][3]float64, len(r.landmarks))
	for i, carried := range r.carried() {
		at[i] = r.landmarks[i].Fixed
		to := back.Apply(r.landmarks[i].Moving)
		for a := range 3 {
			missing[i][a] = to[a] - carried[a]
		}
	}
	g := r.canonical.Fixed.Geometry
	extent := 0.0
	for a, n := range g.Size {
		extent = max(extent, float64(n)*g.Spacing[a])
	}
	pull := landmark.NewPull(at, missing, r.pair.LandmarkError, extent)
	if pull == nil {
		return false
	}
	m := r.metrics.LandmarkFit
	m.ReachMM = pull.Reach()
	const nodes = 64 // along the longest side
	coarse := r.canonical.Grid(max(extent/nodes, m.ReachMM/16))
	sampled := field.FromMM(coarse, pull.Sample(coarse, r.opt.Threads), r.opt.Threads)
	if r.deform == nil {
		r.deform = sampled
	} else {
		more := sampled.Resample(r.deform.Geometry, r.opt.Threads)
		whole := field.New(r.deform.Geometry)
		for i := range whole.Data {
			whole.Data[i] = r.deform.Data[i] + more.Data[i]
		}
		r.deform = whole
	}
	r.deform.Unfold(minJacobian, r.opt.Threads)
	return true
}
