package align

import (
	"math"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/volume"
)

// resampled is one image as the alignment sees it: resampled to isotropic voxels along a frame of axes, with one voxel
// of unknown around its field of view, so that what is interpolated from it falls off smoothly.
type resampled struct {
	grid      volume.Geometry // of a slice, three voxels thick: the first and the last are the border
	image     volume.Geometry // the image's own; a slice is in the middle layer
	intensity []float32
	unit      float32   // a power of two: intensity is the image's times it
	valid     []float32 // 1 inside the field of view and the mask, else 0: unknown, not air
	body      []float32 // 1 on the foreground
	bodyCount float64
}

// comparisonSpacing returns the voxel size, mm, at which two images are compared: the coarser image's. It is larger
// where the smaller field of view would have more than comparedVoxels or the larger thrice that, and smaller, if the
// other image is finer, where the smaller would have under 50k: fewer voxels lower the score, and whether a pair counts
// as well aligned must not depend on its sampling.
func comparisonSpacing(fixed, moving volume.Geometry) float64 {
	const fewest = 50e3
	voxel := func(g volume.Geometry) float64 { return extent(g) / float64(g.Voxels()) }
	small, large := min(extent(fixed), extent(moving)), max(extent(fixed), extent(moving))
	finer, coarser := min(voxel(fixed), voxel(moving)), max(voxel(fixed), voxel(moving))
	most := comparedVoxels[fixed.Axes()]
	h := fixed.Root(max(min(coarser, max(finer, small/fewest)), small/most, large/(3*most)))
	if pixel := fixed.Root(coarser); fixed.Flat() && h >= 2*pixel {
		// Halved as often as need be: between blocks of pixels, interpolation would blur both images in one pattern.
		h = math.Ldexp(pixel, int(math.Ceil(math.Log2(h/pixel)-1e-6)))
	}
	return h
}

// comparedVoxels bounds the voxels of the smaller of two images in the comparison, by the axes along which they extend.
var comparedVoxels = [4]float64{2: aligned.SlicePixels, 3: 500e3}

// mostVoxels bounds every grid of the alignment. comparisonSpacing goes by the volume of the images, and the box around
// a thin or long image that lies obliquely is far larger.
const mostVoxels = 6 << 20

// spacing returns the voxel size in mm at which a's images are compared.
func (a *aligner) spacing() float64 {
	h := a.within(comparisonSpacing(a.fixed.Geometry, a.moving.Geometry))
	return affordable(h, a.fixed.Geometry, a.moving.Geometry, volume.Identity)
}

// Bytes is about how much memory an alignment of images on two grids takes.
func Bytes(fixed, moving volume.Geometry) int64 {
	const (
		// A voxel: the image, its features, two ways of smoothing them, what one is made from.
		live = 4 * (4 + components + 2*lanes + 4)
		// A value of the transforms: spectra of an image and a product, at half the size, and scores.
		search = 4 * (3*4 + 3)
	)
	a := &aligner{fixed: &volume.Volume{Geometry: fixed}, moving: &volume.Volume{Geometry: moving}}
	h := a.spacing()
	f, m := boundingGrid(fixed, h, volume.Identity), boundingGrid(moving, h, volume.Identity)
	transform := int64(1)
	for k := range 3 {
		transform *= int64(float64(f.Size[k])+float64(m.Size[k])/scales[0]) / 2
	}
	return live*int64(f.Voxels()+m.Voxels()) + search*transform
}

// within returns h, or less where an image is so thin that a grid of h mm voxels may have none inside it: every ball of
// sqrt(3) h across holds a point of the grid.
func (a *aligner) within(h float64) float64 {
	return min(h, min(thinnest(a.fixed.Geometry), thinnest(a.moving.Geometry))/math.Sqrt(3))
}

// thinnest returns the shortest side of a field of view, mm.
func thinnest(g volume.Geometry) float64 {
	mm := g.Lengths()
	return slices.Min(mm[:g.Axes()])
}

// affordable returns h, enlarged until each grid has at most mostVoxels: those around the two images, the moving one's
// along frame, and that of the search over translations.
func affordable(h float64, fixed, moving volume.Geometry, frame [9]float64) float64 {
	fLo, fHi := bounds(fixed, volume.Identity)
	mLo, mHi := bounds(moving, frame)
	for {
		f, m, both := 1.0, 1.0, 1.0
		add := func(nf, nm float64) { f, m, both = f*nf, m*nm, both*(nf+nm/scales[0])/2 }
		for a := range fixed.Axes() {
			add(math.Ceil((fHi[a]-fLo[a])/h)+2, math.Ceil((mHi[a]-mLo[a])/h)+2)
		}
		for range 3 - fixed.Axes() {
			add(3, 3)
		}
		n := max(f, m, both)
		if n <= mostVoxels {
			return h
		}
		h *= max(1.02, math.Cbrt(n/mostVoxels))
	}
}

// extent returns the volume of a field of view, mm^3; of a slice the area, mm^2.
func extent(g volume.Geometry) float64 {
	voxel := math.Abs(g.IndexToPhysical().Det())
	for _, thickness := range g.Spacing[g.Axes():] {
		voxel /= thickness
	}
	return voxel * float64(g.Voxels())
}

