package metric

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// blobs is a map of three labels that touch, moved by some voxels.
func blobs(g volume.Geometry, r *rand.Rand, shift int) *volume.Volume {
	return testkit.Filled(g, func(i int) float32 {
		p := g.Point(i)
		wave := math.Sin((p[0]-float64(shift))/3) + math.Sin(p[1]/4+1) + math.Sin(p[2]/2+2) + 0.4*r.Float64()
		return float32(min(max(math.Floor(wave+1), 0), 3))
	})
}

// slowHD95 measures every surface voxel against every other.
func slowHD95(a, b *volume.Volume, l int) float64 {
	surface := func(v *volume.Volume) (points []point) {
		at := func(x, y, z int) int {
			for a, k := range []*int{&x, &y, &z} {
				if v.Size[a] == 1 { // a slice has no surface across its plane
					*k = 0
				}
			}
			if x < 0 || y < 0 || z < 0 || x >= v.Size[0] || y >= v.Size[1] || z >= v.Size[2] {
				return 0
			}
			return label(float64(v.Data[x+v.Size[0]*(y+v.Size[1]*z)]))
		}
		for i := range v.Data {
			x, y, z := i%v.Size[0], i/v.Size[0]%v.Size[1], i/(v.Size[0]*v.Size[1])
			inside := at(x-1, y, z) == l && at(x+1, y, z) == l && at(x, y-1, z) == l && at(x, y+1, z) == l && at(x, y, z-1) == l && at(x, y, z+1) == l
			if at(x, y, z) == l && !inside {
				points = append(points, point{int32(x), int32(y), int32(z)})
			}
		}
		return points
	}
	directed := func(from, to []point) float64 {
		var d []float64
		for _, p := range from {
			best := math.Inf(1)
			for _, q := range to {
				best = min(best, math.Sqrt(squared(p, q, a.Spacing)))
			}
			d = append(d, best)
		}
		slices.Sort(d)
		pos := 0.95 * float64(len(d)-1)
		i := int(pos)
		return d[i] + (d[min(i+1, len(d)-1)]-d[i])*(pos-float64(i))
	}
	s, t := surface(a), surface(b)
	return max(directed(s, t), directed(t, s))
}

func TestHD95EqualsEveryPairOfVoxels(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name    string
		size    [3]int
		spacing [3]float64
		shift   int
	}{
		{"close", [3]int{30, 26, 22}, [3]float64{1, 1, 1}, 1},
		{"far", [3]int{60, 20, 20}, [3]float64{0.7, 1.1, 0.9}, 9},
		{"thick slices", [3]int{40, 30, 6}, [3]float64{1.2, 1.2, 8}, 2},
		{"across words, close", [3]int{150, 14, 10}, [3]float64{1, 1, 1}, 2},
		{"across words, far", [3]int{200, 10, 8}, [3]float64{0.5, 1, 1}, 70},
		{"between", [3]int{90, 18, 16}, [3]float64{1, 1, 1}, 4},
		{"one slice", [3]int{50, 40, 1}, [3]float64{1, 1, 5}, 3},
		{"one slice along x", [3]int{1, 50, 40}, [3]float64{5, 1, 1}, 0},
		{"one slice along y", [3]int{150, 1, 40}, [3]float64{1, 5, 1}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := volume.Geometry{Size: c.size, Spacing: c.spacing, Direction: volume.Identity}
			a, b := blobs(g, r, 0), blobs(g, r, c.shift)
			got := compare(a, b, 2)
			if len(got) != 3 {
				t.Fatal(got)
			}
			for _, s := range got {
				if want := slowHD95(a, b, s.Label); !(math.Abs(s.HD95-want) <= 1e-9) {
					t.Errorf("label %d has %.12g, want %.12g", s.Label, s.HD95, want)
				}
			}
		})
	}
}

// Two labels at the corners of a large grid: how far they are apart must not cost time.
func TestHD95OfFarLabels(t *testing.T) {
	g := volume.Geometry{Size: [3]int{200, 150, 100}, Spacing: [3]float64{1, 1, 2}, Direction: volume.Identity}
	a, b := volume.Zeros(g), volume.Zeros(g)
	a.Data[0], b.Data[len(b.Data)-1] = 1, 1
	want := math.Sqrt(199*199 + 149*149 + 198*198)
	if got := compare(a, b, 2); len(got) != 1 || math.Abs(got[0].HD95-want) > 1e-9 {
		t.Errorf("%v, want %g", got, want)
	}
}
