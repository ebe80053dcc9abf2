package engine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/align"
	"github.com/morphseek/morphseek/engine/internal/landmark"
	"github.com/morphseek/morphseek/engine/internal/referee"
	"github.com/morphseek/morphseek/engine/internal/refine"
	"github.com/morphseek/morphseek/engine/volume"
)

// Landmark is one point of the fixed image and where it is in the moving one, LPS mm.
type Landmark struct {
	Name          string // for messages; empty: its number
	Fixed, Moving [3]float64
}

// LandmarksOf returns landmarks from their numbers, fixed x, y, z, then moving, and from what they are called, where that is known.
func LandmarksOf(numbers [][6]float64, names []string) []Landmark {
	landmarks := make([]Landmark, len(numbers))
	for i, x := range numbers {
		landmarks[i] = Landmark{Fixed: [3]float64(x[:3]), Moving: [3]float64(x[3:])}
		if i < len(names) {
			landmarks[i].Name = names[i]
		}
	}
	return landmarks
}

// name is what messages call the i-th landmark.
func (p Pair) name(i int) string {
	if name := p.Landmarks[i].Name; name != "" {
		return name
	}
	return strconv.Itoa(i + 1)
}

// checkLandmarks reports the first fault of the landmarks, err being the option landmark_error.
func (p Pair) checkLandmarks(err float64) error {
	const most = 1000 // the matrix of their covariances is solved many times
	if n := len(p.Landmarks); n > most {
		return fault.New(fault.InvalidArgument, "%d pairs of landmarks are given; %d are the most that a registration keeps to: leave out those of the least use", n, most)
	}
	if len(p.Landmarks) > 0 && err == 0 {
		return fault.New(fault.InvalidArgument, "landmarks are given and landmark_error is 0; set it to how exactly they were marked, mm (1 to 2 for clear points), or leave them out")
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
	m := &LandmarkMetrics{Count: len(given), ErrorMM: r.opt.LandmarkError, LeftOut: []string{}}
	wrong := landmark.Contradictory(pairs, r.opt.LandmarkError)
	for i, p := range pairs {
		if slices.Contains(wrong, i) {
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
	m.BeforeMM = landmark.RMS(r.landmarks, r.header())
	r.metrics.LandmarkFit = m
}

// header is where the alignment starts without landmarks: the caller's transform, or how the headers lay the images.
func (r *registration) header() volume.Affine {
	if r.pair.Initial != nil {
		return *r.pair.Initial
	}
	return volume.IdentityAffine()
}

// From these distances on, a start counts as led astray by the images: the deformable stages do not reach so far (RATIONALE.md, Landmarks).
const (
	farApart     = 1.0 / 16 // of the image's longest side
	farApartFew  = 1.0 / 8  // by points that fix no rotation
	worseThanFit = 1.5      // times as far as where they are fitted
)

// leadsAstray says whether the images led a start astray: the landmarks lie much farther apart under it than under the transform that fits them.
func (r *registration) leadsAstray(start volume.Affine) bool {
	if r.laid == nil || r.begun != nil || r.opt.Initial == string(align.None) {
		return false
	}
	far := farApart
	if len(r.landmarks) < landmark.EnoughTurn {
		far = farApartFew
	}
	apart := landmark.RMS(r.landmarks, start)
	return apart > float64(far*r.extent())+r.opt.LandmarkError && apart > float64(worseThanFit*landmark.RMS(r.landmarks, *r.laid))
}

// bringBack aligns again from what fits the landmarks where the images led the alignment away from them, and takes that fit itself where they
// do so again.
func (r *registration) bringBack(found *align.Result, method align.Method) (*align.Result, error) {
	if !r.leadsAstray(found.Transform) {
		return found, nil
	}
	why := "the images led the initial alignment away from the landmarks: it starts from what fits these"
	r.metrics.Plan.Start, r.start, r.frames = "landmarks", referee.State{}, false
	if method == align.Rigid || method == align.Affine {
		again, err := r.alignBy(r.canonical, method, r.laid, nil)
		if err != nil {
			return nil, err
		}
		if !r.leadsAstray(again.Transform) {
			r.metrics.Plan.Start, r.found = string(method), &again.Transform
			r.because(why)
			return again, nil
		}
		why = "the images led the initial alignment away from the landmarks, from these, too: what fits them is taken"
	}
	kept, err := r.alignBy(r.canonical, align.None, r.laid, nil)
	if err != nil {
		return nil, err
	}
	kept.Confidence, kept.SameModality = 1, found.SameModality // the alignment's own confidence is of another place
	r.because(why)
	return kept, nil
}

// From these values on, the landmarks change the deformation that the images ask for (RATIONALE.md, Landmarks).
const (
	likelier = 6.0 // rise of the log-likelihood of what is missing at them
	tooLong  = 3.0 // displacement of one, in its errors and in voxels, from which on the images are looked at again
)

// keepToLandmarks brings the result to the landmarks where they say that the images were misled: by a displacement that is as smooth as they let
// it be. Where that is long the refinement goes on from there, for what lies between them. What their error explains changes nothing.
func (r *registration) keepToLandmarks() error {
	m := r.metrics.LandmarkFit
	m.InitialMM, m.ImagesMM = landmark.RMS(r.landmarks, r.initial), r.landmarksApart(r.deform)
	base := r.deform
	pull, likelihood := r.missing(base)
	if base != nil && base != r.begun && r.model == nil {
		if other, l := r.missing(nil); l > likelihood+likelier {
			base, pull = nil, other
			r.metrics.Plan.Search, r.metrics.Plan.SmoothnessMM = 0, 0
			r.because("the images led the deformation away from the landmarks: it starts again from the initial alignment")
		}
	}
	if pull == nil {
		r.because(fmt.Sprintf("the landmarks lie %.1f mm from where they belong without a pull: too little for their error of %g mm, or too uneven, to move what lies between them", r.landmarksApart(base), r.opt.LandmarkError))
		if base != r.deform {
			r.deform, r.end = base, referee.State{}
		}
		return nil
	}
	pulled := r.bring(base, pull)
	m.ReachMM, m.CrossMM = pull.Reach(), pull.Cross()
	r.because(fmt.Sprintf("the landmarks lay up to %.1f mm from where the images put them: each pulls over %.0f mm", pull.Longest(), pull.Reach()))
	g := r.canonical.Fixed.Geometry
	voxel := math.Cbrt(math.Abs(g.IndexToPhysical().Det()))
	if r.iterations() > 0 && r.roughness != (refine.Regularisation{}) && pull.Longest() > tooLong*max(voxel, r.opt.LandmarkError) {
		u, _, err := refine.Run(r.ctx, r.canonical, pulled, r.roughness, r.refineOptions())
		if err != nil {
			return err
		}
		judge := r.judges()
		closer := worthwhile(judge.Compare(judge.Look(r.initial, pulled), judge.Look(r.initial, u)))
		if apart := r.landmarksApart(u); closer && apart <= m.CrossMM {
			if pull, _ := r.missing(u); pull != nil {
				u = r.bring(u, pull)
			}
			pulled = u
			r.because("the refinement went on from there")
		}
	}
	r.deform, r.end = pulled, referee.State{}
	return nil
}

// extent is the longest side of the fixed image, mm.
func (r *registration) extent() (extent float64) {
	g := r.canonical.Fixed.Geometry
	for a, n := range g.Size {
		extent = max(extent, float64(n)*g.Spacing[a])
	}
	return extent
}

// landmarksApart is the root mean square distance of the landmarks under a deformation behind the initial transform, mm.
func (r *registration) landmarksApart(deform *field.Field) float64 {
	sum := 0.0
	for i, at := range r.carried(deform) {
		d := landmark.Pair{Fixed: at, Moving: r.landmarks[i].Moving}.Distance(r.initial)
		sum += float64(d * d)
	}
	return math.Sqrt(sum / float64(len(r.landmarks)))
}

// carried returns where a deformation takes the fixed landmarks.
func (r *registration) carried(deform *field.Field) [][3]float64 {
	points := make([]float64, 0, 3*len(r.landmarks))
	for _, l := range r.landmarks {
		points = append(points, l.Fixed[:]...)
	}
	if deform != nil {
		deform.TransformPoints(points)
	}
	out := make([][3]float64, len(r.landmarks))
	for i := range out {
		copy(out[i][:], points[3*i:])
	}
	return out
}

// missing returns what brings the landmarks together behind a deformation, nil where there is nothing to bring, and how likely that is.
func (r *registration) missing(deform *field.Field) (*landmark.Pull, float64) {
	back, err := r.initial.Inverse()
	if err != nil { // it was checked
		return nil, math.Inf(-1)
	}
	at, missing := make([][3]float64, len(r.landmarks)), make([][3]float64, len(r.landmarks))
	for i, carried := range r.carried(deform) {
		at[i] = r.landmarks[i].Fixed
		to := back.Apply(r.landmarks[i].Moving)
		for a := range 3 {
			missing[i][a] = to[a] - carried[a]
		}
	}
	return landmark.NewPull(at, missing, r.opt.LandmarkError, r.extent())
}

// bring returns a deformation with a pull added.
func (r *registration) bring(deform *field.Field, pull *landmark.Pull) *field.Field {
	const nodes, perReach = 64, 16 // along the longest side
	coarse := r.canonical.Grid(max(r.extent()/nodes, pull.Reach()/perReach))
	whole := field.FromMM(coarse, pull.Sample(coarse, r.opt.Threads), r.opt.Threads)
	if deform != nil {
		more := whole.Resample(deform.Geometry, r.opt.Threads)
		whole = field.New(deform.Geometry)
		for i := range whole.Data {
			whole.Data[i] = deform.Data[i] + more.Data[i]
		}
	}
	whole.Lock(r.lockedCanonical())
	whole.Unfold(minJacobian, r.opt.Threads)
	return whole
}

// measureLandmarks notes how the result keeps to the landmarks.
func (r *registration) measureLandmarks(total *field.Field) {
	if r.metrics.LandmarkFit == nil {
		return
	}
	sum, points := 0.0, make([]float64, 0, 3*len(r.landmarks))
	for _, l := range r.landmarks {
		points = append(points, l.Fixed[:]...)
	}
	total.TransformPoints(points)
	for i, l := range r.landmarks {
		for a := range 3 {
			d := points[3*i+a] - l.Moving[a]
			sum += float64(d * d)
		}
	}
	r.metrics.LandmarkFit.AfterMM = math.Sqrt(sum / float64(len(r.landmarks)))
}
