package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/volume"
)

// lookBeforeNetwork leaves the network out where it would make the error of points larger: between two contrasts, where
// it is made for one, and where a smooth fit shows one body, for it is made for two people.
func (p *problem) lookBeforeNetwork(e *env, st state) (proposal, error) {
	o, alone := p.opt.plan(), st
	alone.facts.Network = false
	var why, short string
	switch m := p.net.Manifest; {
	case !suits(m, st.facts):
		short = "the images are of two contrasts, and it is made for one"
		why = fmt.Sprintf("the images are of two contrasts, and the network %s is made for one (%s): it is left out", m.Name, m.Modality)
	default:
		var err error
		if alone, err = p.fit(e, alone, false); err != nil {
			return proposal{}, err
		}
		if !alone.facts.IsOneBody(o) {
			return proposal{state: st}, nil
		}
		short = "the images look like those of one body, and it is made for two people"
		why = fmt.Sprintf("after a first, smooth fit the images correlate by %.2f (0 to 1), as those of one body: the network %s, which is made for two people, is left out",
			alone.facts.Agreement.Correlation, m.Name)
	}
	e.notes.because(why)
	e.notes.warn(fmt.Sprintf("The network %s did not run: %s. To run it all the same, set search off and refine 0.", p.net.Name, short))
	e.notes.network("none", "cpu")
	return proposal{state: alone}, nil
}

// network runs the step graph T times on the network grid, each time keeping the best trajectory.
func (p *problem) network(e *env, st state) (proposal, error) {
	m, threads := p.net.Manifest, p.opt.Threads
	checkContrasts(e.notes, m, st.facts)
	grid := m.Grid(p.fixed.Geometry)
	fixed := p.input(p.fixed, p.net.windows[0], grid, volume.IdentityAffine())
	moving := p.input(p.moving, p.net.windows[1], grid, st.initial)
	u := field.New(grid)
	if st.deform != nil {
		u = st.deform.Resample(grid, threads)
	}
	n := len(u.Data)

	trajectories, tau := p.opt.Trajectories, p.opt.Tau
	if trajectories == 1 {
		tau = 0
	}
	steps := p.opt.Steps
	if steps == 0 {
		steps = m.Steps
	}
	run := 1 // steps: on the CPU nothing is copied, and the user hears of each
	if p.net.Loops && p.net.runner.Device() != "cpu" {
		run = steps
	}
	s := network.NewStep(m, [3]int{grid.Size[2], grid.Size[1], grid.Size[0]}, run, trajectories)
	s.Fixed, s.Moving, s.Previous, s.Tau = fixed.Data, moving.Data, u.Data, float32(tau)
	if p.opt.Uncertainty == "on" {
		st.network = &networkInput{fixed.Data, moving.Data, field.Over(grid, slices.Clone(u.Data)), steps}
	}
	latent := len(s.LogSigma) / run
	for t := 0; t < steps; t += run {
		e.report.at(float64(t)/float64(steps), "network %s on %s, step %d of %d", m.Name, p.net.runner.Device(), t+run, steps)
		began := time.Now()
		s.First = t
		for k := range run {
			network.Sample(s.Epsilon[k*trajectories*latent:(k+1)*trajectories*latent], trajectories, p.opt.Seed, t+k)
		}
		if err := p.step(e, s); err != nil {
			return proposal{}, err
		}
		best, rows := 0, make([]StepMetrics, run)
		for k := range rows {
			row, err := p.choose(s, k, t+k+1)
			if err != nil {
				return proposal{}, err
			}
			best, rows[k] = row.Trajectory, row
		}
		copy(u.Data, s.U[best*n:(best+1)*n])
		stats := u.Stats(threads)
		if math.IsNaN(stats.DisplacementMaxMM) || math.IsInf(stats.DisplacementMaxMM, 0) {
			return proposal{}, fault.New(fault.RuntimeFailed, "model %s gives a displacement that is not finite in step %d; it does not fit these images or is damaged", m.Name, t+run)
		}
		rows[run-1].NJDPercent = stats.NJDPercent
		for k := range rows {
			rows[k].Seconds = time.Since(began).Seconds() / float64(run)
		}
		e.notes.metrics.Steps = append(e.notes.metrics.Steps, rows...)
	}
	return proposal{state: p.deformed(st, u)}, nil
}

// choose returns the best trajectory of step k of a run, which is the number-th of the registration, and how it was
// found.
func (p *problem) choose(s *network.Step, k, number int) (StepMetrics, error) {
	first := k * s.J
	rewards := s.Reward[first : first+s.J]
	best := network.Best(rewards)
	if best < 0 {
		return StepMetrics{}, fault.New(fault.RuntimeFailed, "model %s gives no usable reward in step %d; it does not fit these images or is damaged", p.net.Name, number)
	}
	step := StepMetrics{Reward: float64(rewards[best]), Trajectory: best, NJDPercent: float64(s.NJD[first+best])}
	if s.J == 1 {
		return step, nil
	}
	step.Advantage = network.Advantages(rewards)[best]
	if p.opt.Tau > 0 {
		latent := len(s.LogSigma) / s.T
		epsilon := s.Epsilon[(first+best)*latent : (first+best+1)*latent]
		step.LogLikelihood = network.LogLikelihood(epsilon, s.LogSigma[k*latent:(k+1)*latent], p.opt.Tau)
	}
	return step, nil
}

// step runs the step graph. Where device auto chose a GPU and it fails (its memory is small, say), the CPU takes over.
func (p *problem) step(e *env, s *network.Step) error {
	err := p.net.runner.Run(e.ctx, s)
	if err == nil || p.opt.Device != "auto" || p.net.runner.Device() == "cpu" || fault.CodeOf(err) == fault.Cancelled {
		return err
	}
	runner, _, failed := e.sessions.Get(p.net.Model, "cpu", p.opt.Threads)
	if failed != nil {
		return failed
	}
	e.notes.warn("The GPU failed, so the network ran on the CPU: " + err.Error())
	e.notes.network(p.net.Name, runner.Device())
	p.net.runner = runner
	return runner.Run(e.ctx, s)
}

// input returns v on the network grid, read through the map a and normalised as the model wants it, by the window of
// the original.
func (p *problem) input(v *volume.Volume, window []float64, grid volume.Geometry, a volume.Affine) *volume.Volume {
	in := p.net.Intensity
	// The background is put in before normalisation: as the intensity that becomes it.
	background := window[0] + float64((in.Background-in.Out[0])/(in.Out[1]-in.Out[0])*(window[1]-window[0]))
	out := v.ResampleClosed(grid, a, float32(background), p.opt.Threads)
	in.Normalise(out, window[0], window[1])
	return out
}
