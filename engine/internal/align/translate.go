package align

import (
	"cmp"
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

const (
	minOverlap    = 0.45 // of the smaller body: below it, scores are chance
	overlapPower  = 0.3
	peaksPerScale = 4
)

// peak is one candidate of the search.
type peak struct {
	score     float64
	transform volume.Affine // fixed -> moving, mm
}

// searcher scores every translation of a moving image over a fixed one by FFT cross-correlation.
type searcher struct {
	fixed   features
	fft     *fft3
	size    [3]int        // of the transforms
	spectra [][]complex64 // of the fixed components, body, validity, and energy, conjugated
	threads int

	// What a search works in.
	spectrum, product, overlapSpectrum, energySpectrum []complex64
	score, overlap, energy                             []float32
}

// newSearcher prepares for moving images up to the given size.
func newSearcher(fixed features, moving [3]int, threads int) *searcher {
	s := &searcher{fixed: fixed, threads: threads}
	for a := range 3 {
		f := fixed.grid.Size[a]
		// Offsets with less than the least overlap may wrap around: their scores are not read.
		step := 1
		if a == 0 {
			step = 2
		}
		s.size[a] = fastSize(f+moving[a]-int(minOverlap*float64(min(f, moving[a]))), step)
	}
	s.fft = newFFT3(s.size, threads)
	for _, plane := range s.channels(fixed) {
		spectrum := make([]complex64, s.fft.spectrumLen())
		s.fft.forward(spectrum, plane, fixed.grid.Size)
		for i, v := range spectrum {
			spectrum[i] = complex(real(v), -imag(v))
		}
		s.spectra = append(s.spectra, spectrum)
	}
	for _, p := range []*[]complex64{&s.spectrum, &s.product, &s.overlapSpectrum, &s.energySpectrum} {
		*p = make([]complex64, s.fft.spectrumLen())
	}
	for _, p := range []*[]float32{&s.score, &s.overlap, &s.energy} {
		*p = make([]float32, s.size[0]*s.size[1]*s.size[2])
	}
	return s
}

// channels lists the planes to correlate: components, body, validity, energy (components and weighted body, squared).
func (s *searcher) channels(f features) [][]float32 {
	energy := make([]float32, len(f.body))
	for i, b := range f.body {
		energy[i] = bodyWeight * b * b
	}
	for _, plane := range f.planes {
		for i, v := range plane {
			energy[i] += float32(v * v)
		}
	}
	return append(append([][]float32{}, f.planes...), f.body, f.valid, energy)
}

// search returns the best peaks over all translations of moving, scaled first along its axes: fixed index i falls on
// scale*(i + offset + 0.5) - 0.5. 2 sum(F M) / (sum(v_M F^2) + sum(v_F M^2)) * (overlap of the bodies / smaller body)^0.3
// is the score of one.
func (s *searcher) search(moving features, scale [3]float64) []peak {
	m := rescaled(moving, scale, s.threads)
	planes := s.channels(m)
	k := len(m.planes)
	bodyAt, validAt, energyAt := k, k+1, k+2

	clear(s.product)
	clear(s.overlapSpectrum)
	clear(s.energySpectrum)
	accumulate := func(dst []complex64, fixed int, weight float32) {
		parallel.For(len(dst), 1<<14, s.threads, func(lo, hi int) {
			addProduct(dst[lo:hi], s.spectra[fixed][lo:hi], s.spectrum[lo:hi], weight)
		})
	}
	for c, plane := range planes {
		s.fft.forward(s.spectrum, plane, m.grid.Size)
		switch c {
		case bodyAt:
			accumulate(s.product, bodyAt, bodyWeight)
			accumulate(s.overlapSpectrum, bodyAt, 1)
		case validAt:
			accumulate(s.energySpectrum, energyAt, 1)
		case energyAt:
			accumulate(s.energySpectrum, validAt, 1)
		default:
			accumulate(s.product, c, 1)
		}
	}
	s.fft.inverse(s.score, s.product)
	s.fft.inverse(s.overlap, s.overlapSpectrum)
	s.fft.inverse(s.energy, s.energySpectrum)

	smaller := min(sum(s.fixed.body), sum(m.body))
	fixedEnergy := float64(real(s.spectra[energyAt][0])) // the zero frequency is the sum
	floor := float32(0.05 * (sum(planes[energyAt]) + fixedEnergy))
	parallel.Each(len(s.score), 1<<14, s.threads, func(i int) {
		o := float64(s.overlap[i]) / smaller
		if o < minOverlap {
			s.score[i] = 0
			return
		}
		s.score[i] = 2 * s.score[i] / max(s.energy[i], floor) * float32(math.Pow(min(o, 1), overlapPower))
	})
	return s.peaks(m, moving, scale)
}

func sum(x []float32) float64 {
	total := 0.0
	for _, v := range x {
		total += float64(v)
	}
	return total
}

// peaks returns the highest local maxima of the score, at least two voxels apart.
func (s *searcher) peaks(m, moving features, scale [3]float64) []peak {
	type maximum struct {
		score  float32
		offset [3]int
	}
	n, score := s.size, s.score
	var found []maximum
	for z := range n[2] {
		for y := range n[1] {
			for x := range n[0] {
				v := score[(z*n[1]+y)*n[0]+x]
				if v <= 0 || m.image.Flat() && z > 0 || !isMaximum(score, n, x, y, z) {
					continue
				}
				offset := [3]int{x, y, z}
				for a := range 3 {
					if offset[a] >= m.grid.Size[a] {
						offset[a] -= n[a]
					}
				}
				found = append(found, maximum{v, offset})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b maximum) int { return cmp.Compare(b.score, a.score) })
	var out []peak
	var kept []maximum
	for _, f := range found {
		if slices.ContainsFunc(kept, func(k maximum) bool {
			x, y, z := k.offset[0]-f.offset[0], k.offset[1]-f.offset[1], k.offset[2]-f.offset[2]
			return x*x+y*y+z*z < 4
		}) {
			continue
		}
		kept = append(kept, f)
		out = append(out, peak{float64(f.score), s.transform(f.offset, moving, scale)})
		if len(out) == peaksPerScale {
			break
		}
	}
	return out
}

// isMaximum reports whether no neighbour of the periodic grid is higher.
func isMaximum(score []float32, n [3]int, x, y, z int) bool {
	v := score[(z*n[1]+y)*n[0]+x]
	for dz := -1; dz <= 1; dz++ {
		for dy := -1; dy <= 1; dy++ {
			row := score[((z+dz+n[2])%n[2]*n[1]+(y+dy+n[1])%n[1])*n[0]:]
			for dx := -1; dx <= 1; dx++ {
				if row[(x+dx+n[0])%n[0]] > v {
					return false
				}
			}
		}
	}
	return true
}

// transform is the physical map of a peak.
func (s *searcher) transform(offset [3]int, moving features, scale [3]float64) volume.Affine {
	var index volume.Affine
	for a := range 3 {
		index.M[4*a] = scale[a]
		index.T[a] = float64(scale[a]*(float64(offset[a])+0.5)) - 0.5
	}
	return moving.grid.IndexToPhysical().After(index).After(s.fixed.grid.PhysicalToIndex())
}

// rescaled reads f on a grid whose voxels are larger by scale, so that its content shrinks by it. Sizes round up.
func rescaled(f features, scale [3]float64, threads int) features {
	if scale == [3]float64{1, 1, 1} {
		return f
	}
	w := &resampled{grid: f.grid, image: f.image}
	var shift [3]float64
	for a := range 3 {
		w.grid.Size[a] = int(math.Ceil(float64(f.grid.Size[a]) / scale[a]))
		w.grid.Spacing[a] *= scale[a]
		shift[a] = (scale[a] - 1) / 2
	}
	w.grid.Origin = f.grid.IndexToPhysical().Apply(shift)
	resample := func(plane []float32) []float32 {
		v := volume.Volume{Geometry: f.grid, Data: plane}
		return v.Resample(w.grid, volume.IdentityAffine(), volume.Linear, 0, threads).Data
	}
	w.valid, w.body = resample(f.valid), resample(f.body)
	out := features{resampled: w, planes: make([][]float32, len(f.planes))}
	for c := range f.planes {
		out.planes[c] = resample(f.planes[c])
	}
	return out
}
