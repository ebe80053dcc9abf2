package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// The verdict, kind by kind: what was measured of such pairs, and what they must be called.
func TestVerdict(t *testing.T) {
	good := Metrics{
		SimilarityBefore: 0.2, SimilarityAlign: 0.4, SimilarityAfter: 0.7, JacobianMin: 0.4, JacobianMax: 2,
		Align:   AlignMetrics{Method: "affine", Score: 0.8, Confidence: 1, Overlap: 0.9, SameModality: true},
		Referee: RefereeMetrics{Gain: 1, Correlation: 0.9, Start: 0.8, End: 3, Common: 0.9},
	}
	for _, c := range []struct {
		name   string
		change func(*Metrics)
		want   string
	}{
		{"one head seen twice", func(m *Metrics) {}, Good},
		{"two people's abdomens, MR and CT", func(m *Metrics) {
			m.Align.Score, m.Align.SameModality = 0.4, false
			m.SimilarityBefore, m.SimilarityAlign, m.SimilarityAfter = 1.02, 1.07, 1.1
			m.Referee = RefereeMetrics{Gain: 0.4, Correlation: 0.25, Start: 0.3, End: 0.5, Common: 0.6}
		}, Good},
		{"noise", func(m *Metrics) {
			m.Referee = RefereeMetrics{Correlation: 0.02, Start: 0.01, End: 0.01, ReachMM: 20, Common: 1}
		}, Failed},
		{"smooth noise, which a deformation fits", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 0.3, Correlation: 0.14, Start: 0.01, End: 0.14, Common: 0.95}
		}, Failed},
		{"ultrasound and MR", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 0.5, Correlation: 0.43, Start: 0.04, End: 0.378, Common: 0.95, Mirrored: 0.116, Axis: "left and right"}
		}, Check},
		{"ultrasound aligned to the wrong half of a prostate in MR", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 0.5, Correlation: 0.5, Start: 0.214, Common: 0.95, Mirrored: -0.186, Axis: "left and right"}
		}, Check},
		{"noise as smooth as tissue", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 0.7, Correlation: 0.46, Start: 0.04, End: 0.346, Common: 0.9}
		}, Failed},
		{"a mirrored abdomen", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 0.4, Correlation: 0.6, Start: 0.7, Common: 0.9, ReachMM: 60, Mirrored: 0.1, Axis: "left and right"}
		}, Failed},
		{"two people's heads, nearly their own mirror images", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 1, Correlation: 0.6, Start: 1.3, Common: 0.9, Mirrored: -0.06, Axis: "left and right"}
		}, Good},
		{"a head and the mirror image of another one", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 1, Correlation: 0.89, Start: 1.7, Common: 0.97, ReachMM: 46, Mirrored: 0.05, Axis: "left and right"}
		}, Failed},
		{"a head and another one", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 1, Correlation: 0.9, Start: 1.8, Common: 0.97, Mirrored: 0.002, Axis: "left and right"}
		}, Good},
		{"a head and another one, as each should be", func(m *Metrics) {
			m.Referee = RefereeMetrics{Gain: 1, Correlation: 0.9, Start: 1.8, Common: 0.97, Mirrored: 0.039, Axis: "left and right"}
		}, Check},
		{"a head upside down, turned back", func(m *Metrics) { m.Align.Turn, m.Referee.Mirrored = 178, -0.2 }, Check},
		{"a mouse upside down, not its own mirror image", func(m *Metrics) { m.Align.Turn, m.Referee.Mirrored = 178, -0.6 }, Good},
		{"a head on its side", func(m *Metrics) { m.Align.Turn, m.Referee.Mirrored = 95, -0.2 }, Good},
		{"a pose in which little agrees", func(m *Metrics) { m.Align.Score, m.Align.Confidence = 0.3, 0.6 }, Check},
		{"two people's abdomens, MR and CT, far ahead of all other poses", func(m *Metrics) { m.Align.Score, m.Align.Confidence = 0.33, 0.92 }, Good},
		{"one body, torn at a sector's edge", func(m *Metrics) { m.Plan.Agreement, m.JacobianMin, m.JacobianMax = 0.93, 0.05, 9 }, Check},
		{"one body, resected", func(m *Metrics) { m.Plan.Agreement, m.JacobianMin, m.JacobianMax = 0.95, 0.17, 4 }, Good},
		{"two people's hippocampi, much alike", func(m *Metrics) { m.Plan.Agreement, m.JacobianMin, m.JacobianMax = 0.85, 0.05, 5 }, Good},
		{"two people's heads, whose detail is followed", func(m *Metrics) { m.Plan.Agreement, m.JacobianMin, m.JacobianMax = 0.72, 0.01, 15 }, Good},
		{"two contrasts that lay right, searched", func(m *Metrics) {
			m.Plan = PlanMetrics{Similarity: "mind", Search: 1, Facts: map[string]float64{"from": 0.41}}
		}, Check},
		{"two contrasts that lay apart, searched", func(m *Metrics) { m.Plan = PlanMetrics{Similarity: "mind", Search: 1} }, Good},
		{"two contrasts that lay right", func(m *Metrics) {
			m.Plan = PlanMetrics{Similarity: "mind", Facts: map[string]float64{"from": 0.68}}
		}, Good},
		{"one contrast that lay right, searched", func(m *Metrics) {
			m.Plan = PlanMetrics{Similarity: "ncc", Search: 1, Facts: map[string]float64{"from": 0.9}}
		}, Good},
		{"hardly a part in common", func(m *Metrics) { m.Referee.Common = 0.05 }, Failed},
		{"fields of view that hardly overlap", func(m *Metrics) { m.Align.Overlap = 0.2 }, Check},
		{"an alignment that is not sure", func(m *Metrics) { m.Align.Confidence = 0.01 }, Check},
		{"two places that fit", func(m *Metrics) { m.Align.Confidence, m.Align.RivalMM = 0.01, 104 }, Check},
		{"two places that fit, of frames of one scan that no alignment brought closer", func(m *Metrics) {
			m.Align.Confidence, m.Align.RivalMM, m.Align.Score = 0.01, 400, 0.2
			m.Plan = PlanMetrics{Similarity: "mind", Facts: map[string]float64{"from": 0.42}}
		}, Good},
		{"two places that fit, of two people in place", func(m *Metrics) {
			m.Align.Confidence, m.Align.RivalMM = 0.01, 400
			m.Plan = PlanMetrics{Similarity: "mind", Facts: map[string]float64{"from": 0.34}}
		}, Check},
		{"folds", func(m *Metrics) { m.NJDPercent = 2 }, Check},
		{"worse than before", func(m *Metrics) { m.SimilarityAfter, m.Referee.Gain = 0.1, 0.02 }, Check},
		{"MR and CT, of less mutual information and closer by the referee", func(m *Metrics) { m.SimilarityAlign, m.SimilarityAfter = 1.136, 1.124 }, Good},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := good
			c.change(&m)
			v := verdict(m.Referee, ofVolumes, append(startDoubts(m, false), doubts(m, true)...), 1)
			if v.Grade != c.want || (v.Grade == Good) != (len(v.Reasons) == 0) {
				t.Errorf("%s because %q, want %s", v.Grade, v.Reasons, c.want)
			}
			if m.Referee.ReachMM > 0 && v.ErrorMM != m.Referee.ReachMM {
				t.Errorf("an error of %g mm, and it could be moved by %g", v.ErrorMM, m.Referee.ReachMM)
			}
			if !(v.ErrorMM > 0) {
				t.Errorf("an error of %g mm", v.ErrorMM)
			}
		})
	}
}

