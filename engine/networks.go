package engine

import (
	"math"
	"slices"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/policy"
	"github.com/morphseek/morphseek/engine/volume"
)

// model resolves the model option; nil is none. Until a network that does not depend on the contrast is built in, "default" is none:
// a network is only as good as its match with the images, and only the user knows that a built-in one was trained on such.
func (e *Engine) model(name string) (*network.Model, error) {
	if name == "none" || name == "default" {
		return nil, nil
	}
	return network.Load(name, e.cfg.ModelDir)
}

// network runs the step graph T times on the network grid, each time keeping the best trajectory.
func (r *registration) network() error {
	m, threads := r.model.Manifest, r.opt.Threads
	grid := m.Grid(r.fixed.Geometry)
	fixed := r.input(r.fixed, r.pair.Fixed, grid, volume.IdentityAffine())
	moving := r.input(r.moving, r.pair.Moving, grid, r.initial)
	u := r.deformOn(grid)
	n := len(u.Data)

	trajectories, tau := r.opt.Trajectories, r.opt.Tau
	if trajectories == 1 {
		tau = 0
	}
	steps := r.opt.Steps
	if steps == 0 {
		steps = m.Steps
	}
	run := 1 // steps: on the CPU nothing is copied, and the user hears of each
	if r.model.Loops && r.runner.Device() != "cpu" {
		run = steps
	}
	s := network.NewSteps(m, [3]int{grid.Size[2], grid.Size[1], grid.Size[0]}, run, trajectories)
	s.Fixed, s.Moving, s.Previous, s.Tau = fixed.Data, moving.Data, u.Data, float32(tau)
	if r.opt.Uncertainty == "on" {
		r.networkInput = &networkInput{fixed.Data, moving.Data, field.Over(grid, slices.Clone(u.Data)), steps}
	}
	latent := len(s.LogSigma) / run
	for t := 0; t < steps; t += run {
		r.report.at(float64(t)/float64(steps), "network %s on %s, step %d of %d", m.Name, r.runner.Device(), t+run, steps)
		began := time.Now()
		s.First = t
		for k := range run {
			policy.Sample(s.Epsilon[k*trajectories*latent:(k+1)*trajectories*latent], trajectories, r.opt.Seed, t+k)
		}
		if err := r.step(s); err != nil {
			return err
		}
		best := 0
		for k := range run {
			first := k * trajectories
			rewards := s.Reward[first : first+trajectories]
			if best = policy.Best(rewards); best < 0 {
				return fault.New(fault.RuntimeFailed, "model %s gives no usable reward in step %d; it does not fit these images or is damaged", m.Name, t+k+1)
			}
			step := StepMetrics{Reward: float64(rewards[best]), Trajectory: best, NJDPercent: float64(s.NJD[first+best])}
			if trajectories > 1 {
				group := make([]float64, trajectories)
				for j, x := range rewards {
					group[j] = float64(x)
				}
				step.Advantage = policy.Advantages(group)[best]
				if tau > 0 {
					epsilon := s.Epsilon[(first+best)*latent : (first+best+1)*latent]
					step.LogLikelihood = policy.LogLikelihood(epsilon, s.LogSigma[k*latent:(k+1)*latent], tau, policy.SqrtN)
				}
			}
			r.metrics.Steps = append(r.metrics.Steps, step)
		}
		copy(u.Data, s.U[best*n:(best+1)*n])
		stats := u.Stats(threads)
		if math.IsNaN(stats.DisplacementMaxMM) || math.IsInf(stats.DisplacementMaxMM, 0) {
			return fault.New(fault.RuntimeFailed, "model %s gives a displacement that is not finite in step %d; it does not fit these images or is damaged", m.Name, t+run)
		}
		done := r.metrics.Steps[t:]
		done[run-1].NJDPercent = stats.NJDPercent
		for k := range done {
			done[k].Seconds = time.Since(began).Seconds() / float64(run)
		}
	}
	r.deform = u
	return nil
}

// step runs the step graph. Where device auto chose a GPU and it fails (its memory is small, say), the CPU takes over.
func (r *registration) step(s *network.Step) error {
	err := r.runner.Run(r.ctx, s)
	if err == nil || r.opt.Device != "auto" || r.runner.Device() == "cpu" || fault.CodeOf(err) == fault.Cancelled {
		return err
	}
	runner, _, failed := r.engine.sessions.Get(r.model, "cpu", r.opt.Threads)
	if failed != nil {
		return failed
	}
	r.warn("The GPU failed, so the network ran on the CPU: " + err.Error())
	r.runner, r.metrics.Device = runner, runner.Device()
	return r.runner.Run(r.ctx, s)
}

// input returns v on the network grid, read through the map a and normalised as the model wants it, by the finite voxels of the
// original.
func (r *registration) input(v, original *volume.Volume, grid volume.Geometry, a volume.Affine) *volume.Volume {
	in := r.model.Intensity
	// The background is put in before normalisation: as the intensity that becomes it.
	p := original.Percentiles(in.Low, in.High)
	background := p[0] + float64((in.Background-in.Out[0])/(in.Out[1]-in.Out[0])*(p[1]-p[0]))
	out := v.ResampleClosed(grid, a, float32(background), r.opt.Threads)
	in.Normalise(out, p[0], p[1])
	return out
}

// deformOn returns the deformation so far on grid g.
func (r *registration) deformOn(g volume.Geometry) *field.Field {
	if r.deform == nil {
		return field.New(g)
	}
	return r.deform.Resample(g, r.opt.Threads)
}
