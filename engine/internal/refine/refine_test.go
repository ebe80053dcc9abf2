package refine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/filter"
	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/internal/option"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/metric"
	"github.com/morphseek/morphseek/engine/volume"
)

// wave returns a smooth field of the given amplitude in voxels, zero at the border.
func wave(g volume.Geometry, amplitude float64) *field.Field {
	f := field.New(g)
	n := g.Size
	for i := range f.X {
		x, y, z := i%n[0], i/n[0]%n[1], i/(n[0]*n[1])
		s := func(k, n int, turns float64) float64 { return math.Sin(turns * math.Pi * float64(k) / float64(n-1)) }
		bump := amplitude * s(x, n[0], 1) * s(y, n[1], 1) * s(z, n[2], 1)
		f.X[i], f.Y[i], f.Z[i] = float32(bump), float32(bump*s(y, n[1], 3)), float32(-bump*s(x, n[0], 2))
	}
	return f
}

func pairOf(fixed, moving *volume.Volume) aligned.Pair {
	return aligned.Pair{Fixed: fixed, Moving: moving, Initial: volume.IdentityAffine()}
}

// refined returns what Run does with a similarity, or ends the test.
func refined(t *testing.T, pair aligned.Pair, start *field.Field, by Regularisation, s Similarity, iterations, threads int) (*field.Field, []Level) {
	t.Helper()
	u, levels, err := Run(context.Background(), pair, start, by, Options{Similarity: s, Iterations: iterations, Voxels: 1 << 20, Threads: threads})
	testkit.OK(t, err)
	return u, levels
}

// unheard hears of parts of a force that is kept as a whole.
func unheard(_, _ int) {}

// slopes returns the derivative of a similarity along a smooth direction, by its force and by finite differences.
func slopes(s similarity, g volume.Geometry) (predicted, measured float64) {
	u, force, direction := wave(g, 0.7), field.New(g), field.New(g)
	s.validate(u)
	s.force(direction, u, unheard)
	direction = direction.Smoothed(nil, 2, 1)
	length := 0.0 // of the longest vector, at most
	for _, d := range direction.Data {
		length = max(length, math.Sqrt(3)*math.Abs(float64(d)))
	}
	at := func(h float32) float64 {
		step := field.New(g)
		for i, d := range direction.Data {
			step.Data[i] = h * d / float32(length)
		}
		return s.force(field.New(g), field.Compose(nil, u, step, 1), unheard)
	}
	s.force(force, u, unheard)
	for i, d := range direction.Data {
		predicted += float64(d) * float64(force.Data[i])
	}
	const h = 0.05
	return predicted / length, (at(h) - at(-h)) / (2 * h)
}

// The force is the derivative of the similarity by a displacement of the warped image: along a smooth direction it must
// predict the change that finite differences show.
func TestForceIsTheDerivative(t *testing.T) {
	t.Parallel()
	const large = 72
	for _, c := range []struct {
		name      Similarity
		voxels    int     // a side
		tolerance float64 // descriptors are rough: central differences fall short of their slope
	}{{NCC, 32, 0.05}, {NCC, large, 0.05}, {MSE, 32, 0.05}, {MIND, 32, 0.15}} {
		t.Run(fmt.Sprint(c.name, c.voxels), func(t *testing.T) {
			fixed, moving, _ := testkit.Phantom(c.voxels, 2, false)
			pair := pairOf(fixed, moving)
			g := pair.Grid(1)
			im := pair.At(g, margin, aligned.ZeroEdge, 1)
			// Smooth images, so that central differences are near the derivative of what is interpolated.
			for _, v := range []*volume.Volume{im.Fixed, im.Moving} {
				smooth := field.New(v.Geometry)
				copy(smooth.X, v.Data)
				copy(v.Data, smooth.Smoothed(nil, 1.5, 1).X)
			}
			s := testkit.Must(newSimilarity(c.name, im, 1))(t)
			if n, ok := s.(*ncc); ok && n.alternates() != (c.voxels == large) {
				t.Fatalf("%d voxels a side: windows on every second slice: %v", c.voxels, n.alternates())
			}
			predicted, measured := slopes(s, g)
			if d, ok := s.(*ssd); ok { // whose value is a mean over the channels, and whose force is not
				predicted /= float64(d.channels)
			}
			if math.Abs(predicted-measured) > c.tolerance*math.Abs(measured) {
				t.Errorf("derivative %g, finite differences say %g", predicted, measured)
			}
		})
	}
}