// What the readers of the files doubted reaches the result, and not what the cache keeps.
func TestDoubts(t *testing.T) {
	const doubt = "fixed: head.nii says two places."
	e := open(t, Config{})
	pair := Pair{Fixed: blob([3]int{20, 18, 16}, 0), Moving: blob([3]int{20, 18, 16}, 1)}
	opt := with(func(o *Options) { o.Cache = t.TempDir() })
	plain := register(t, e, pair, opt)
	for _, c := range []struct {
		name   string
		doubts []string
		grade  string
	}{
		{"doubted, from the cache", []string{doubt}, Check},
		{"not doubted, from the cache", nil, plain.Metrics.Verdict.Grade},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := pair
			pair.Doubts = c.doubts
			m := register(t, e, pair, opt).Metrics
			if !m.Cached || m.Verdict.Grade != c.grade {
				t.Errorf("cached %v, grade %s; want true, %s", m.Cached, m.Verdict.Grade, c.grade)
			}
			if slices.Contains(m.Warnings, doubt) != (c.doubts != nil) || slices.Contains(m.Verdict.Reasons, doubt) != (c.doubts != nil) {
				t.Errorf("warnings %q, reasons %q", m.Warnings, m.Verdict.Reasons)
			}
		})
	}
	var m Metrics
	m.Verdict.Grade = Failed
	if m.doubt([]string{doubt}); m.Verdict.Grade != Failed {
		t.Errorf("a failed result became %s by a doubt", m.Verdict.Grade)
	}
}

