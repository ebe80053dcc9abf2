package aligned

import (
	"fmt"
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func cube(n int, spacing float64) volume.Geometry {
	return volume.Geometry{Size: [3]int{n, n, n}, Spacing: [3]float64{spacing, spacing, spacing}, Direction: volume.Identity}.CenteredAt([3]float64{})
}

// wave is a volume on g with a period of so many mm along x.
func wave(g volume.Geometry, period float64) *volume.Volume {
	v := volume.Zeros(g)
	for i := range v.Data {
		p := g.IndexToPhysical().Apply([3]float64{float64(i % g.Size[0]), 0, 0})
		v.Data[i] = float32(math.Sin(2 * math.Pi * p[0] / period))
	}
	return v
}

// What is smoothed by blocks and a Gaussian is as smooth as by a Gaussian alone.
func TestBlur(t *testing.T) {
	for _, c := range []struct {
		r         float64
		n         int
		block     int
		unblurred bool
	}{
		{0.5, 100, 1, true}, {1, 100, 1, true}, {4, 100, 1, false}, {32, 1000, 1, false}, {33, 1000, 4, false}, {1000, 1 << 20, 125, false},
		{1000, 64, 64, true}, {1e9, 64, 64, true},
	} {
		t.Run(fmt.Sprintf("%g of %d in %d", c.r, c.n, c.block), func(t *testing.T) {
			block, sigma := blur(c.r, c.n)
			if block != c.block || (sigma == 0) != c.unblurred || sigma > 16 {
				t.Errorf("%g voxels of %d: blocks of %d, sigma %g; want blocks of %d", c.r, c.n, block, sigma, c.block)
			}
			f := float64(block)
			if got, want := f*f*sigma*sigma+(f*f-1)/12, (c.r*c.r-1)/4; sigma > 0 && math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%g voxels: variance %g, want %g", c.r, got, want)
			}
		})
	}
}

func TestBlocksLieWhereTheirVoxelsDo(t *testing.T) {
	const r = 40
	g := cube(9, r)
	fine := volume.Geometry{Size: [3]int{330, 7, 5}, Spacing: [3]float64{1, 60, 60}, Direction: volume.Identity}.CenteredAt([3]float64{0.25, 0, 0})
	v := testkit.Filled(fine, func(i int) float32 { return float32(i % fine.Size[0]) })
	p := Pair{Fixed: v, Moving: v, Initial: volume.IdentityAffine()}
	im := p.At(g, 0, RepeatedEdge, 1)
	for x := 2; x < 7; x++ {
		mm := float64(x-4) * r
		want := (mm - 0.25 + 164.5 - 1.6) / (329 - 3.2) // percentiles 0.5 and 99.5 become 0 and 1
		if got := float64(im.Moving.Data[(4*9+4)*9+x]); math.Abs(got-want) > 2e-3 {
			t.Errorf("at %g mm: %g, want %g", mm, got, want)
		}
	}
}

// A transform that scales decides how coarse the grid is for the moving image.
func TestScalingDecidesTheBlur(t *testing.T) {
	t.Parallel()
	g := cube(16, 1)
	moving := wave(cube(160, 0.1), 0.8)
	scaled := volume.IdentityAffine()
	for k := range 3 {
		scaled.M[4*k] = 0.1
	}
	contrast := func(a volume.Affine) float64 {
		p := Pair{Fixed: wave(g, 8), Moving: moving, Initial: a}
		v := p.At(g, 0, RepeatedEdge, 1).Moving
		lo, hi := v.MinMax()
		return float64(hi - lo)
	}
	if c := contrast(scaled); c < 0.9 {
		t.Errorf("voxels that the transform makes as large as the grid's are blurred: contrast %g", c)
	}
	if c := contrast(volume.IdentityAffine()); c > 0.2 {
		t.Errorf("voxels of a tenth of the grid's are not blurred: contrast %g", c)
	}
}

func TestGridOfASheetIsBounded(t *testing.T) {
	for _, c := range []struct {
		name    string
		g       volume.Geometry
		spacing float64
		same    bool
	}{
		{"torso", volume.Geometry{Size: [3]int{300, 300, 100}, Spacing: [3]float64{1, 1, 4}, Direction: volume.Identity}, 1.6, true},
		{"few slices", volume.Geometry{Size: [3]int{512, 512, 2}, Spacing: [3]float64{0.4, 0.4, 2}, Direction: volume.Identity}, 0.7, true},
		{"sheet", volume.Geometry{Size: [3]int{300, 300, 10}, Spacing: [3]float64{1, 1, 0.02}, Direction: volume.Identity}, 0.27, false},
	} {
		p := Pair{Fixed: &volume.Volume{Geometry: c.g}}
		if got := p.Grid(c.spacing); (got.Spacing[0] == c.spacing) != c.same || got.Voxels() > 10<<20 {
			t.Errorf("%s: %v voxels of %v mm", c.name, got.Size, got.Spacing)
		}
	}
}

// On a grid of its own voxels the fixed image is read as it is; other grids are of cubes.
func TestGridOfFixed(t *testing.T) {
	for _, c := range []struct {
		name    string
		size    [3]int
		spacing [3]float64
		own     bool
	}{
		{"cubes", [3]int{20, 18, 16}, [3]float64{1, 1, 1}, true},
		{"nearly cubes", [3]int{20, 18, 16}, [3]float64{0.94, 0.94, 1}, true},
		{"thick slices", [3]int{20, 18, 16}, [3]float64{1, 1, 1.3}, false},
		{"few slices", [3]int{20, 18, 5}, [3]float64{1, 1, 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			reversed := [9]float64{-1, 0, 0, 0, -1, 0, 0, 0, 1}
			v := testkit.Filled(volume.Geometry{Size: c.size, Spacing: c.spacing, Origin: [3]float64{3, 4, 5}, Direction: reversed}, func(i int) float32 { return float32(i * 7919 % 101) })
			p := Pair{Fixed: v, Moving: v, Initial: volume.IdentityAffine()}
			g := p.GridOfFixed(Spacing(v.Geometry))
			if !c.own {
				if g != p.Grid(Spacing(v.Geometry)) {
					t.Errorf("grid %v, want one of cubes", g)
				}
				return
			}
			if want, _, _ := v.Geometry.Canonical(); g != want {
				t.Fatalf("grid %v, want %v", g, want)
			}
			im := p.At(g, 2, RepeatedEdge, 1)
			for i, got := range im.Fixed.Data {
				x, y, z := c.size[0]-1-i%g.Size[0], c.size[1]-1-i/g.Size[0]%g.Size[1], i/(g.Size[0]*g.Size[1])
				want := v.Data[(z*c.size[1]+y)*c.size[0]+x] / 100
				if math.Abs(float64(got-want)) > 1e-4 {
					t.Fatalf("voxel %d: %g, want %g as it is in the image", i, got, want)
				}
			}
		})
	}
}