// Where windows are far from flat and correlate positively, the value is metric.LocalNCC's but for the variance floor.
func TestNCCValue(t *testing.T) {
	g := testkit.Grid([3]int{20, 18, 16})
	fixed, moving := volume.Zeros(g), volume.Zeros(g)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range fixed.Data {
		fixed.Data[i] = r.Float32()
		moving.Data[i] = 3*fixed.Data[i] + r.Float32()
	}
	im := pairOf(fixed, moving).At(g, margin, aligned.ZeroEdge, 1)
	s := newNCC(im, 1)
	u := field.New(g)
	s.validate(u)
	got := s.force(field.New(g), u, unheard) / float64(s.voxels())
	want := metric.LocalNCC(im.Fixed, u.Warp(im.Moving, volume.Linear, 0, 1), nil, window, 1)
	if math.Abs(got-want) > 0.005 {
		t.Errorf("similarity %g, LocalNCC %g", got, want)
	}
}

// The value is minus the sum of the voxels' mean squares, whatever the descriptors are padded with.
func TestMINDValue(t *testing.T) {
	fixed, moving, _ := testkit.Phantom(20, 2, true)
	im := pairOf(fixed, moving).At(fixed.Geometry, margin, aligned.ZeroEdge, 1)
	s, u := newMIND(im, 1), field.New(fixed.Geometry)
	s.validate(u)
	got := s.force(field.New(fixed.Geometry), u, unheard) / float64(s.voxels())
	f, m := mind.Describe(im.Fixed.Data, im.FixedValid.Data, im.Fixed.Size, kernel, 1), mind.Describe(im.Moving.Data, im.MovingValid.Data, im.Moving.Size, kernel, 1)
	n, grown := im.Fixed.Size, im.Moving.Size
	sum := 0.0
	for i, x := range f {
		c, z, y, x0 := i/len(im.Fixed.Data), i/(n[0]*n[1])%n[2], i/n[0]%n[1], i%n[0]
		d := float64(x - m[((c*grown[2]+z+margin)*grown[1]+y+margin)*grown[0]+x0+margin])
		sum += d * d
	}
	if want := -sum / float64(len(f)); math.Abs(got-want) > 1e-5*math.Abs(want) {
		t.Errorf("similarity %g, want %g", got, want)
	}
}

// gentle follows what the phantoms have of motion.
var gentle = Regularisation{Fluid: 1.75, Elastic: 0.5, Sharpen: 0.5}

func TestRecoversDisplacement(t *testing.T) {
	t.Parallel()
	const n = 40
	lo, hi := [3]int{8, 8, 8}, [3]int{32, 32, 32}
	for _, c := range []struct {
		similarity Similarity
		other      bool // contrast
		left       float64
	}{{NCC, false, 0.35}, {MSE, false, 0.4}, {MIND, true, 0.4}} {
		t.Run(string(c.similarity), func(t *testing.T) {
			fixed, moving, truth := testkit.Phantom(n, 2.5, c.other)
			u, levels := refined(t, pairOf(fixed, moving), nil, gentle, c.similarity, 20, 1)
			before, after := testkit.MeanError(nil, truth, lo, hi), testkit.MeanError(u, truth, lo, hi)
			t.Logf("mean error %.2f -> %.2f voxels", before, after)
			if after > c.left*before {
				t.Errorf("mean error %.2f of %.2f voxels left", after, before)
			}
			if s := u.Stats(1); s.JacobianMin <= 0 {
				t.Errorf("the field folds: least determinant %g", s.JacobianMin)
			}
			for _, l := range levels {
				if s := l.Similarity; s[len(s)-1] <= s[0] {
					t.Errorf("similarity %g -> %g at %g mm", s[0], s[len(s)-1], l.Spacing)
				}
			}
			if again, _ := refined(t, pairOf(fixed, moving), nil, gentle, c.similarity, 20, 3); !slices.Equal(u.Data, again.Data) {
				t.Error("the field depends on the number of threads")
			}
		})
	}
}

