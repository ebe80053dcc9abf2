package volume_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// ball is a ball of 200 to 400 in the middle of a grid of side voxels, with what border returns around it.
func ball(side int, border func() float32) *volume.Volume {
	g := testkit.Grid([3]int{side, side, side})
	return testkit.Filled(g, func(i int) float32 {
		at := g.Index(i)
		square := 0.0
		for _, x := range at {
			square += math.Pow(float64(x)-float64(side-1)/2, 2)
		}
		if square > math.Pow(0.4*float64(side), 2) {
			return border()
		}
		return float32(300 + 100*math.Sin(float64(at[0])/3)*math.Cos(float64(at[1])/2))
	})
}

func TestDarkBorder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(sd float64) func() float32 { return func() float32 { return float32(sd * random.NormFloat64()) } }
	for name, c := range map[string]struct {
		v           *volume.Volume
		least, most float64
	}{
		"zeros":                      {ball(30, noise(0)), 3, 4.1},
		"noise of a hundredth":       {ball(30, noise(4)), 14, 20},
		"air under noise":            {ball(30, noise(10)), -25, -10},
		"tissue at the edges":        {testkit.Filled(testkit.Grid([3]int{20, 20, 20}), func(i int) float32 { return float32(i % 101) }), 0, 2},
		"a border that is not known": {ball(30, func() float32 { return nan }), 200, 204},
	} {
		if dark := float64(c.v.DarkBorder()); dark < c.least || dark > c.most {
			t.Errorf("%s: dark up to %g, want %g to %g", name, dark, c.least, c.most)
		}
	}
}

// A border amid the tissue's values becomes the least one; a border beyond them, and values that are no border, stay.
func TestBorderAmidTissue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const side = 24
	constant := func(value float32) *volume.Volume { return ball(side, func() float32 { return value }) }
	inner := constant(300)
	for i := range inner.Data {
		if at := inner.Index(i); at[0] == side/2 && at[1] == side/2 && at[2] > 6 && at[2] < side-6 {
			inner.Data[i] = 300
		}
	}
	for name, c := range map[string]struct {
		v        *volume.Volume
		darkened bool
	}{
		"amid":            {constant(300), true},
		"amid, and noise": {ball(side, func() float32 { return float32(300 + 0.03*random.NormFloat64()) }), true},
		"tissue alike":    {inner, true},
		"dark":            {constant(0), false},
		"bright":          {constant(500), false},
		"no border":       {ball(side, func() float32 { return float32(200 + 200*random.Float64()) }), false},
		"not known":       {constant(nan), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.v.Plausible()
			if !c.darkened {
				if got != c.v {
					t.Error("the volume changed")
				}
				return
			}
			least := slices.Min(c.v.Data)
			outside := ball(side, func() float32 { return -1 })
			for i, x := range got.Data {
				want := c.v.Data[i]
				if outside.Data[i] == -1 {
					want = least
				}
				if x != want {
					t.Fatalf("voxel %v is %g, want %g", got.Index(i), x, want)
				}
			}
		})
	}
}
