package volume

import (
	"math"
	"testing"
)

// By hand, from the definition.
func TestStrain(t *testing.T) {
	c, s := math.Cos(0.3), math.Sin(0.3)
	for _, c := range []struct {
		name string
		m    [9]float64
		want float64
	}{
		{"the identity", Identity, 0},
		{"a turn", [9]float64{c, -s, 0, s, c, 0, 0, 0, 1}, 0},
		{"a mirror", [9]float64{-1, 0, 0, 0, 1, 0, 0, 0, 1}, 0},
		{"one axis longer by a tenth", [9]float64{1.1, 0, 0, 0, 1, 0, 0, 0, 1}, 0.105},
		{"a shear", [9]float64{1, 0.2, 0, 0, 1, 0, 0, 0, 1}, math.Sqrt(2*0.04+0.0016) / 2},
	} {
		if got := (Affine{M: c.m}).Strain(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: strain %g, want %g", c.name, got, c.want)
		}
	}
}
