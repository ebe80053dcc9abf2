package volume

import "testing"

func TestMiddle(t *testing.T) {
	g := Geometry{Size: [3]int{9, 10, 2}, Spacing: [3]float64{1, 2, 3}, Origin: [3]float64{5, 6, 7}, Direction: Identity}
	m := g.Middle(3)
	if m.Size != [3]int{3, 3, 1} || m.Origin != [3]float64{8, 12, 7} || m.Spacing != g.Spacing {
		t.Errorf("the middle third is %+v", m)
	}
}

func TestAxes(t *testing.T) {
	slice, whole := Geometry{Size: [3]int{4, 1, 1}}, Geometry{Size: [3]int{1, 4, 2}}
	if slice.Axes() != 2 || whole.Axes() != 3 {
		t.Errorf("a slice has %d axes, a volume %d", slice.Axes(), whole.Axes())
	}
}

func TestWithinPlane(t *testing.T) {
	a := Affine{M: [9]float64{2, 3, 1, 4, 5, 1, 1, 1, 7}, T: [3]float64{8, 9, 6}}
	if p := a.WithinPlane().Apply([3]float64{1, 1, 5}); p != [3]float64{13, 18, 5} {
		t.Errorf("(1, 1, 5) is taken to %v", p)
	}
}

func TestIndex(t *testing.T) {
	g := Geometry{Size: [3]int{4, 3, 2}}
	if g.Index(0) != [3]int{} || g.Index(1+4*(2+3*1)) != [3]int{1, 2, 1} || g.Point(7) != [3]float64{3, 1, 0} {
		t.Errorf("%v, %v, %v", g.Index(0), g.Index(1+4*(2+3*1)), g.Point(7))
	}
	if g.Strides() != [3]int{1, 4, 12} {
		t.Errorf("strides %v", g.Strides())
	}
}
