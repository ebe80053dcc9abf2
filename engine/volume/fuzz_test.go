package volume

import (
	"encoding/binary"
	"math"
	"testing"
)

// A grid that passes Check has maps between index and millimetres that are each other's inverses.
func FuzzGeometry(f *testing.F) {
	plain := Geometry{Size: [3]int{5, 6, 7}, Spacing: [3]float64{1, 2, 3}, Origin: [3]float64{-1, 0, 1}, Direction: Identity}
	far := Geometry{Size: [3]int{2, 3, 4}, Spacing: [3]float64{1e-6, 1e-4, 1e-5}, Origin: [3]float64{1e9, -1e9, 0}, Direction: [9]float64{0, -1, 0, 1, 0, 0, 0, 0, -1}}
	for _, g := range []Geometry{plain, far, {}} {
		var seed []byte
		for _, n := range g.Size {
			seed = binary.LittleEndian.AppendUint64(seed, uint64(n))
		}
		for _, xs := range [][]float64{g.Spacing[:], g.Origin[:], g.Direction[:]} {
			for _, x := range xs {
				seed = binary.LittleEndian.AppendUint64(seed, math.Float64bits(x))
			}
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() (word uint64) {
			if len(data) >= 8 {
				word, data = binary.LittleEndian.Uint64(data), data[8:]
			}
			return word
		}
		var g Geometry
		for a := range g.Size {
			g.Size[a] = int(next())
		}
		for _, xs := range [][]float64{g.Spacing[:], g.Origin[:], g.Direction[:]} {
			for a := range xs {
				xs[a] = math.Float64frombits(next())
			}
		}
		if g.Check("fuzz") != nil {
			return
		}
		farthest := 0.0
		for a := range 3 {
			farthest = max(farthest, math.Abs(g.Origin[a]), float64(g.Size[a])*g.Spacing[a])
		}
		// what doubles leave of an index, where the directions are nearly in one plane
		slack := 1e-6 + 1e-10*farthest/min(g.Spacing[0], g.Spacing[1], g.Spacing[2])
		there, back := g.IndexToPhysical(), g.PhysicalToIndex()
		for a := range 3 {
			var index [3]float64
			index[a] = float64(g.Size[a] - 1)
			found := back.Apply(there.Apply(index))
			for b := range 3 {
				if !(math.Abs(found[b]-index[b]) <= slack) {
					t.Errorf("%+v: the index %v comes back as %v", g, index, found)
				}
			}
		}
	})
}