// newResampled resamples what downsample made of an image to voxels of h mm along the columns of frame, a rotation.
func newResampled(image downsampled, h float64, frame [9]float64, threads int) *resampled {
	w := &resampled{grid: boundingGrid(image.extent, h, frame), image: image.extent}
	lowest, _ := image.mean.MinMax()
	w.intensity, w.unit = scaled(w.read(image.mean, lowest, threads))
	w.valid = w.read(image.known, 0, threads)
	n := w.grid.Size
	half := min(0.5, slices.Max(w.valid)/2) // less than 0.5 where a mask selects but parts of a voxel
	for i, x := range w.valid {
		p := w.grid.Index(i)
		w.valid[i] = 0
		if x > 0 && x >= half && min(p[0], p[1], p[2]) > 0 && p[0] < n[0]-1 && p[1] < n[1]-1 && p[2] < n[2]-1 {
			w.valid[i] = 1
		}
	}
	w.body = foreground(w, image.background)
	for _, b := range w.body {
		w.bodyCount += float64(b)
	}
	return w
}

// read returns v on w's grid: of a slice three layers that are the same.
func (w *resampled) read(v *volume.Volume, outside float32, threads int) []float32 {
	identity := volume.IdentityAffine()
	if w.image.Flat() {
		return slices.Repeat(v.Resample(middleOf(w.grid), identity, volume.Linear, outside, threads).Data, 3)
	}
	return v.Resample(w.grid, identity, volume.Linear, outside, threads).Data
}

// scaled multiplies values in place by a power of two, which is exact, so that they reach about 1: squared differences
// must neither overflow nor vanish. It returns the power, too.
func scaled(values []float32) (same []float32, by float32) {
	most := float32(0)
	for _, x := range values {
		most = max(most, x, -x)
	}
	if most == 0 {
		return values, 1
	}
	by = float32(math.Ldexp(1, -math.Ilogb(float64(most))))
	for i := range values {
		values[i] *= by
	}
	return values, by
}

// boundingGrid returns the grid of h mm voxels along frame that holds g and one voxel more on each side.
func boundingGrid(g volume.Geometry, h float64, frame [9]float64) volume.Geometry {
	lo, hi := bounds(g, frame)
	out := volume.Geometry{Spacing: [3]float64{h, h, h}, Direction: frame}
	inner, first := [3]int{1, 1, 1}, [3]float64{}
	oblique := false
	inverse, _ := volume.Affine{M: frame}.Inverse() // a rotation
	for _, cosine := range volume.Product(inverse.M, g.Direction) {
		oblique = oblique || math.Abs(float64(cosine*(1-math.Abs(cosine)))) > 1e-6
	}
	for a := range g.Axes() {
		inner[a] = max(1, int(math.Ceil((hi[a]-lo[a])/h-1e-6)))
		if oblique {
			inner[a] |= 1 // always odd: as the frame turns, the voxels keep their places about the centre
		}
	}
	for a, n := range inner {
		out.Size[a] = n + 2
		first[a] = float64((lo[a]+hi[a])/2) - float64(float64(n+1)/2*h)
	}
	out.Origin = volume.Affine{M: frame}.Apply(first)
	return out
}

// middleOf returns the middle of the three layers of a slice's grid.
func middleOf(g volume.Geometry) volume.Geometry {
	g.Origin = g.IndexToPhysical().Apply([3]float64{0, 0, 1})
	g.Size[2] = 1
	return g
}

// bounds returns the box around g along frame, in coordinates along frame, mm.
func bounds(g volume.Geometry, frame [9]float64) (lo, hi [3]float64) {
	inverse, _ := volume.Affine{M: frame}.Inverse() // a rotation
	lo = [3]float64{math.Inf(1), math.Inf(1), math.Inf(1)}
	hi = [3]float64{math.Inf(-1), math.Inf(-1), math.Inf(-1)}
	for _, corner := range boxCorners(g, 0.5) {
		for a, x := range inverse.Apply(corner) {
			lo[a], hi[a] = min(lo[a], x), max(hi[a], x)
		}
	}
	return lo, hi
}

// downsampled is an image in blocks of voxels.
type downsampled struct {
	extent volume.Geometry // the image's own
	mean   *volume.Volume  // of the voxels that are finite and inside the mask; the least such mean where there are none
	known  *volume.Volume  // their fraction of the block

	background *background // of the image; found when it is first resampled
}

// downsample averages blocks of voxels that lie within h mm, so that resampling at h does not alias. v must have a
// finite voxel inside the mask (nil: everywhere).
func downsample(v, mask *volume.Volume, h float64, threads int) downsampled {
	var f [3]int
	for a := range 3 {
		f[a] = min(max(int(h/v.Spacing[a]+1e-6), 1), v.Size[a])
	}
	mean, known := v.BlockMeans(f, mask, threads)
	lowest := float32(math.Inf(1))
	for i, k := range known.Data {
		if k > 0 {
			lowest = min(lowest, mean.Data[i])
		}
	}
	for i, k := range known.Data {
		if k == 0 {
			mean.Data[i] = lowest
		}
	}
	return downsampled{v.Geometry, mean, known, nil}
}
