package volume

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"
)

// steps are the equal distances at which an image's intensities lie: (first + k) step, of whole numbers k.
type steps struct{ step, first float64 }

const (
	offStep     = 0.35 // steps: no voxel of an image that has steps lies as far from one
	fewestSteps = 8    // that its voxels have, so that they tell of one
)

// stepped returns v with each finite voxel at its step, so that what a file's scale or another type of voxels rounded does not
// count: v itself where its voxels are whole numbers, or have no steps.
func (v *Volume) stepped() *Volume {
	isBroken := func(x float32) bool { return IsFinite(x) && x != float32(math.Round(float64(x))) }
	if !slices.ContainsFunc(v.Data, isBroken) {
		return v
	}
	s := steps{step: 1}
	if !s.hold(v.Data) {
		if s = stepsOf(v.Data); !s.hold(v.Data) {
			return v
		}
	}
	// Of an image and of the same one under noise, s differs in its last digits.
	step, _ := strconv.ParseFloat(strconv.FormatFloat(s.step, 'e', 3, 64), 64)
	first := math.Round(s.first*100) / 100
	out := &Volume{Geometry: v.Geometry, Data: slices.Clone(v.Data)}
	for i, x := range out.Data {
		if IsFinite(x) {
			out.Data[i] = float32((s.number(x) + first) * step)
		}
	}
	return out
}

// number returns the number of the step that is nearest to x.
func (s steps) number(x float32) float64 { return math.Round(float64(x)/s.step - s.first) }

// hold says whether all finite values lie at steps, of which there are enough.
func (s steps) hold(values []float32) bool {
	if !(s.step > 0) {
		return false
	}
	numbers := map[float64]bool{}
	for _, x := range values {
		if !IsFinite(x) {
			continue
		}
		k := s.number(x)
		if math.Abs(float64(x)/s.step-s.first-k) > offStep {
			return false
		}
		if len(numbers) < fewestSteps {
			numbers[k] = true
		}
	}
	return len(numbers) == fewestSteps
}

// stepsOf returns the steps that some thousands of the values have, if any: the least distance between two that is no noise, fitted
// to all of them.
func stepsOf(values []float32) steps {
	const (
		sample  = 1 << 15
		rounded = 1e-6 // of the range, by which float32 rounds
		apart   = 4    // times as far as noise
	)
	var sorted []float64
	for i := 0; i < len(values); i += max(1, len(values)/sample) {
		if x := values[i]; IsFinite(x) {
			sorted = append(sorted, float64(x))
		}
	}
	if len(sorted) < fewestSteps {
		return steps{}
	}
	slices.Sort(sorted)
	gaps := make([]float64, len(sorted)-1)
	for i := range gaps {
		gaps[i] = sorted[i+1] - sorted[i]
	}
	slices.Sort(gaps)
	least := float64(rounded * (sorted[len(sorted)-1] - sorted[0]))
	at := len(gaps) / 2
	for at+1 < len(gaps) && gaps[at+1]+least < float64(apart*(gaps[at]+least)) {
		at++
	}
	if at+1 >= len(gaps) {
		return steps{}
	}
	noise := (gaps[at] + gaps[at+1]) / 2 // which is less than this
	var means, counts []float64
	for i := 0; i < len(sorted); {
		from, sum := i, 0.0
		for ; i < len(sorted) && (i == from || sorted[i]-sorted[i-1] < noise); i++ {
			sum += sorted[i]
		}
		means, counts = append(means, sum/float64(i-from)), append(counts, float64(i-from))
	}
	// Neighbours are a step apart, others several.
	nearest := math.Inf(1)
	for i, x := range means[1:] {
		nearest = min(nearest, x-means[i])
	}
	sum, neighbours := 0.0, 0.0
	for i, x := range means[1:] {
		if d := x - means[i]; d < 1.5*nearest {
			sum, neighbours = sum+d, neighbours+1
		}
	}
	step := sum / neighbours
	numbers := make([]float64, len(means))
	for i, x := range means[1:] {
		numbers[i+1] = numbers[i] + math.Round((x-means[i])/step)
	}
	first, step := stat.LinearRegression(numbers, means, counts, false)
	return steps{step: step, first: first / step}
}
