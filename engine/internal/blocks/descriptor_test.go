package blocks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/volume"
)

// cube is a volume of n^3 voxels of 0.
func cube(n int) *volume.Volume {
	return volume.Zeros(volume.Geometry{Size: [3]int{n, n, n}, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity})
}

// ones is a volume of n^3 voxels of 1.
func ones(n int) *volume.Volume {
	v := cube(n)
	copy(v.Data, slices.Repeat([]float32{1}, len(v.Data)))
	return v
}

// balls is a volume of n^3 voxels full of balls on a lattice, moved by shift, of intensities that alternate from one to
// the next along x.
func balls(n int, shift [3]int) *volume.Volume {
	const period, radius = 8, 3
	v := cube(n)
	for i := range v.Data {
		at := [3]int{i % n, i / n % n, i / (n * n)}
		square := 0
		for a := range at {
			at[a] += 2*period - shift[a]
			off := (at[a]+period/2)%period - period/2
			square += off * off
		}
		switch {
		case square > radius*radius:
		case (at[0]+period/2)/period%2 == 0:
			v.Data[i] = 0.8
		default:
			v.Data[i] = 1
		}
	}
	return v
}

// Where structures repeat, one that is off by a period matches about as well as the true one but for its intensity.
func TestTonesTellStructuresApart(t *testing.T) {
	const n, margin, right, wrong = 40, 5, 5, -3
	// The moving image begins a margin earlier.
	im := aligned.Images{
		Fixed: balls(n, [3]int{}), Moving: balls(n+2*margin, [3]int{right + margin, margin, margin}),
		FixedValid: ones(n), MovingValid: ones(n + 2*margin),
	}
	f, m := ThresholdsOf(im.Fixed, im.Fixed, im.FixedValid, im.FixedValid)
	gap := func(f, m Thresholds) float64 {
		l := Level{5, 5, 1, 36}
		fixed, moving := Describe(im.Fixed, im.FixedValid, f, Wide, &Room{}, 1), Describe(im.Moving, im.MovingValid, m, Wide, &Room{}, 1)
		s := NewStep(l, im, fixed, moving, nil, &Room{}, 1)
		size := s.Control(s.Grid).Size
		width := 2*l.Radius + 1
		costs := make([]float32, width*width*width)
		newPatch(s, s.byPhase()).costs(costs, size, (size[2]/2*size[1]+size[1]/2)*size[0]+size[0]/2)
		at := func(dx int) float64 { return float64(costs[(l.Radius*width+l.Radius)*width+l.Radius+dx]) }
		if at(right) != 0 {
			t.Errorf("the true displacement costs %g", at(right))
		}
		return at(wrong) - at(right)
	}
	without, with := gap(nil, nil), gap(f, m)
	t.Logf("a period off costs %.2f by structure, %.2f with intensities", without, with)
	if with < without+0.1 {
		t.Errorf("a period off costs %g by structure and %g with intensities", without, with)
	}
}

func TestTones(t *testing.T) {
	const n = 24
	ramp, curved, known := cube(n), cube(n), ones(n)
	for i := range ramp.Data {
		x := float64(i%n) / (n - 1)
		ramp.Data[i], curved.Data[i] = float32(x), float32(math.Sqrt(x))
	}
	known.Data[0] = 0
	f, m := ThresholdsOf(ramp, curved, known, known)
	if len(f) == 0 || len(f) != len(m) || len(f) > thresholdCount || mind.Channels+thresholdCount > 15 {
		t.Fatalf("thresholds %v and %v", f, m)
	}
	for k := range f {
		if k > 0 && f[k] <= f[k-1] || math.Abs(float64(m[k]*m[k]-f[k])) > 2e-3 {
			t.Errorf("thresholds %v and %v; they rise, and the second image is the first one's root", f, m)
		}
	}

	// Within the ramp the structure is the same everywhere: what differs is the thresholds between.
	for _, thresholds := range []Thresholds{f, nil} {
		t.Run(fmt.Sprintf("%d thresholds", len(thresholds)), func(t *testing.T) {
			codes := Describe(ramp, known, thresholds, Wide, &Room{}, 1)
			if codes[0] != (Descriptor{}) || slices.Contains(codes[1:], Descriptor{}) {
				t.Error("what is unknown is not told from what is known")
			}
			row := (n/2*n + n/2) * n
			for a := 4; a < n-4; a++ {
				for b := 4; b < n-4; b++ {
					want := 0.0
					for _, threshold := range thresholds {
						share := func(x int) float64 { // of the way across the threshold
							return min(max(float64(ramp.Data[row+x]-threshold)/0.04+0.5, 0), 1)
						}
						want += math.Abs(share(a) - share(b))
					}
					p, q := codes[row+a], codes[row+b]
					got := float64(apart(p[0], q[0])+apart(p[1], q[1])) / unit
					if math.Abs(got-want) > 0.03*float64(len(thresholds)) {
						t.Fatalf("voxels %d and %d of the ramp differ by %.3f, their thresholds by %.3f", a, b, got, want)
					}
				}
			}
		})
	}

	dark := cube(n)
	for _, c := range []struct {
		name          string
		fixed, moving *volume.Volume
		known         *volume.Volume
	}{{"images without intensities", dark, dark, known}, {"images known nowhere in common", ramp, ramp, dark}} {
		if f, m := ThresholdsOf(c.fixed, c.moving, c.known, known); f != nil || m != nil {
			t.Errorf("%s have thresholds %v, %v", c.name, f, m)
		}
	}
}

func TestApart(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 10000 {
		var a, b Descriptor
		want := 0
		for k := range 16 {
			x, y := r.IntN(256), r.IntN(256)
			a.put(k, uint8(x))
			b.put(k, uint8(y))
			want += max(x-y, y-x)
		}
		if got := int(apart(a[0], b[0]) + apart(a[1], b[1])); got != want {
			t.Fatalf("%x and %x are apart by %d, want %d", a, b, got, want)
		}
	}
}

// Noise of a millionth changes the costs by as little: no bit flips.
func TestDescriptorsAreContinuous(t *testing.T) {
	const n = 24
	image, noisy, valid := cube(n), cube(n), ones(n)
	r := rand.New(rand.NewPCG(4, 5))
	for i := range image.Data {
		image.Data[i] = r.Float32()
		noisy.Data[i] = image.Data[i] + 1e-6*float32(r.NormFloat64())
	}
	thresholds := Thresholds{0.4, 0.5, 0.6}
	a, b := Describe(image, valid, thresholds, Wide, &Room{}, 1), Describe(noisy, valid, thresholds, Wide, &Room{}, 1)
	most := uint64(0)
	for i := range a {
		for half := range a[i] {
			most = max(most, apart(a[i][half], b[i][half]))
		}
	}
	if most > 3 { // of the 51 that count as 1
		t.Errorf("noise of a millionth changes a descriptor by %d", most)
	}
}