// The fixed image decides, and where the moving one is finer that does, up to a bound.
func TestVoxelOfTheFinestLevel(t *testing.T) {
	for _, c := range []struct {
		fixed, moving [3]float64
		finest        float64
	}{
		{[3]float64{1, 1, 1}, [3]float64{0.9, 0.9, 0.9}, 0.9},
		{[3]float64{1, 1, 1}, [3]float64{0.5, 0.5, 0.5}, 0.8},
		{[3]float64{1, 1, 1}, [3]float64{0.97, 0.97, 0.97}, 1},
		{[3]float64{1, 1, 1}, [3]float64{1, 1, 1}, 1},
		{[3]float64{1, 1, 1}, [3]float64{2, 2, 2}, 1},
		{[3]float64{1.25, 1.25, 1.25}, [3]float64{1, 1, 1}, 1},
		{[3]float64{1, 1, 8}, [3]float64{1, 1, 1}, 0.8 * math.Sqrt2},
		{[3]float64{1, 1, 8}, [3]float64{1, 1, 8}, math.Sqrt2},
	} {
		t.Run(fmt.Sprint(c.fixed, " and ", c.moving), func(t *testing.T) {
			image := func(spacing [3]float64) *volume.Volume {
				return volume.Zeros(volume.Geometry{Size: [3]int{20, 20, 20}, Spacing: spacing, Direction: volume.Identity})
			}
			pair := aligned.Pair{Fixed: image(c.fixed), Moving: image(c.moving)}
			grids := resolutions(pair, Options{Similarity: NCC, Voxels: 1 << 20}, true)
			if got := grids[len(grids)-1].Spacing[0]; math.Abs(got-c.finest) > 1e-9 {
				t.Errorf("fixed %v, moving %v: finest level of %g mm", c.fixed, c.moving, got)
			}
			if n := Bytes(pair, 1<<20); n != 4*24*int64(grids[len(grids)-1].Voxels()) {
				t.Errorf("fixed %v, moving %v: %d bytes expected", c.fixed, c.moving, n)
			}
		})
	}
}

// An image fits itself: no step may lead away from that, neither inside nor where the field of view ends.
func TestAnImageOntoItselfStays(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	texture := testkit.Drawn(volume.Geometry{Size: [3]int{40, 36, 32}, Spacing: [3]float64{1.5, 1.5, 1.5}, Direction: volume.Identity}, rng.Float32)
	smooth := field.New(texture.Geometry)
	copy(smooth.X, texture.Data)
	for _, noise := range []float32{0, 0.02} {
		t.Run(fmt.Sprintf("noise %g", noise), func(t *testing.T) {
			v := volume.Zeros(texture.Geometry)
			copy(v.Data, smooth.Smoothed(nil, 2, 1).X)
			for i := range v.Data {
				v.Data[i] += noise * rng.Float32()
			}
			// Descriptors reach two voxels beyond what they describe, and so beyond the repeated border.
			for s, most := range map[Similarity]float64{NCC: 0.001, MSE: 0.001, MIND: 0.3} {
				by := gentle
				if s == MIND {
					by = Regularisation{Fluid: 3.5, Elastic: 1, Fading: 1, Sharpen: 0.5}
				}
				u, levels := refined(t, pairOf(v, v), nil, by, s, 30, 1)
				if far := u.Stats(1).DisplacementMaxMM; far > most*1.5 {
					t.Errorf("%s, noise %g: %g mm away after %d levels", s, noise, far, len(levels))
				}
			}
		})
	}
}

// What came before stays: from a truth of 4 voxels on average, a refinement has nothing to do but drift where the
// phantom is flat, and ends early.
func TestStartsFromAField(t *testing.T) {
	t.Parallel()
	fixed, moving, truth := testkit.Phantom(40, 5, false)
	u, levels := refined(t, pairOf(fixed, moving), truth, gentle, NCC, 100, 0)
	lo, hi := [3]int{8, 8, 8}, [3]int{32, 32, 32}
	if e := testkit.MeanError(u, truth, lo, hi); e > 0.8 {
		t.Errorf("mean error %g voxels from the truth", e)
	}
	for _, l := range levels {
		if len(l.Similarity) > 60 {
			t.Errorf("%d iterations at %g mm", len(l.Similarity), l.Spacing)
		}
	}
}

