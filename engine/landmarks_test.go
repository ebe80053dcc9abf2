package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
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

// Landmarks whose error explains where the images put them leave every bit as it is, one that contradicts the others
// included, which is named.
func TestLandmarksThatAgree(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 3, false)
	e, p := open(t, Config{}), Pair{Fixed: fixed, Moving: moving}
	plain := register(t, e, p, with(func(o *Options) { steered(o); o.LandmarkError = 0 }))
	for _, wrong := range []int{-1, 4} {
		t.Run(fmt.Sprintf("%d wrong", wrong), func(t *testing.T) {
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
		})
	}
}

// What no image shows comes from the landmarks, at points that were not given, too; one landmark makes none of them
// worse in the mean.
func TestLandmarksPull(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 3, false)
	bow := func(at [3]float64) [3]float64 { return [3]float64{0, 0, 4 * math.Sin(at[0]/6)} }
	e, all := open(t, Config{}), marked(60, truth, bow)
	alone := with(func(o *Options) { o.Initial, o.Search, o.Refine, o.LandmarkError = "none", "off", 0, 0.5 })
	for _, n := range []int{1, 30} {
		t.Run(fmt.Sprintf("%d landmarks", n), func(t *testing.T) {
			r := register(t, e, Pair{Fixed: fixed, Moving: moving, Landmarks: all[:n]}, alone)
			sum, before := 0.0, 0.0
			for _, l := range all[30:] {
				at := slices.Clone(l.Fixed[:])
				r.Field.TransformPoints(at)
				sum += volume.Distance([3]float64(at), l.Moving) / 30
				before += volume.Distance(l.Fixed, l.Moving) / 30
			}
			m := r.Metrics.LandmarkFit
			t.Logf("%.2f -> %.2f mm at the others, %+v", before, sum, m)
			if m.ReachMM == 0 || m.AfterMM > 0.5*m.ImagesMM || r.Metrics.NJDPercent > 0 {
				t.Errorf("%+v, folding %g", m, r.Metrics.NJDPercent)
			}
			if n == 30 && sum > before/3 || n == 1 && sum > before {
				t.Errorf("points that were not given go from %.2f to %.2f mm", before, sum)
			}
		})
	}
}

// An alignment that the images led far off starts from the landmarks.
func TestLandmarksBringBack(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 2, false)
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

// What the report says of landmarks outside the fixed image is what transform_points does with them.
func TestLandmarksOutsideTheGrid(t *testing.T) {
	t.Parallel()
	shift := func(x, y, z float64) [3]float64 { return [3]float64{3, 2 + z/20, 0} } // up to the border
	fixed, moving, truth := testkit.Moved(40, shift)
	p := Pair{Fixed: fixed, Moving: moving, Landmarks: marked(14, truth, unmoved)}
	for i := range 4 {
		l := &p.Landmarks[i]
		l.Fixed[2] = -14
		d := shift(0, 0, -14)
		for a := range 3 {
			l.Moving[a] = l.Fixed[a] + d[a]
		}
	}
	r := register(t, open(t, Config{}), p, with(steered))
	sum := 0.0
	for _, l := range p.Landmarks {
		at := slices.Clone(l.Fixed[:])
		testkit.OK(t, r.TransformPoints(at))
		for a := range 3 {
			sum += (at[a] - l.Moving[a]) * (at[a] - l.Moving[a]) / 14
		}
	}
	m := r.Metrics.LandmarkFit
	if math.Abs(m.AfterMM-math.Sqrt(sum)) > 1e-6 {
		t.Errorf("after_mm %.3f, by transform_points %.3f; %+v", m.AfterMM, math.Sqrt(sum), m)
	}
	if m.ReachMM == 0 && math.Abs(m.ImagesMM-m.AfterMM) > 0.05 {
		t.Errorf("nothing was pulled, and images_mm %.3f became after_mm %.3f", m.ImagesMM, m.AfterMM)
	}
}

// A given transform stays as it is with none and com, however far from it the landmarks lie.
func TestLandmarksLeaveAGivenTransform(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 2, false)
	shift := volume.Affine{M: volume.Identity, T: [3]float64{0, 1, 0}}
	far := func([3]float64) [3]float64 { return [3]float64{9, 0, 0} }
	p := Pair{Fixed: fixed, Moving: moving, Initial: &shift, Landmarks: marked(8, truth, far)}
	for _, initial := range []string{"none", "com"} {
		r := register(t, open(t, Config{}), p, with(func(o *Options) { o.Initial, o.LandmarkError = initial, 1 }))
		if r.Initial != shift || r.Metrics.Plan.Start != "none" {
			t.Errorf("%s: the transform became %v, start %q", initial, r.Initial, r.Metrics.Plan.Start)
		}
	}
}

func TestBadLandmarks(t *testing.T) {
	fixed, moving, _ := testkit.Phantom(16, 1, false)
	// left and right exchanged on one side
	mirrored, flatMirrored := make([]Landmark, 12), make([]Landmark, 12)
	for i := range mirrored {
		at := [3]float64{float64(3 + i%4*3), float64(3 + i/4*4), float64(3 + i*5%11)}
		mirrored[i] = Landmark{Fixed: at, Moving: [3]float64{15 - at[0], at[1], at[2]}}
		flatMirrored[i] = Landmark{Fixed: [3]float64{at[0], at[1], 0}, Moving: [3]float64{15 - at[0], at[1], 0}}
	}
	slice, _, _ := testkit.Slice(64, 1, false)
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
		{"mirrored, affine", mirrored, func(o *Options) { o.Initial = "affine" }, fault.InvalidArgument, "left and right"},
		{"mirrored, rigid", mirrored[:6], func(o *Options) { o.Initial, o.LandmarkError = "rigid", 0.5 }, fault.InvalidArgument, "left and right"},
		{"mirrored, none", mirrored, nil, fault.InvalidArgument, "left and right"},
		{"mirrored in a slice", flatMirrored, nil, fault.InvalidArgument, "left and right"},
		{"symmetric", []Landmark{one}, func(o *Options) { o.Symmetric = "on" }, fault.InvalidArgument, "symmetric"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := with(func(o *Options) {
				o.LandmarkError = 1
				if c.set != nil {
					c.set(o)
				}
			})
			p := Pair{Fixed: fixed, Moving: moving, Landmarks: c.landmarks}
			if strings.Contains(c.name, "slice") {
				p.Fixed, p.Moving = slice, slice
			}
			testkit.Refused(e.Register(t.Context(), p, opt, nil))(t, c.code, c.said)
		})
	}
}
