package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// inUnits returns a pair and its options with every length multiplied by s, as headers in another unit have it.
func inUnits(p Pair, o Options, s float64) (Pair, Options) {
	grid := func(g volume.Geometry) volume.Geometry {
		for a := range 3 {
			g.Spacing[a] *= s
			g.Origin[a] *= s
		}
		return g
	}
	image := func(v **volume.Volume) {
		if *v != nil {
			*v = &volume.Volume{Geometry: grid((*v).Geometry), Data: (*v).Data}
		}
	}
	for _, v := range []**volume.Volume{&p.Fixed, &p.Moving, &p.FixedMask, &p.MovingMask, &p.Rigid} {
		image(v)
	}
	p.Channels = slices.Clone(p.Channels)
	for k := range p.Channels {
		image(&p.Channels[k].Fixed)
		image(&p.Channels[k].Moving)
	}
	if p.Initial != nil {
		initial := *p.Initial
		for a := range 3 {
			initial.T[a] *= s
		}
		p.Initial = &initial
	}
	if f := p.InitialField; f != nil {
		p.InitialField = field.Over(grid(f.Geometry), f.Data)
	}
	p.Landmarks = slices.Clone(p.Landmarks)
	for i := range p.Landmarks {
		for a := range 3 {
			p.Landmarks[i].Fixed[a] *= s
			p.Landmarks[i].Moving[a] *= s
		}
	}
	o.LandmarkError *= s
	return p, o
}

// lengths are the numbers of a result that are in its unit.
func lengthsOf(t *testing.T, r *Result) map[string]float64 {
	t.Helper()
	m := r.Metrics
	_, residual, err := r.Inverse()
	testkit.OK(t, err)
	g := r.Field.Geometry
	points := make([]float64, 0, 6)
	for _, at := range []float64{0.4, 1.1} { // inside the fixed image and beyond it
		x := [3]float64{at * float64(g.Size[0]), at * float64(g.Size[1]), at * float64(g.Size[2]-1)}
		p := g.IndexToPhysical().Apply(x)
		points = append(points, p[:]...)
	}
	testkit.OK(t, r.TransformPoints(points))
	all := map[string]float64{
		"estimated error": m.Verdict.ErrorMM, "reach": m.Referee.ReachMM, "smoothness": m.Plan.SmoothnessMM,
		"displacement": m.DisplacementMean, "residual of the inverse": residual,
		"inside": points[0], "beyond": points[4],
	}
	if u := m.Uncertainty; u != nil {
		all["uncertainty"] = u.MeanMM
	}
	if l := m.LandmarkFit; l != nil {
		all["landmarks"], all["reach of landmarks"], all["cross"] = l.AfterMM, l.ReachMM, l.CrossMM
	}
	if s := m.Symmetric; s != nil {
		all["both ways"] = s.P95MM
	}
	return all
}

