package mind

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/guard"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// golden is the kernel of the golden file.
var golden = Kernel{Dilation: 2, Least: Steady}

// The golden file is written by testdata/make_golden.py with the authors' torch formulation.
func TestDescriptorsMatchTorch(t *testing.T) {
	raw := testkit.Must(os.ReadFile("testdata/golden.f32"))(t)
	values := make([]float32, len(raw)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	size := [3]int{9, 10, 11}
	n := 9 * 10 * 11
	if len(values) != (1+Channels)*n {
		t.Fatalf("golden file holds %d values, want %d", len(values), (1+Channels)*n)
	}
	image, want := values[:n], values[n:]
	got := Describe(image, nil, size, golden, 1)
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 2e-5 {
			t.Fatalf("channel %d voxel %d: %g, torch has %g", i/n, i%n, got[i], want[i])
		}
	}
	if !slices.Equal(got, Describe(image, nil, size, golden, 3)) {
		t.Error("another number of threads gives other bits")
	}
}

// How much of a grid lies beyond an image must not decide how its descriptors look.
func TestDescriptorsDoNotDependOnTheMargin(t *testing.T) {
	const n, margin, big = 12, 5, 12 + 2*5
	rng := rand.New(rand.NewPCG(3, 4))
	image, grown, known := make([]float32, n*n*n), make([]float32, big*big*big), make([]float32, big*big*big)
	for i := range image {
		image[i] = rng.Float32()
		if i%n < 7 || i/n%n < 4 { // nearly flat, as air is: there the limits decide
			image[i] *= 0.01
		}
	}
	at := func(i int) (p [3]int, inside bool) {
		inside = true
		for k, q := range [3]int{i % big, i / big % big, i / big / big} {
			p[k] = min(max(q-margin, 0), n-1)
			inside = inside && p[k] == q-margin
		}
		return p, inside
	}
	for i := range grown {
		p, inside := at(i)
		grown[i] = image[(p[2]*n+p[1])*n+p[0]]
		if inside {
			known[i] = 1
		}
	}
	alone, within := Describe(image, nil, [3]int{n, n, n}, golden, 1), Describe(grown, known, [3]int{big, big, big}, golden, 1)
	for i := range grown {
		p, inside := at(i)
		if !inside || min(p[0], p[1], p[2]) < 3 || max(p[0], p[1], p[2]) > n-4 { // farther out the neighbours of a patch lie beyond
			continue
		}
		for c := range Channels {
			a, b := alone[c*n*n*n+(p[2]*n+p[1])*n+p[0]], within[c*big*big*big+i]
			if math.Abs(float64(a-b)) > 2e-3 {
				t.Fatalf("channel %d at %v: %g alone, %g with a margin", c, p, a, b)
			}
		}
	}
}

func TestDescriptorsOfConstantVolume(t *testing.T) {
	for _, v := range Describe(make([]float32, 60), nil, [3]int{3, 4, 5}, golden, 2) {
		if v != 1 {
			t.Fatalf("constant volume: %g, want 1 everywhere", v)
		}
	}
}

func TestDecay(t *testing.T) {
	for x := float32(0); x < 200; x += 0.0173 {
		if got, want := float64(Decay(x)), math.Exp(-float64(x)); math.Abs(got-want) > 2e-7 {
			t.Errorf("exp(-%g) is %g, want %g", x, got, want)
		}
	}
	if got := Decay(0); got != 1 {
		t.Errorf("exp(0) is %g", got)
	}
}

// Without the processor's vectors the Go loops run: the same bits.
func TestVectorsMatchLoops(t *testing.T) {
	if !cpu.AVX2() {
		t.Skip("no vectors on this processor")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 7, 8, 15, 43, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			values := make([]float32, Channels*n)
			for i := range values {
				values[i] = float32(math.Exp(4 * rng.NormFloat64()))
			}
			run := func() (differences, variance, descriptors []float32) {
				out := guard.Slice(t, values)
				variance = guard.Slice(t, make([]float32, n))
				contrast(out, variance, n)
				differences = slices.Clone(out)
				describe(out, variance, n, 1, 50)
				return differences, variance, out
			}
			differences, variance, descriptors := run()
			restore := cpu.Disable()
			wantDifferences, wantVariance, wantDescriptors := run()
			restore()
			if !slices.Equal(differences, wantDifferences) || !slices.Equal(variance, wantVariance) {
				t.Errorf("%d voxels: contrast differs", n)
			}
			if !slices.Equal(descriptors, wantDescriptors) {
				t.Errorf("%d voxels: descriptors differ: %v, want %v", n, descriptors, wantDescriptors)
			}
		})
	}
}

func BenchmarkDescribe(b *testing.B) {
	size := [3]int{96, 96, 96}
	data := make([]float32, 96*96*96)
	for i := range data {
		data[i] = float32(i*7919%1000) / 1000
	}
	for b.Loop() {
		Describe(data, nil, size, golden, 1)
	}
}