// Images of nothing in common are laid somewhere all the same, and the alignment may be sure of the place.
func TestUnrelatedImagesAreTold(t *testing.T) {
	t.Parallel()
	size := [3]int{32, 32, 32}
	textured := func(seed uint64) *volume.Volume {
		rng := rand.New(rand.NewPCG(seed, 1))
		v := testkit.Drawn(testkit.Grid(size), rng.NormFloat64)
		s := [3]float64{1.5, 1.5, 1.5}
		filter.Gaussian(size, s, 1, 0, filter.From(size, slices.Clone(v.Data)), filter.To(size, v.Data))
		return v
	}
	inverted := textured(1)
	for i, x := range inverted.Data {
		inverted.Data[i] = -x * x * x
	}
	for _, c := range []struct {
		name   string
		moving *volume.Volume
		told   bool
	}{
		{"another texture", textured(2), true}, {"another contrast", inverted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := register(t, open(t, Config{}), Pair{Fixed: textured(1), Moving: c.moving}, with(nil))
			told := slices.ContainsFunc(r.Metrics.Warnings, func(w string) bool { return strings.Contains(w, "in common") })
			if r.Metrics.Align.SameModality || told != c.told {
				t.Errorf("similarity %.3f, one modality %v, warnings %q", r.Metrics.SimilarityAfter, r.Metrics.Align.SameModality, r.Metrics.Warnings)
			}
		})
	}
}

// An image and itself are what everybody tries first: nothing moves, and a warning asks whether that was meant.
func TestAnImageAndItself(t *testing.T) {
	t.Parallel()
	cone := func(x float64) *volume.Volume { // without a texture, and exact in float32
		g := testkit.Grid([3]int{32, 32, 32})
		return testkit.Filled(g, func(i int) float32 {
			return float32(max(0, 8-volume.Norm(volume.Sub(g.Point(i), [3]float64{x, 16, 16}))))
		})
	}
	body, _, _ := testkit.Phantom(32, 0, false)
	elsewhere := *body
	elsewhere.Origin[1] += 7
	for _, c := range []struct {
		name          string
		fixed, moving *volume.Volume
		initial       string
		most          float64 // displacement, mm
	}{
		{"itself", body, body, "affine", 0}, {"as it lies", body, body, "none", 0}, {"with another origin", body, &elsewhere, "rigid", 7.01},
		{"by whole voxels", cone(14), cone(18), "rigid", 4.01}, {"nearly", cone(14), cone(18), "affine", 4.1},
	} {
		m := register(t, open(t, Config{}), Pair{Fixed: c.fixed, Moving: c.moving}, with(func(o *Options) { o.Initial = c.initial })).Metrics
		if told := slices.Contains(m.Warnings, sameImage); told != (c.moving == c.fixed) {
			t.Errorf("%s: warnings %q", c.name, m.Warnings)
		}
		if v := m.Verdict; v.Grade != "good" || v.ErrorMM > 1 || m.Referee.Common < 0.7 || m.DisplacementMax > c.most {
			t.Errorf("%s: %+v, %+v, moved %g mm", c.name, v, m.Referee, m.DisplacementMax)
		}
	}
}

// A body that is its own mirror image is not called mirrored because its mirror image was aligned better.
func TestABallIsNotMirrored(t *testing.T) {
	t.Parallel()
	ball := func(radius float64) *volume.Volume {
		g := testkit.Grid([3]int{32, 32, 32})
		return testkit.Filled(g, func(i int) float32 {
			if volume.Distance(g.Point(i), [3]float64{16, 16, 16}) < radius {
				return 1
			}
			return 0
		})
	}
	opt := DefaultOptions()
	opt.Model = "none"
	m := register(t, open(t, Config{}), Pair{Fixed: ball(7), Moving: ball(9)}, opt).Metrics
	if m.Verdict.Grade == "failed" || m.Referee.Mirrored > asMirrored {
		t.Errorf("%+v, %+v", m.Verdict, m.Referee)
	}
}

// A small field of view that lies where it belongs shares all that it shows, however little that is of the other image.
func TestASmallFieldOfView(t *testing.T) {
	fixed, moving, _ := testkit.Phantom(56, 0, false)
	box := volume.Geometry{Size: [3]int{22, 22, 22}, Spacing: [3]float64{1, 1, 1}, Origin: [3]float64{14, 17, 16}, Direction: volume.Identity}
	part := moving.Resample(box, volume.IdentityAffine(), volume.Linear, 0, 1)
	e := open(t, Config{})
	for _, c := range []struct {
		name string
		pair Pair
	}{
		{"moving", Pair{Fixed: fixed, Moving: part}},
		{"fixed", Pair{Fixed: part, Moving: fixed}},
	} {
		r := register(t, e, c.pair, with(nil))
		if common, grade := r.Metrics.Referee.Common, r.Metrics.Verdict.Grade; common < 0.9 || grade == Failed {
			t.Errorf("%s: %s: they share %.2f: %q", c.name, grade, common, r.Metrics.Verdict.Reasons)
		}
	}
}
