package blocks

import (
	"slices"
	"unsafe"

	"github.com/morphseek/morphseek/engine/internal/mind"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// Descriptor describes a voxel in sixteen bytes, the first in the lowest: MIND-SSC's twelve channels, then one for each
// threshold of intensity. The sum of their absolute differences compares two voxels. Where the voxel is not known all are
// zero; otherwise the last is known.
//
// Bits in their place, one for each sixth of a channel, jumped where a value crossed a sixth: noise of a millionth moved
// a level by .0004 voxels, and eight levels amplify that (RATIONALE.md, Steadiness).
type Descriptor [2]uint64

const (
	known          = 0xff << 56 // of the second half
	unit           = 51         // of a byte: the cost 1
	mostOfChannel  = 5          // the greatest cost by one of MIND-SSC's channels
	thresholdCount = 3          // where intensities are compared; each costs 1 at most
	ramp           = 0.02       // of the range of intensities: half of the way on which a threshold is crossed
)

// put writes the k-th byte, which was zero.
func (d *Descriptor) put(k int, value uint8) { d[k/8] |= uint64(value) << (k % 8 * 8) }

// Dilations of the descriptors, voxels: Near suits two contrasts, Wide one contrast whose intensities are compared too
// (RATIONALE.md, MIND at a dilation of one voxel).
const (
	Near = 1
	Wide = 2
)

// Temperatures of Step.Solve: Sharp where intensities are compared, Blunt where structure alone is, whose costs hardly
// tell neighbours apart (RATIONALE.md, Steadiness).
const (
	Sharp = 1
	Blunt = 4
)

// Thresholds are ascending intensities: a voxel's descriptor has a byte for each, which says whether the voxel exceeds it.
// Images of two modalities have none.
type Thresholds []float32

// ThresholdsOf returns the thresholds of two images whose intensities correspond. They have the same ranks among the
// voxels known in both, so that neither image's scale matters.
//
// Inside an organ MIND-SSC is noise, and the intensity still tells the organ from its neighbours. More
// thresholds would mislead where organs take up contrast in one scan and not in the other.
func ThresholdsOf(fixed, moving, fixedValid, movingValid *volume.Volume) (f, m Thresholds) {
	const (
		air        = 0.3     // normalised intensity below which voxels are not told apart
		maxSamples = 1 << 17 // voxels that are read
	)
	n := len(fixed.Data)
	stride := 1 + n/maxSamples
	var known [2][]float32
	body := 0
	for i := 0; i < n; i += stride {
		if fixedValid.Data[i] == 0 || movingValid.Data[i] == 0 {
			continue
		}
		for k, v := range []float32{fixed.Data[i], moving.Data[i]} {
			known[k] = append(known[k], v)
			if v > air {
				body++
			}
		}
	}
	if body == 0 {
		return nil, nil
	}
	slices.Sort(known[0])
	slices.Sort(known[1])
	last := float64(len(known[0]) - 1)
	share := float64(body) / float64(2*len(known[0]))
	for k := range thresholdCount {
		rank := int(last * (1 - float64(share*(1-float64(k)/thresholdCount))))
		f, m = append(f, above(known[0], rank)), append(m, above(known[1], rank))
	}
	return f, m
}

// above returns the middle between a value by its rank and the next one that is not nearly the same. Whole numbers are
// often equal to it: noise of a millionth would put them on either side.
func above(sorted []float32, rank int) float32 {
	const same = 0.002 // of the range of intensities
	x := sorted[rank]
	next := x + same
	if k, _ := slices.BinarySearch(sorted, next); k < len(sorted) {
		next = sorted[k]
	}
	return (x + next) / 2
}

// Describe returns a descriptor for every voxel: MIND-SSC's channels (Heinrich et al., MICCAI 2013), then the
// thresholds. MIND-SSC's patches lie dilation voxels from the voxel.
func Describe(v, valid *volume.Volume, t Thresholds, dilation int, room *Room, threads int) []Descriptor {
	n := len(v.Data)
	channels := room.values(mind.Channels * n)
	mind.DescribeTo(channels, v.Data, valid.Data, v.Size, mind.Kernel{Dilation: dilation, Least: mind.Steady}, threads)
	codes := make([]Descriptor, n)
	parallel.For(n, 1<<14, threads, func(lo, hi int) {
		pack(codes[lo:hi], channels[lo:], n, valid.Data[lo:hi])
		for i := lo; i < hi && len(t) > 0; i++ {
			if valid.Data[i] == 0 {
				continue
			}
			for k, threshold := range t {
				cost := float32((v.Data[i]-threshold)*(0.5/ramp)) + 0.5
				codes[i].put(mind.Channels+k, uint8(float32(min(max(cost, 0), 1)*unit)+0.5))
			}
		}
	})
	return codes
}

// pack makes the descriptors of known voxels from MIND-SSC's channels, which are step apart.
func pack(codes []Descriptor, channels []float32, step int, valid []float32) {
	for i := packVector(codes, channels, step, valid); i < len(codes); i++ {
		if valid[i] == 0 {
			continue
		}
		d := &codes[i]
		d[1] = known
		for c := range mind.Channels {
			cost := float32(channels[c*step+i]*(mostOfChannel+1)) - 0.5
			d.put(c, uint8(float32(min(max(cost, 0), mostOfChannel)*unit)+0.5))
		}
	}
}

// Room is memory that a search uses again and again, for one thing at a time. As garbage it would have the collector run
// often. It also keeps the trees of the last control grid, which is searched several times.
type Room struct {
	memory []float32
	size   [3]int
	trees  []*tree
}

// values returns n values of any content, in place of those before.
func (r *Room) values(n int) []float32 {
	if cap(r.memory) < n {
		r.memory = make([]float32, n)
	}
	return r.memory[:n]
}

// costs returns n costs of any content, in place of what was there before.
func (r *Room) costs(n int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(r.values((n+1)/2)))), n)
}

// spanning returns so many spanning trees of a control grid.
func (r *Room) spanning(size [3]int, count, threads int) []*tree {
	if r.size != size || len(r.trees) != count {
		r.size, r.trees = size, make([]*tree, count)
		parallel.Each(count, 1, threads, func(i int) { r.trees[i] = spanningTree(size, i) })
	}
	return r.trees
}

// LabelCodes returns a descriptor for every voxel of a label map. Those of two labels, the background being one, differ
// by 30 on average.
func LabelCodes(v, valid *volume.Volume) []Descriptor {
	codes := map[float32]Descriptor{}
	out := make([]Descriptor, len(v.Data))
	for i, label := range v.Data {
		if valid.Data[i] == 0 {
			continue
		}
		code, ok := codes[label]
		if !ok {
			code = codeOf(uint64(label))
			codes[label] = code
		}
		out[i] = code
	}
	return out
}

// codeOf hashes a label to bytes of four values (the finaliser of SplitMix64, Steele et al., OOPSLA 2014).
func codeOf(label uint64) (d Descriptor) {
	x := (label + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	for k := range mind.Channels + thresholdCount {
		d.put(k, uint8(x>>(2*k)&3)*85)
	}
	d[1] |= known
	return d
}
