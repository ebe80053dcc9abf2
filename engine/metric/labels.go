package metric

import "math"

// label rounds a voxel of a label map to the nearest integer; what is not finite counts as background.
func label(x float64) int {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return int(math.Floor(x + 0.5))
}

// TRE returns the distance in mm between every point of got and its partner in want; LPS mm, x, y, z interleaved.
func TRE(got, want []float64) []float64 {
	d := make([]float64, len(got)/3)
	for i := range d {
		x, y, z := got[3*i]-want[3*i], got[3*i+1]-want[3*i+1], got[3*i+2]-want[3*i+2]
		d[i] = math.Sqrt(float64(x*x) + float64(y*y) + float64(z*z))
	}
	return d
}
