package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testpair"
)

// marked returns landmarks of a pair inside its body, at the truth and moved from it.
func marked(n int, truth interface{ TransformPoints([]float64) }, moved func(at [3]float64) [3]float64) (landmarks []Landmark) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range n {
		at := [3]float64{12 + 16*rng.Float64(), 12 + 16*rng.Float64(), 12 + 16*rng.Float64()}
		to := slices.Clone(at[:])
		truth.TransformPoints(to)
		more := moved(at)
		for a := range 3 {
			to[a] += more[a]
		}
		landmarks = append(landmarks, Landmark{Fixed: at, Moving: [3]float64(to)})
	}
	return landmarks
}

func unmoved([3]float64) [3]float64 { return [3]float64{} }

func steered(o *Options) { o.Refine, o.Similarity, o.LandmarkError = -1, "ncc", 1 }

// Landmarks whose error explains where the images put them leave every bit as it is, one that contradicts the others included, which is named.
func TestLandmarksThatAgree(t *testing.T) {
	fixed, moving, truth := testpair.Phantom(40, 3, false)
	e, p := open(t, Config{}), Pair{Fixed: fixed, Moving: moving}
	plain := register(t, e, p, with(func(o *Options) { steered(o); o.LandmarkError = 0 }))
	for _, wrong := range []int{-1, 4} {
		p.Landmarks = marked(8, truth, unmoved)
		if wrong >= 0 {
			p.Landmarks[wrong].Name = "nose"
			p.Landmarks[wrong].Moving[1] += 30
		}
		r := register(t, e, p, with(steered))
		if !slices.Equal(r.Field.Data, plain.Field.Data) {
			t.Errorf("wrong %d: the field changes by up to %.3g voxels", wrong, apart(r.Field, plain.Field))
		}
		named := strings.Contains(strings.Join(r.Metrics.Warnings, " "), "nose")
		if m := r.Metrics.LandmarkFit; named != (wrong >= 0) || m.ReachMM != 0 || m.AfterMM > 1.5 || len(m.LeftOut) != max(0, min(wrong, 1)) {
			t.Errorf("wrong %d: %+v, %q", wrong, m, r.Metrics.Warnings)
		}
	}
}

// What no image shows comes from the landmarks, at points that were not given, too; one landmark makes none of them worse in the mean.
func TestLandmarksPull(t *testing.T) {
	fixed, moving, truth := testpair.Phantom(40, 3, false)
	bow := func(at [3]float64) [3]float64 { return [3]float64{0, 0, 4 * math.Sin(at[0]/6)} }
	e, all := open(t, Config{}), marked(60, truth, bow)
	alone := with(func(o *Options) { o.Initial, o.Search, o.Refine, o.LandmarkError = "none", "off", 0, 0.5 })
	for _, n := range []int{1, 30} {
		r := register(t, e, Pair{Fixed: fixed, Moving: moving, Landmarks: all[:n]}, alone)
		sum, before := 0.0, 0.0
		for _, l := range all[30:] {
			at := slices.Clone(l.Fixed[:])
			r.Field.TransformPoints(at)
			sum += math.Hypot(math.Hypot(at[0]-l.Moving[0], at[1]-l.Moving[1]), at[2]-l.Moving[2]) / 30
			before += math.Hypot(math.Hypot(l.Fixed[0]-l.Moving[0], l.Fixed[1]-l.Moving[1]), l.Fixed[2]-l.Moving[2]) / 30
		}
		m := r.Metrics.LandmarkFit
		t.Logf("%d landmarks: %.2f -> %.2f mm at the others, %+v", n, before, sum, m)
		if m.ReachMM == 0 || m.AfterMM > 0.5*m.ImagesMM || r.Metrics.NJDPercent > 0 {
			t.Errorf("%d landmarks: %+v, folding %g", n, m, r.Metrics.NJDPercent)
		}
		if n == 30 && sum > before/3 || n == 1 && sum > before {
			t.Errorf("%d landmarks: points that were not given go from %.2f to %.2f mm", n, before, sum)
		}
	}
}

// An alignment that the images led far off starts from the landmarks.
func TestLandmarksBringBack(t *testing.T) {
	fixed, moving, truth := testpair.Phantom(40, 2, false)
	p := Pair{Fixed: fixed, Moving: moving, Landmarks: marked(8, truth, unmoved)}
	// the moving image turned by 180 degrees about z: centres of mass see nothing of it
	turned := *moving
	turned.Direction = [9]float64{-1, 0, 0, 0, -1, 0, 0, 0, 1}
	p.Moving = &turned
	for i := range p.Landmarks {
		for a := range 2 {
			p.Landmarks[i].Moving[a] *= -1
		}
	}
	r := register(t, open(t, Config{}), p, with(func(o *Options) { o.Initial, o.Search, o.Refine, o.LandmarkError = "com", "off", 0, 1 }))
	if m := r.Metrics.LandmarkFit; r.Metrics.Plan.Start != "landmarks" || m.AfterMM > 2 || m.BeforeMM < 20 {
		t.Errorf("start %q, %+v", r.Metrics.Plan.Start, m)
	}
}

func TestBadLandmarks(t *testing.T) {
	fixed, moving, _ := testpair.Phantom(16, 1, false)
	e, one := open(t, Config{}), Landmark{Name: "nose", Fixed: [3]float64{8, 8, 8}, Moving: [3]float64{8, 8, 8}}
	at := func(moving ...float64) Landmark {
		return Landmark{Name: "nose", Fixed: one.Fixed, Moving: [3]float64(moving)}
	}
	for _, c := range []struct {
		name      string
		landmarks []Landmark
		set       func(*Options)
		code      fault.Code
		said      string
	}{
		{"no error", []Landmark{one}, func(o *Options) { o.LandmarkError = 0 }, fault.InvalidArgument, "landmark_error is 0; set it"},
		{"a negative error", []Landmark{one}, func(o *Options) { o.LandmarkError = -1 }, fault.InvalidArgument, "landmark_error"},
		{"no number", []Landmark{at(8, math.NaN(), 8)}, nil, fault.InvalidArgument, "the moving landmark nose lies at"},
		{"far outside", []Landmark{at(8, 800, 8)}, nil, fault.InvalidArgument, "far outside the moving image"},
		{"too many", make([]Landmark, 1001), nil, fault.InvalidArgument, "1000 are the most"},
		{"symmetric", []Landmark{one}, func(o *Options) { o.Symmetric = "on" }, fault.InvalidArgument, "symmetric"},
	} {
		opt := with(func(o *Options) {
			o.LandmarkError = 1
			if c.set != nil {
				c.set(o)
			}
		})
		_, err := e.Register(t.Context(), Pair{Fixed: fixed, Moving: moving, Landmarks: c.landmarks}, opt, nil)
		if fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.said) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
