package engine

import (
	"fmt"
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

const (
	// mostBeyond is how many times the voxels of a network's least grid it is run on, where these are more than plainGrid: a network for a
	// hippocampus would run for minutes over a torso, and its result there means nothing.
	mostBeyond, plainGrid = 64, 1 << 23
	// otherLength is the factor from which on a field of view or a voxel size differs too much from those that a network is made for.
	otherLength = 3
	// airOfCT is an intensity that CT has and MR has not.
	airOfCT = -200
)

// checkModel compares the images with what the manifest says that the network is made for: it warns where they differ, and refuses a grid
// that would take for ever.
func (r *registration) checkModel() error {
	m := r.model.Manifest
	least := m.MinSize
	if m.Size != nil {
		least = *m.Size
	}
	made := 1
	for _, n := range least {
		made *= max(n, 1)
	}
	if grid := m.Grid(r.fixed.Geometry); grid.Voxels() > max(plainGrid, mostBeyond*made) {
		return fault.New(fault.InvalidArgument,
			"model %s is made for images of about %s, the fixed volume is of %s, and the network would run on %d million voxels; crop the volumes to what it is made for, or choose another model",
			m.Name, inMM(m.Lengths()), inMM(extent(r.fixed.Geometry)), grid.Voxels()/1e6)
	}
	for _, image := range []struct {
		name string
		v    *volume.Volume
	}{{"fixed", r.fixed}, {"moving", r.moving}} {
		g, longer := image.v.Geometry, 0.0
		made, found := m.Lengths(), extent(g)
		coarser := 0.0
		for a := range 3 {
			if made[a] > 0 {
				longer = max(longer, found[a]/made[a])
			}
			if s := m.SpacingMM[2-a]; s != nil {
				coarser = max(coarser, g.Spacing[a] / *s)
			}
		}
		if longer > otherLength && min(made[0], made[1], made[2]) > 0 {
			r.warn(fmt.Sprintf("Model %s is made for images of about %s, and the %s volume is of %s: its result there means little; crop the volumes, or choose another model.",
				m.Name, inMM(made), image.name, inMM(found)))
		}
		if coarser > otherLength {
			r.warn(fmt.Sprintf("Model %s is made for finer voxels than those of the %s volume, of %.3g x %.3g x %.3g mm.", m.Name, image.name, g.Spacing[0], g.Spacing[1], g.Spacing[2]))
		}
		if low := image.v.Percentiles(1, 99)[0]; m.Modality == "mr" && low < airOfCT {
			r.warn(fmt.Sprintf("Model %s is made for MR, and the %s volume has intensities about %.0f, as CT has.", m.Name, image.name, low))
		}
	}
	return nil
}

// checkContrasts warns where a network for images of one kind meets two contrasts, which the alignment tells: it compares what it has learnt
// to see, and makes the error of points larger than without a network.
func (r *registration) checkContrasts() {
	m, a := r.model.Manifest, r.metrics.Align
	if m.Modality == "any" || m.Modality == "mr-ct" || intensitiesCompare(a.SameModality, a.Score) {
		return
	}
	r.warn(fmt.Sprintf("Model %s is made for two images of one contrast (%s), and these two seem to have different ones: points may end further off than without a network; leave it out, or choose another model.",
		m.Name, m.Modality))
}

// extent returns the lengths of a grid along its axes, mm.
func extent(g volume.Geometry) (mm [3]float64) {
	for a, n := range g.Size {
		mm[a] = float64(n) * g.Spacing[a]
	}
	return mm
}

func inMM(lengths [3]float64) string {
	return fmt.Sprintf("%.0f x %.0f x %.0f mm", lengths[0], lengths[1], lengths[2])
}

// network runs the step graph T times on the network grid, each time keeping the best trajectory.
func (r *registration) network() error {
	r.checkContrasts()
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
			step, err := r.choose(s, k, t+k+1)
			if err != nil {
				return err
			}
			best = step.Trajectory
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

// choose returns the best trajectory of step k of a run, which is the number-th of the registration, and how it was found.
func (r *registration) choose(s *network.Step, k, number int) (StepMetrics, error) {
	first := k * s.J
	rewards := s.Reward[first : first+s.J]
	best := policy.Best(rewards)
	if best < 0 {
		return StepMetrics{}, fault.New(fault.RuntimeFailed, "model %s gives no usable reward in step %d; it does not fit these images or is damaged", r.model.Name, number)
	}
	step := StepMetrics{Reward: float64(rewards[best]), Trajectory: best, NJDPercent: float64(s.NJD[first+best])}
	if s.J == 1 {
		return step, nil
	}
	group := make([]float64, s.J)
	for j, x := range rewards {
		group[j] = float64(x)
	}
	step.Advantage = policy.Advantages(group)[best]
	if r.opt.Tau > 0 {
		latent := len(s.LogSigma) / s.T
		epsilon := s.Epsilon[(first+best)*latent : (first+best+1)*latent]
		step.LogLikelihood = policy.LogLikelihood(epsilon, s.LogSigma[k*latent:(k+1)*latent], r.opt.Tau)
	}
	return step, nil
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
