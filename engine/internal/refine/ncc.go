package refine

import (
	"math"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/filter"
)

// varianceFloor keeps the correlation of a flat window at zero: a standard deviation of 1 % of the intensity range.
const varianceFloor = 1e-4

// ncc is the local normalised cross-correlation, squared with its sign kept: over the valid voxels of a window, A|A| /
// (B C) with A the covariance and B, C the variances of fixed and moving. Its mean over the valid voxels is the
// similarity, and its derivative is exact, the windows' means included (Avants et al., Med. Image Anal. 2008, leave
// those out).
type ncc struct {
	aligned.Images
	threads int
	// likely makes the value of a voxel minus the logarithm of 1 less its correlation. So a window that matches counts
	// more than a noisy one, which matters where several channels act on one voxel.
	likely bool

	// band is the rows of which a voxel's window shows something of the fixed image; 0 correlates with nothing.
	band filter.Band
	// windows is the rows on which windows stand: every second slice of a large grid's band, for neighbouring windows tell
	// nearly the same.
	windows filter.Band

	overN        []float32 // 1 / valid voxels in the window of a valid voxel, else 0
	meanF, overB []float32 // of the windows, for the current overN: fixed's mean, 1/B
	open         []uint8   // bit k is set where a voxel and both its neighbours along axis k are valid
	warped       []float32
	terms        [3][]float32 // of the derivative, that windows sum: a ring of slices
	sums         []float64    // of the similarity, by row
	counts       []int        // of valid voxels, by row
}

func newNCC(im aligned.Images, threads int) *ncc {
	n := im.Fixed.Voxels()
	rows := n / im.Fixed.Size[0]
	s := &ncc{
		Images: im.Packed(), threads: threads, open: make([]uint8, n), sums: make([]float64, rows), counts: make([]int, rows),
	}
	slices := min(s.part()+window, im.Fixed.Size[2])
	for k := range s.terms {
		s.terms[k] = make([]float32, slices*im.Fixed.Size[0]*im.Fixed.Size[1])
	}
	for _, p := range []*[]float32{&s.overN, &s.meanF, &s.overB, &s.warped} {
		*p = make([]float32, n)
	}
	return s
}

// row returns the voxels [from, to) of the row y, z.
func (s *ncc) row(y, z int) (from, to int) {
	from = (z*s.Fixed.Size[1] + y) * s.Fixed.Size[0]
	return from, from + s.Fixed.Size[0]
}

func (s *ncc) validate(u *field.Field) {
	size, w := s.Fixed.Size, s.warped // which the next force writes anew
	s.Valid(w, u, s.threads)
	shown := make([]bool, len(s.counts)) // by row
	filter.Box(size, window, 3, s.threads, nil, func(y, z int, rows [][]float32) {
		from, to := s.row(y, z)
		count, sum, square := rows[0], rows[1][:to-from], rows[2][:to-from]
		copy(count, w[from:to])
		for i, f := range s.Fixed.Data[from:to] {
			sum[i] = count[i] * f
			square[i] = sum[i] * f
		}
	}, func(y, z int, rows [][]float32) {
		from, _ := s.row(y, z)
		count := 0
		for x, n := range rows[0] {
			i := from + x
			s.overN[i], s.meanF[i], s.overB[i] = 0, 0, 0
			if w[i] == 0 {
				continue
			}
			count++
			mean := rows[1][x] / n
			shown[from/size[0]] = shown[from/size[0]] || rows[2][x] != 0
			s.overN[i], s.meanF[i], s.overB[i] = 1/n, mean, 1/(rows[2][x]/n-float32(mean*mean)+varianceFloor)
		}
		s.counts[from/size[0]] = count
		openRow(s.open, w, size, y, z)
	})
	if s.band = nil; !s.likely { // else every window counts
		s.band = filter.BandOf(size, shown)
		clear(s.sums)
	}
	if s.windows = s.band; s.alternates() {
		s.windows = s.band.Alternate(size)
	}
}

// alternates says whether windows stand on every second slice alone.
func (s *ncc) alternates() bool { return !s.likely && isLarge(s.Fixed.Size) }

func (s *ncc) part() int { return filter.Part(s.Fixed.Size) }

func (s *ncc) reach() filter.Band { return s.band.Grown(s.Fixed.Size, window) }

func (s *ncc) voxels() (n int) {
	for row, c := range s.counts {
		if z := row / s.Fixed.Size[1]; z%2 == 0 || !s.alternates() {
			n += c
		}
	}
	return n
}

