package metric

import "math"

// label rounds a voxel of a label map to the nearest integer; what is not finite counts as background.
func label(x float64) int {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return int(math.Floor(x + 0.5))
}
