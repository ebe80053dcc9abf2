package volume

import "testing"

func TestMiddle(t *testing.T) {
	g := Geometry{Size: [3]int{9, 10, 2}, Spacing: [3]float64{1, 2, 3}, Origin: [3]float64{5, 6, 7}, Direction: Identity}
	m := g.Middle(3)
	if m.Size != [3]int{3, 3, 1} || m.Origin != [3]float64{8, 12, 7} || m.Spacing != g.Spacing {
		t.Errorf("the middle third is %+v", m)
	}
}
