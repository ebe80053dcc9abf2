package engine

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func TestRegisterAffine(t *testing.T) {
	t.Parallel()
	size := [3]int{48, 40, 32}
	fixed, moving := blob(size, 0), blob(size, 6)
	e := open(t, Config{})
	r := register(t, e, Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) { o.Initial = "affine" }))
	m := r.Metrics
	// No stage follows, so "after" is the same transform: but as a float32 field, where "aligned" goes by the float64
	// matrix.
	if !(m.SimilarityAlign > m.SimilarityBefore+0.1) || math.Abs(m.SimilarityAfter-m.SimilarityAlign) > 1e-6 {
		t.Errorf("similarity %s before %g, aligned %g, after %g", m.Similarity, m.SimilarityBefore, m.SimilarityAlign, m.SimilarityAfter)
	}
	c := fixed.Center()
	points := slices.Clone(c[:])
	testkit.OK(t, r.TransformPoints(points))
	if d := points[0] - c[0]; math.Abs(d-6) > 1 {
		t.Errorf("the centre moves by %g mm along x, the image by 6", d)
	}
	if m.NJDPercent != 0 || m.DisplacementMax < 5 || m.PeakBytes < 0 || m.Align.Method != "affine" {
		t.Errorf("metrics %+v", m)
	}
	if _, err := json.Marshal(m); err != nil {
		t.Error(err)
	}
}

// A few voxels far beyond the others, as parameter maps have them, and a CT scanner's padding say nothing of what was
// imaged.
func TestOutlyingVoxels(t *testing.T) {
	long(t)
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(64, 1, false)
	// Air of -1000 HU and tissue around 0, with noise.
	for k, v := range []*volume.Volume{fixed, moving} {
		rng := rand.New(rand.NewPCG(9, uint64(k)))
		for i, x := range v.Data {
			v.Data[i] = float32(math.Round(-1000 + 6*float64(x) + 10*rng.NormFloat64()))
		}
	}
	angle := volume.Affine{M: testkit.Turn(0.2), T: [3]float64{15, -10, 8}}
	moving = testkit.Placed(moving, angle)
	e := open(t, Config{})
	opt := with(func(o *Options) { o.Initial = "affine" })
	run := func(change func(v *volume.Volume)) *Result {
		v := &volume.Volume{Geometry: moving.Geometry, Data: slices.Clone(moving.Data)}
		change(v)
		return register(t, e, Pair{Fixed: fixed, Moving: v}, opt)
	}
	off := func(r *Result) (sum float64) {
		for _, p := range [][3]float64{{12, 12, 12}, {50, 12, 12}, {12, 50, 12}, {12, 12, 50}, {50, 50, 50}} {
			a, b := r.Initial.Apply(p), angle.Apply(p)
			sum += math.Sqrt((a[0]-b[0])*(a[0]-b[0])+(a[1]-b[1])*(a[1]-b[1])+(a[2]-b[2])*(a[2]-b[2])) / 5
		}
		return sum
	}
	plain := run(func(*volume.Volume) {})
	for name, change := range map[string]func(v *volume.Volume){
		"ten, very far": func(v *volume.Volume) {
			for i := range 10 {
				v.Data[i*23456] = 1e7
			}
		},
		"a thousandth": func(v *volume.Volume) {
			for i := 0; i < len(v.Data); i += 1009 {
				v.Data[i] = 3e5
			}
		},
		"ten, below": func(v *volume.Volume) {
			for i := range 10 {
				v.Data[i*23456] = -1e7
			}
		},
		"outside a circle": func(v *volume.Volume) {
			for i := range v.Data {
				if x, y := float64(i%64)-31.5, float64(i/64%64)-31.5; x*x+y*y > 31*31 {
					v.Data[i] = -3024
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(change)
			if !plain.Metrics.Align.SameModality || !r.Metrics.Align.SameModality {
				t.Errorf("one modality is %v, without %v", r.Metrics.Align.SameModality, plain.Metrics.Align.SameModality)
			}
			if o, p := off(r), off(plain); o > p+0.7 {
				t.Errorf("%.2f mm off, without %.2f", o, p)
			}
			if a, b := r.Metrics.SimilarityAfter, plain.Metrics.SimilarityAfter; math.Abs(a-b) > 0.1 {
				t.Errorf("similarity %.3f, without %.3f", a, b)
			}
			if _, hi := r.Warped.MinMax(); name == "ten, very far" && hi < 1e5 {
				t.Errorf("the warped image is not of the caller's intensities: up to %g", hi)
			}
		})
	}
}
