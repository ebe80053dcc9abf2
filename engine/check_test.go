package engine

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func TestErrors(t *testing.T) {
	size := [3]int{16, 16, 16}
	nan := float32(math.NaN())
	filled := func(x float32) *volume.Volume {
		v := blob(size, 0)
		copy(v.Data, slices.Repeat([]float32{x}, len(v.Data)))
		return v
	}
	changed := func(change func(*volume.Volume)) *volume.Volume {
		v := blob(size, 0)
		change(v)
		return v
	}
	garbage := filepath.Join(t.TempDir(), "garbage.onnx")
	testkit.OK(t, os.WriteFile(garbage, []byte("not a model"), 0o600))
	e := open(t, Config{})
	for _, c := range []struct {
		name   string
		pair   func(*Pair)
		opt    func(*Options)
		want   fault.Code
		naming string // what the message must name
	}{
		{"no fixed", func(p *Pair) { p.Fixed = nil }, nil, fault.EmptyVolume, "fixed"},
		{"empty", func(p *Pair) { p.Moving = changed(func(v *volume.Volume) { v.Size[1] = 0 }) }, nil, fault.EmptyVolume, "moving"},
		{"short", func(p *Pair) { p.Moving = changed(func(v *volume.Volume) { v.Data = v.Data[1:] }) }, nil, fault.EmptyVolume, "moving"},
		{"all NaN", func(p *Pair) { p.Fixed = filled(nan) }, nil, fault.NonFiniteVolume, "fixed"},
		{"constant", func(p *Pair) { p.Fixed = filled(3) }, nil, fault.ConstantVolume, "fixed"},
		{"as good as constant", func(p *Pair) {
			p.Fixed = changed(func(v *volume.Volume) {
				for i := range v.Data {
					v.Data[i] *= 1e-38
				}
			})
		}, nil, fault.ConstantVolume, "fixed"},
		{"one slice", func(p *Pair) { p.Moving = blob([3]int{16, 16, 1}, 0) }, nil, fault.ThinVolume, "moving"},
		{"spacing 0", func(p *Pair) { p.Fixed = changed(func(v *volume.Volume) { v.Spacing[2] = 0 }) }, nil, fault.InvalidSpacing, "fixed"},
		{"spacing -1", func(p *Pair) { p.Fixed = changed(func(v *volume.Volume) { v.Spacing[0] = -1 }) }, nil, fault.InvalidSpacing, "fixed"},
		{"metres and millimetres", func(p *Pair) {
			p.Moving = changed(func(v *volume.Volume) { v.Spacing = [3]float64{0.001, 0.001, 0.001} })
		}, nil, fault.InvalidSpacing, "units of the headers"},
		{"spacing of metres", func(p *Pair) {
			p.Fixed = changed(func(v *volume.Volume) { v.Spacing = [3]float64{1e6, 1e6, 1e6} })
			p.Moving = p.Fixed
		}, func(o *Options) { o.Model = "hippocampus" }, fault.InvalidArgument, "network grid"},
		{"spacing of micrometres", func(p *Pair) { p.Fixed = changed(func(v *volume.Volume) { v.Spacing[2] = 1e-6 }) }, nil, fault.InvalidSpacing, "fixed"},
		{"direction", func(p *Pair) { p.Moving = changed(func(v *volume.Volume) { v.Direction = [9]float64{1, 0, 0, 1} }) }, nil, fault.InvalidDirection, "moving"},
		{"empty mask", func(p *Pair) { p.FixedMask = filled(0) }, nil, fault.EmptyMask, "fixed mask"},
		{"NaN mask", func(p *Pair) { p.FixedMask = filled(nan) }, nil, fault.EmptyMask, "fixed mask"},
		{"mask elsewhere", func(p *Pair) { p.FixedMask = changed(func(v *volume.Volume) { v.Origin[1] += 3 }) }, nil, fault.GridMismatch, "3 voxels away"},
		{"mask's grid", func(p *Pair) { p.MovingMask = blob([3]int{16, 16, 15}, 0) }, nil, fault.GridMismatch, "moving mask"},
		{"apart", func(p *Pair) { p.Moving = changed(func(v *volume.Volume) { v.Origin[0] += 500 }) }, nil, fault.NoOverlap, "overlap"},
		{"singular", func(p *Pair) { p.Initial = &volume.Affine{} }, nil, fault.SingularTransform, "initial"},
		{"NaN transform", func(p *Pair) { p.Initial = &volume.Affine{M: volume.Identity, T: [3]float64{math.NaN()}} }, nil, fault.SingularTransform, "initial"},
		{"option", nil, func(o *Options) { o.Steps = 99 }, fault.InvalidArgument, "steps"},
		{"choice", nil, func(o *Options) { o.Initial = "spline" }, fault.InvalidArgument, "initial"},
		{"model", nil, func(o *Options) { o.Model = "no such model" }, fault.ModelNotFound, "no such model"},
		{"model file", nil, func(o *Options) { o.Model = garbage }, fault.ModelCorrupt, garbage},
		{"no temperature", nil, func(o *Options) { o.Model, o.Uncertainty, o.Tau = tiny, "on", 0 }, fault.InvalidArgument, "tau"},
		{"external model", nil, func(o *Options) { o.Model = "internal/network/testdata/external.onnx" }, fault.ModelExternal, "external.onnx"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, o := Pair{Fixed: blob(size, 0), Moving: blob(size, 2)}, with(c.opt)
			if c.pair != nil {
				c.pair(&p)
			}
			_, err := e.Register(context.Background(), p, o, nil)
			testkit.Fails(t, err, c.want, c.naming)
		})
	}
}
