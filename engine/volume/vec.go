package volume

import "math"

// Dot returns the scalar product of a and b.
func Dot(a, b [3]float64) float64 {
	return float64(a[0]*b[0]) + float64(a[1]*b[1]) + float64(a[2]*b[2])
}

// Cross returns the vector product of a and b.
func Cross(a, b [3]float64) [3]float64 {
	return [3]float64{
		float64(a[1]*b[2]) - float64(a[2]*b[1]),
		float64(a[2]*b[0]) - float64(a[0]*b[2]),
		float64(a[0]*b[1]) - float64(a[1]*b[0]),
	}
}

// Sub returns a - b.
func Sub(a, b [3]float64) [3]float64 { return [3]float64{a[0] - b[0], a[1] - b[1], a[2] - b[2]} }

// Norm returns the length of v.
func Norm(v [3]float64) float64 { return math.Sqrt(Dot(v, v)) }

// Distance returns how far a is from b. Its last bit may differ from that of the Norm of their difference.
func Distance(a, b [3]float64) float64 {
	return math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2])
}

// Product returns the matrix of the map "b first, then a", row-major.
func Product(a, b [9]float64) (c [9]float64) {
	for r := range 3 {
		for k := range 3 {
			c[3*r+k] = float64(a[3*r]*b[k]) + float64(a[3*r+1]*b[3+k]) + float64(a[3*r+2]*b[6+k])
		}
	}
	return c
}