// A pair in micrometres or metres has the result that it has in millimetres: the same field in voxels, and the same
// lengths in its unit. By a power of two no number is rounded otherwise, so not a bit differs; by others the last ones
// do.
func TestTheUnitDoesNotMatter(t *testing.T) {
	t.Parallel()
	const n = 24
	fixed, moving, truth := testkit.Phantom(n, 2, false)
	otherContrast, _, _ := testkit.Phantom(n, 2, true)
	slice, movingSlice, _ := testkit.Slice(48, 3, false)
	// oblique places the images elsewhere, with voxels that are no cubes; the moving one is turned by 0.2 in the plane.
	oblique := func(v *volume.Volume, turn float64) *volume.Volume {
		w := *v
		w.Spacing, w.Origin = [3]float64{1.3, 0.9, 2.1}, [3]float64{-71.3, 12.7, 103.9}
		w.Direction = testkit.Turn(turn)
		return &w
	}
	mask, bones := volume.Zeros(fixed.Geometry), volume.Zeros(fixed.Geometry)
	for i := range mask.Data {
		if at := mask.Index(i); at[0] > 3 && at[1] < 20 {
			mask.Data[i] = 1
		}
	}
	row := bones.Data[(12*n+12)*n:]
	row[8], row[12], row[13] = 1, 2, 2 // which determine no rotation
	landmarks := marked(6, truth, func(at [3]float64) [3]float64 { return [3]float64{0, 0, 3 * math.Sin(at[0]/6)} })
	turn := volume.Affine{M: [9]float64{0.98, -0.1, 0, 0.1, 0.97, 0.02, 0, 0, 1.03}, T: [3]float64{2, -1, 0.5}}
	plain := Pair{Fixed: fixed, Moving: moving}
	masked, pointed, bony, bent, many := plain, plain, plain, plain, plain
	masked.FixedMask, pointed.Landmarks, bony.Rigid = mask, landmarks, bones
	bent.Initial, bent.InitialField = &turn, truth
	many.Channels = []Channel{
		{Fixed: otherContrast, Moving: moving}, {Fixed: classes(fixed, 1), Moving: classes(moving, 1), Labels: true},
	}
	brief := func(o *Options) { o.Refine = 5 }
	still := func(o *Options) { o.Initial, o.Refine = "none", 5 } // the rows above have the alignment
	whole := func(o *Options) { o.Preset, o.Initial, o.Search, o.Refine = "fast", "affine", "auto", -1 }
	for _, c := range []struct {
		name string
		pair Pair
		set  func(*Options)
	}{
		{"one contrast", plain, nil},
		{"two contrasts", Pair{Fixed: otherContrast, Moving: moving}, func(o *Options) { o.Preset = "default" }},
		{"rigid", plain, func(o *Options) { o.Initial, o.Refine = "rigid", 5 }},
		{"anisotropic and oblique", Pair{Fixed: oblique(fixed, 0), Moving: oblique(moving, 0.2)}, func(o *Options) {
			o.Search, o.Uncertainty = "on", "on"
		}},
		{"oblique slices", Pair{Fixed: oblique(slice, 0), Moving: oblique(movingSlice, 0.2)}, nil},
		{"a mask", masked, brief},
		{"symmetric", plain, func(o *Options) { o.Symmetric, o.Initial, o.Refine = "on", "none", 5 }},
		{"landmarks", pointed, func(o *Options) { o.LandmarkError, o.Initial, o.Refine = 0.3, "none", 5 }},
		{"rigid regions", bony, still},
		{"a deformation given", bent, brief},
		{"channels", many, still},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, opt := open(t, Config{}), with(func(o *Options) {
				whole(o)
				if c.set != nil {
					c.set(o)
				}
			})
			want := register(t, e, c.pair, opt)
			lengths := lengthsOf(t, want)
			scales := []struct {
				scale float64
				most  float64 // difference of the fields, voxels
			}{{math.Ldexp(1, -14), 0}, {1e-3, 1e-2}, {math.Ldexp(1, 10), 0}, {10, 1e-2}}
			if c.set != nil { // one of each kind
				scales = scales[:2]
			}
			if opt.Preset == "default" { // which takes the longest
				scales = scales[:1]
			}
			for _, in := range scales {
				t.Run(fmt.Sprintf("times %g", in.scale), func(t *testing.T) {
					pair, opt := inUnits(c.pair, opt, in.scale)
					r := register(t, e, pair, opt)
					testkit.Close(t, "the field, voxels", r.Field.Data, want.Field.Data, in.most)
					for name, x := range lengthsOf(t, r) {
						if d := math.Abs(x/in.scale - lengths[name]); !(d <= 1e-3*math.Abs(lengths[name])+1e-3) {
							t.Errorf("%s %g, and %g without", name, x/in.scale, lengths[name])
						}
					}
					if v, w := r.Metrics.Verdict.Grade, want.Metrics.Verdict.Grade; v != w {
						t.Errorf("%s, and %s without", v, w)
					}
				})
			}
		})
	}
}
