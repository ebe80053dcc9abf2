package engine

import "testing"

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
		{"a head upside down, turned back", func(m *Metrics) { m.Align.Turn = 178 }, Check},
		{"one body, torn at a sector's edge", func(m *Metrics) { m.Plan.Agreement, m.JacobianMin, m.JacobianMax = 0.93, 0.05, 9 }, Check},
		{"one body, resected", func(m *Metrics) { m.Plan.Agreement, m.JacobianMin, m.JacobianMax = 0.95, 0.17, 4 }, Good},
		{"two people's hippocampi, much alike", func(m *Metrics) { m.Plan.Agreement, m.JacobianMin, m.JacobianMax = 0.85, 0.05, 5 }, Good},
		{"two people's heads, whose detail is followed", func(m *Metrics) { m.Plan.Agreement, m.JacobianMin, m.JacobianMax = 0.72, 0.01, 15 }, Good},
		{"hardly a part in common", func(m *Metrics) { m.Referee.Common = 0.05 }, Failed},
		{"fields of view that hardly overlap", func(m *Metrics) { m.Align.Overlap = 0.2 }, Check},
		{"an alignment that is not sure", func(m *Metrics) { m.Align.Confidence = 0.01 }, Check},
		{"folds", func(m *Metrics) { m.NJDPercent = 2 }, Check},
		{"worse than before", func(m *Metrics) { m.SimilarityAfter, m.Referee.Gain = 0.1, 0.02 }, Check},
		{"MR and CT, of less mutual information and closer by the referee", func(m *Metrics) { m.SimilarityAlign, m.SimilarityAfter = 1.136, 1.124 }, Good},
	} {
		m := good
		c.change(&m)
		v := verdict(m.Referee, ofVolumes, append(startDoubts(m.Align), doubts(m, true)...), 1)
		if v.Grade != c.want || (v.Grade == Good) != (len(v.Reasons) == 0) {
			t.Errorf("%s: %s because %q, want %s", c.name, v.Grade, v.Reasons, c.want)
		}
		if m.Referee.ReachMM > 0 && v.ErrorMM != m.Referee.ReachMM {
			t.Errorf("%s: an error of %g mm, and it could be moved by %g", c.name, v.ErrorMM, m.Referee.ReachMM)
		}
		if !(v.ErrorMM > 0) {
			t.Errorf("%s: an error of %g mm", c.name, v.ErrorMM)
		}
	}
}