// force needs, for d(similarity)/d(m(y)), where y is valid, the sum over the windows around y, of n valid voxels each,
// of 2|A|/(nBC) (f(y) - mean f) - 2A|A|/(nBC^2) (m(y) - mean m): three sums over windows, of what three others give.
func (s *ncc) force(g, u *field.Field, done func(from, to int)) float64 {
	size, reach, part := s.Fixed.Size, s.reach(), s.part()
	s.Warp(s.warped, u, reach.Grown(size, 1), s.threads)
	first := filter.BoxSweep(size, window, 3, s.threads, nil, s.windows, s.moments, s.correlate)
	second := filter.BoxSweep(size, window, 3, s.threads, s.windows, reach, filter.From(size, s.terms[:]...), func(y, z int, rows [][]float32) {
		s.gradient(g, y, z, rows)
	})
	for from, known := 0, 0; from < size[2]; from += part {
		to := min(from+part, size[2])
		needed := min(to+second.Ahead, size[2])
		first.To(needed)
		s.band.Clear(size, known, needed, s.threads, s.terms[:]...)
		known = needed
		second.To(to)
		reach.Clear(size, from, to, s.threads, g.X, g.Y, g.Z)
		done(from, to)
	}
	total := 0.0
	for _, sum := range s.sums {
		total += sum
	}
	return total
}

// moments fills the rows of the moving image's first moment, its second, and the one with the fixed image.
func (s *ncc) moments(y, z int, rows [][]float32) {
	from, to := s.row(y, z)
	first, second, both := rows[0], rows[1][:to-from], rows[2][:to-from]
	f, m, overN := s.Fixed.Data[from:to], s.warped[from:to], s.overN[from:to]
	for i := momentsVector(rows, f, m, overN); i < len(first); i++ {
		x := m[i]
		if overN[i] == 0 {
			x = 0
		}
		first[i], second[i], both[i] = x, x*x, x*f[i]
	}
}

// correlate writes, for a row, the three terms that the derivative sums over the windows, and adds up the row's
// correlations. It computes both from the windows' moments in rows, which it overwrites.
func (s *ncc) correlate(y, z int, rows [][]float32) {
	from, to := s.row(y, z)
	first, second, both := rows[0], rows[1][:to-from], rows[2][:to-from]
	overN, meanF, overB := s.overN[from:to], s.meanF[from:to], s.overB[from:to]
	place := from % len(s.terms[0])
	da, dc, flat := s.terms[0][place:][:to-from], s.terms[1][place:][:to-from], s.terms[2][place:][:to-from]
	i := 0
	if !s.likely {
		i = correlateVector(da, dc, flat, rows, overN, meanF, overB)
	}
	for ; i < len(first); i++ {
		n := overN[i]
		mean := n * first[i]
		a := float32(n*both[i]) - float32(mean*meanF[i])
		overC := 1 / (float32(n*second[i]) - float32(mean*mean) + varianceFloor)
		ratio := math.Float32frombits(math.Float32bits(a)&^(1<<31)) * overB[i] * overC
		value := float32(a * ratio)
		first[i] = value
		p := 2 * n * ratio
		if s.likely && n != 0 {
			lacking := leastLacking + 1 - value
			p /= lacking
			first[i] = -float32(math.Log(float64(lacking)))
		}
		q := p * a * overC
		da[i], dc[i], flat[i] = p, q, float32(q*mean)-float32(p*meanF[i])
	}
	s.sums[from/len(first)] = sumOf(first)
}

// sumOf returns the sum of a row, added up by place modulo 8 first.
func sumOf(row []float32) (sum float64) {
	var lanes [8]float64
	for i := sumVector(&lanes, row); i < len(row); i++ {
		lanes[i&7] += float64(row[i])
	}
	for _, x := range lanes {
		sum += x
	}
	return sum
}

// gradient writes the row y, z of g from the windows' sums: the derivative by the warped image times that image's
// gradient, by central differences; zero along an axis where a neighbour is not valid.
func (s *ncc) gradient(g *field.Field, y, z int, rows [][]float32) {
	from, to := s.row(y, z)
	out := g.Row(y, z%g.Size[2])
	if s.gradientVector(out, from, rows) {
		return
	}
	nx, slice, m := s.Fixed.Size[0], s.Fixed.Size[0]*s.Fixed.Size[1], s.warped
	da, dc, flat := rows[0], rows[1][:to-from], rows[2][:to-from]
	f, gx, gy, gz := s.Fixed.Data[from:to], out[0], out[1], out[2]
	for i, open := range s.open[from:to] {
		o := from + i
		d := 0.5 * (float32(f[i]*da[i]) - float32(m[o]*dc[i]) + flat[i])
		var x, y, z float32
		if open&1 != 0 {
			x = d * (m[o+1] - m[o-1])
		}
		if open&2 != 0 {
			y = d * (m[o+nx] - m[o-nx])
		}
		if open&4 != 0 {
			z = d * (m[o+slice] - m[o-slice])
		}
		gx[i], gy[i], gz[i] = x, y, z
	}
}
