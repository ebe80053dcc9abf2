package refine

import (
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/moments"
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Agreement is how well two images agree under a smooth deformation, at half the resolution, where noise counts less.
// Means are over the voxels whose whole window is valid in both images, weighted by the fixed image's structure: its
// local variance, at most the mean of that.
//
// Two scans of one body agree up to noise and up to tissue that is new or gone. Two people's do not, under any smooth
// deformation.
type Agreement struct {
	Correlation float64 `json:"correlation"` // mean of the squared local correlation, whatever its sign: 0..1
	Negative    float64 `json:"negative"`    // share of that where the local correlation is negative
	Detail      float64 `json:"detail"`      // share of Correlation that is left at the finest resolution; 0: not measured

	// Gain is the standard deviation of the logarithm of one image's local contrast over the other's, weighted by the
	// squared correlation.
	Gain float64 `json:"gain"`
}

// agree measures the images under u.
func agree(im aligned.Images, u *field.Field, threads int) Agreement {
	n := len(im.Fixed.Data)
	warped, valid := make([]float32, n), make([]float32, n)
	im.Warp(warped, u, nil, threads)
	im.Valid(valid, u, threads)
	variance, covariance, gain, whole := make([]float32, n), make([]float32, n), make([]float32, n), make([]bool, n)
	windowed := float32(1) // voxels
	for range im.Fixed.Axes() {
		windowed *= float32(2*window + 1)
	}
	over := 1 / windowed
	moments.Windows(im.Fixed.Size, window, im.Fixed.Data, warped, valid, threads, func(i int, s moments.Sums) {
		if s.N < windowed-0.5 {
			return
		}
		whole[i] = true
		f, m := s.F*over, s.M*over
		b, c := max(float32(s.FF*over)-float32(f*f), 0), max(float32(s.MM*over)-float32(m*m), 0)
		a := float32(s.FM*over) - float32(f*m)
		variance[i] = b
		covariance[i] = a * float32(math.Abs(float64(a))) / ((b + varianceFloor) * (c + varianceFloor))
		gain[i] = 0.5 * float32(math.Log(float64((b+varianceFloor)/(c+varianceFloor))))
	})
	type sums struct{ weight, squared, negative, gain, gain2 float64 }
	add := func(s, t sums) sums {
		return sums{s.weight + t.weight, s.squared + t.squared, s.negative + t.negative, s.gain + t.gain, s.gain2 + t.gain2}
	}
	structure := parallel.Reduce(n, 1<<14, threads, func(lo, hi int) (s sums) {
		for i := lo; i < hi; i++ {
			if whole[i] {
				s.weight++
				s.squared += float64(variance[i])
			}
		}
		return s
	}, add)
	if structure.squared == 0 {
		return Agreement{}
	}
	mean := structure.squared / structure.weight
	t := parallel.Reduce(n, 1<<14, threads, func(lo, hi int) (s sums) {
		for i := lo; i < hi; i++ {
			if !whole[i] {
				continue
			}
			weight := min(float64(variance[i])/mean, 1)
			squared := float64(weight * math.Abs(float64(covariance[i])))
			s.weight += weight
			s.squared += squared
			if covariance[i] < 0 {
				s.negative += squared
			}
			g := float64(gain[i])
			s.gain += float64(squared * g)
			s.gain2 += float64(squared * g * g)
		}
		return s
	}, add)
	if t.squared == 0 {
		return Agreement{}
	}
	average := t.gain / t.squared
	return Agreement{
		Correlation: t.squared / t.weight,
		Negative:    t.negative / t.squared,
		Gain:        math.Sqrt(max(t.gain2/t.squared-float64(average*average), 0)),
	}
}