// A lesion that only one image has, behind a mask, must not move its surroundings.
func TestMasksHideWhatDiffers(t *testing.T) {
	t.Parallel()
	fixed, _, truth := testkit.Phantom(32, 0, false)
	moving := &volume.Volume{Geometry: fixed.Geometry, Data: slices.Clone(fixed.Data)}
	mask := volume.Zeros(fixed.Geometry)
	for i := range moving.Data {
		x, y, z := i%32-16, i/32%32-16, i/1024-16
		mask.Data[i] = 1
		if r := x*x + y*y + z*z; r < 36 {
			moving.Data[i] = 0
			mask.Data[i] = 0
		}
	}
	run := func(mask *volume.Volume) float64 {
		pair := pairOf(fixed, moving)
		pair.MovingMask = mask
		u, _ := refined(t, pair, nil, gentle, MSE, 10, 0)
		return testkit.MeanError(u, truth, [3]int{}, [3]int{32, 32, 32})
	}
	if open, hidden := run(nil), run(mask); hidden > 0.08 || open < 3*hidden {
		t.Errorf("mean displacement %g voxels with the mask, %g without", hidden, open)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(24, 2, false)
	pair := pairOf(fixed, moving)
	ctx, cancel := context.WithCancel(context.Background())
	_, _, err := Run(ctx, pair, nil, gentle, Options{Similarity: NCC, Iterations: 50, Voxels: 1 << 20, Progress: func(float64) { cancel() }})
	testkit.Fails(t, err, fault.Cancelled)
	_, _, err = Run(context.Background(), pair, nil, gentle, Options{Similarity: "sad", Iterations: 1, Voxels: 1 << 20})
	testkit.Fails(t, err, fault.InvalidArgument)
}

// One iteration on 112 x 96 x 80 voxels.
func BenchmarkIteration(b *testing.B) {
	g := testkit.Grid([3]int{112, 96, 80})
	v := testkit.Drawn(g, rand.New(rand.NewPCG(1, 2)).Float32)
	im := pairOf(v, v).At(g, margin, aligned.ZeroEdge, 0)
	for _, name := range []Similarity{NCC, MSE, MIND} {
		b.Run(string(name), func(b *testing.B) {
			s := testkit.Must(newSimilarity(name, im, 0))(b)
			c := ascent{similarity: s, v: wave(g, 1), by: gentle, iterations: 1, progress: func(float64) {}}
			for b.Loop() {
				if _, err := c.run(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Steps that fade with the force end nearer to rest, where all that is left is noise.
func TestFadingStepsRest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	image := func() *volume.Volume {
		v := volume.Zeros(testkit.Grid([3]int{32, 32, 32}))
		for i := range v.Data {
			x, y, z := i%32-16, i/32%32-16, i/1024-16
			if x*x+y*y+z*z < 100 {
				v.Data[i] = 1
			}
			v.Data[i] += 0.1 * rng.Float32()
		}
		return v
	}
	fixed, moving := image(), image()
	moved := func(fading float64) float64 {
		by := gentle
		by.Fading = fading
		u, _ := refined(t, pairOf(fixed, moving), nil, by, NCC, 30, 0)
		return u.Stats(1).DisplacementMeanMM
	}
	if always, faded := moved(0), moved(1); !(faded < always) {
		t.Errorf("%.3f mm of motion from noise by fading steps, %.3f by others", faded, always)
	}
}

// allRows is a correlation that leaves out no row.
type allRows struct{ *ncc }

func (w allRows) validate(u *field.Field) {
	w.ncc.validate(u)
	w.band = nil
}

// Rows in which nothing of the fixed image shows are left out, and nothing changes by it.
func TestEmptyRowsAreLeftOut(t *testing.T) {
	t.Parallel()
	const n, edge = 40, 12
	fixed, moving, _ := testkit.Phantom(n, 2.5, false)
	for _, v := range []*volume.Volume{fixed, moving} {
		for i := range v.Data {
			for _, k := range []int{i % n, i / n % n, i / (n * n)} {
				if k < edge || k >= n-edge {
					v.Data[i] = 0
				}
			}
		}
	}
	pair := pairOf(fixed, moving)
	im := pair.At(fixed.Geometry, margin, aligned.RepeatedEdge, 1)
	run := func(s similarity) (*field.Field, []float64) {
		c := ascent{similarity: s, v: wave(fixed.Geometry, 0.5), by: gentle, iterations: revalidate + 2, threads: 2, progress: func(float64) {}}
		values := testkit.Must(c.run(context.Background()))(t)
		return c.v, values
	}
	part := newNCC(im, 2)
	got, values := run(part)
	want, all := run(allRows{newNCC(im, 2)})
	if !slices.Equal(values, all) {
		t.Errorf("similarities %v, by all rows %v", values, all)
	}
	testkit.Close(t, "field", got.Data, want.Data, 0)
	rows := 0
	for _, r := range part.reach() {
		rows += max(r[1]-r[0], 0)
	}
	if most := (n - 2*edge + 4*window) * (n - 2*edge + 4*window); rows == 0 || rows > most {
		t.Errorf("%d rows are not left out, want %d at most", rows, most)
	}
}

// A voxel that leaves the field of view counts as one that matches like the mean: neither to leave nor to stay is a
// gain.
func TestLeavingCountsAsTheMean(t *testing.T) {
	g := testkit.Grid([3]int{16, 16, 16})
	s := &leaving{counts: []int{4096, 2048, 1024}, sums: []float64{2048, 1024, 512}} // 0.5 a voxel throughout
	c := ascent{similarity: s, v: field.New(g), by: gentle, iterations: 3 * revalidate, threads: 1, progress: func(float64) {}}
	values := testkit.Must(c.run(context.Background()))(t)
	for i, v := range values {
		if math.Abs(v-0.5) > 1e-12 {
			t.Fatalf("value %d is %g, want 0.5: %v", i, v, values)
		}
	}
	if len(values) < revalidate {
		t.Fatalf("%d values", len(values))
	}
}

// leaving is a similarity of which voxels leave at every look.
type leaving struct {
	look   int
	counts []int
	sums   []float64
}

func (l *leaving) validate(*field.Field) { l.look++ }
func (l *leaving) voxels() int           { return l.counts[l.look-1] }
func (l *leaving) reach() filter.Band    { return nil }
func (l *leaving) part() int             { return 0 }
func (l *leaving) force(g, _ *field.Field, _ func(_, _ int)) float64 {
	g.X[len(g.X)/2] = 1
	return l.sums[l.look-1]
}

// Under noise little of the agreement at half the resolution is left at the finest; of what two images really share
// most is.
func TestDetail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		noise    float64
		from, to float64
	}{{"no noise", 0, 0.7, 1.1}, {"noise that covers all detail", 25, 0, 0.4}} {
		t.Run(c.name, func(t *testing.T) {
			fixed, moving, _ := testkit.Phantom(64, 1, false)
			rng := rand.New(rand.NewPCG(1, 2))
			testkit.AddNoise(c.noise, rng, fixed)
			testkit.AddNoise(c.noise, rng, moving)
			r := New(pairOf(fixed, moving), nil, Options{Similarity: NCC, Iterations: 10, Voxels: 1 << 20})
			a := testkit.Must(r.Coarse(context.Background(), gentle, true))(t)
			if d := r.Detail(); d < c.from || d > c.to {
				t.Errorf("%.3f of %.3f is left", d, a.Correlation)
			}
		})
	}
}

// The choices of the option similarity are the similarities that there are.
func TestSimilaritiesAreTheChoices(t *testing.T) {
	row := slices.IndexFunc(option.Table, func(o option.Option) bool { return o.Name == "similarity" })
	names := []string{"auto", string(NCC), string(MSE), string(MIND)}
	if choices := option.Table[row].Choices; !slices.Equal(choices, names) {
		t.Errorf("the option has %q, the refinement %q", choices, names)
	}
}

// A force that reads its warped descriptors from a ring of few slices is that of the whole.
func TestForceFromRingOfSlices(t *testing.T) {
	g := testkit.Grid([3]int{260, 256, 7})
	fixed, moving := volume.Zeros(g), volume.Zeros(g)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range fixed.Data {
		fixed.Data[i], moving.Data[i] = r.Float32(), r.Float32()
	}
	u := wave(g, 2)
	force := func(slices int) (float64, []float32) {
		s := newMIND(pairOf(fixed, moving).At(g, margin, aligned.ZeroEdge, 2), 2)
		if s.part() >= g.Size[2]-2 {
			t.Fatalf("%d slices together leave no ring", s.part())
		}
		if slices > 0 {
			s.warped = make([]int16, slices*g.Size[0]*g.Size[1]*s.channels+spare)
		}
		s.validate(u)
		f := field.New(g)
		return s.force(f, u, unheard), f.Data
	}
	value, ring := force(0)
	wantValue, whole := force(g.Size[2])
	if value != wantValue || !slices.Equal(ring, whole) {
		t.Errorf("value %g, want %g; forces equal: %v", value, wantValue, slices.Equal(ring, whole))
	}
}
