package engine

import (
	"math"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/internal/search"
	"github.com/morphseek/morphseek/engine/volume"
)

// policySamples is how many trajectories of the policy the uncertainty is taken from, where the option trajectories
// does not ask for several: the standard deviation of three components then has a standard error of about a tenth.
const policySamples = 16

// uncertainty finds the standard deviation of the displacement, mm, on the fixed grid.
func (p *problem) uncertainty(e *env, st state) (*volume.Volume, error) {
	var sd *volume.Volume
	var err error
	m := &UncertaintyMetrics{Source: "search"}
	if st.network != nil {
		m.Source, m.Samples = "policy", p.opt.Trajectories
		if m.Samples == 1 {
			m.Samples = policySamples
		}
		sd, err = p.policySpread(e, st, m.Samples)
	} else {
		sd, err = search.Uncertainty(e.ctx, p.under(st), st.deform, search.Options{
			Threads: p.opt.Threads, Locked: p.lockedCanonical(), Progress: e.progress,
		})
	}
	if err != nil {
		return nil, err
	}
	sd = sd.ResampleRepeated(p.fixed.Geometry, volume.IdentityAffine(), p.opt.Threads) // its grid covers what the fixed image shows
	m.MeanMM, m.P95MM = p.overBody(sd)
	e.notes.metrics.Uncertainty = m
	return sd, nil
}

// policySpread returns, on the network grid, the standard deviation of the total displacement, mm, over trajectories
// that each draw z = mu + tau sigma epsilon in every step and go on from their own field: the root of the sum of the
// three components' variances. (Welford's method, one trajectory at a time, so memory does not grow with their number.)
func (p *problem) policySpread(e *env, st state, samples int) (*volume.Volume, error) {
	in, threads := st.network, p.opt.Threads
	grid := in.start.Geometry
	s := network.NewStep(p.net.Manifest, [3]int{grid.Size[2], grid.Size[1], grid.Size[0]}, 1, 1)
	u, mean, sd := field.New(grid), field.New(grid), volume.Zeros(grid)
	s.Fixed, s.Moving, s.Previous, s.Tau = in.fixed, in.moving, u.Data, float32(p.opt.Tau)
	toMM := volume.Affine{M: st.initial.After(grid.IndexToPhysical()).M}
	for j := range samples {
		copy(u.Data, in.start.Data)
		for t := range in.steps {
			e.report.at((float64(j)+float64(t)/float64(in.steps))/float64(samples), "")
			network.Draw(s.Epsilon, p.opt.Seed, t, j+1)
			s.First = t
			if err := p.step(e, s); err != nil {
				return nil, err
			}
			copy(u.Data, s.U)
		}
		count := float32(j + 1)
		parallel.Each(len(sd.Data), 1<<14, threads, func(i int) {
			dx, dy, dz := u.X[i]-mean.X[i], u.Y[i]-mean.Y[i], u.Z[i]-mean.Z[i]
			mean.X[i] += dx / count
			mean.Y[i] += dy / count
			mean.Z[i] += dz / count
			mm := toMM.Apply([3]float64{float64(dx), float64(dy), float64(dz)})
			sd.Data[i] += float32(volume.Dot(mm, mm)) * (count - 1) / count
		})
	}
	for i, v := range sd.Data {
		sd.Data[i] = float32(math.Sqrt(float64(v) / float64(samples-1)))
		if !volume.IsFinite(sd.Data[i]) {
			return nil, fault.New(fault.RuntimeFailed, "model %s gives samples that are not finite; it does not fit these images or is damaged, or tau is too large", p.net.Name)
		}
	}
	return sd, nil
}
