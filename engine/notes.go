package engine

import (
	"time"

	"github.com/morphseek/morphseek/engine/internal/plan"
)

// notes are what a registration will say of itself. Stages write them. What decides reads a state's facts, never the
// notes.
type notes struct {
	metrics Metrics
	doubts  []string // of the stages, for the verdict
}

func newNotes(opt Options) *notes {
	return &notes{metrics: Metrics{
		Model: "none", Device: "cpu", Seed: opt.Seed, Threads: opt.Threads,
		Steps: []StepMetrics{}, Seconds: map[string]float64{}, Warnings: []string{}, Plan: PlanMetrics{Reasons: []string{}, Facts: map[string]float64{}},
	}}
}

// warn adds warnings.
func (n *notes) warn(texts ...string) { n.metrics.Warnings = append(n.metrics.Warnings, texts...) }

// because adds a reason of the plan; "" is none.
func (n *notes) because(why string) {
	if why != "" {
		n.metrics.Plan.Reasons = append(n.metrics.Plan.Reasons, why)
	}
}

// start notes where the deformable stages start.
func (n *notes) start(word string) { n.metrics.Plan.Start = word }

// undeformed notes that nothing of the search and the refinement is left.
func (n *notes) undeformed() { n.metrics.Plan.Search, n.metrics.Plan.SmoothnessMM = 0, 0 }

// refined notes how the refinement went, and in which regime.
func (n *notes) refined(m RefineMetrics, by plan.Regime, smoothnessMM, agreement float64) {
	n.metrics.Refine = m
	p := &n.metrics.Plan
	p.Similarity, p.Regime, p.SmoothnessMM, p.Agreement = m.Similarity, by.Name, smoothnessMM, agreement
	n.because(by.Why)
}

// took notes how long a stage took.
func (n *notes) took(stage string, since time.Time) {
	n.metrics.Seconds[stage] = time.Since(since).Seconds()
}

// network notes which network ran, and where.
func (n *notes) network(name, device string) { n.metrics.Model, n.metrics.Device = name, device }
