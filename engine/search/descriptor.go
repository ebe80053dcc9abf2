package search

import (
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/metric"
	"github.com/morphseek/morphseek/engine/volume"
)

const (
	bitsPerChannel = 5
	unknown        = 1 << 63 // set where the volume is not known
)

// describe returns a MIND-SSC descriptor a voxel: its twelve channels quantised to six values, each a run of up to five ones,
// so that the number of bits in which two descriptors differ is the L1 distance of the channels (Heinrich et al., MICCAI
// 2013).
func describe(v, valid *volume.Volume, threads int) []uint64 {
	n := len(v.Data)
	channels := metric.MINDSSC(v.Data, valid.Data, v.Size, 1, 2, threads)
	codes := make([]uint64, n)
	parallel.For(n, 1<<14, threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if valid.Data[i] == 0 {
				codes[i] = unknown
				continue
			}
			var code uint64
			for c := range metric.MINDChannels {
				value := min(int(channels[c*n+i]*(bitsPerChannel+1)), bitsPerChannel)
				code = code<<bitsPerChannel | (1<<value - 1)
			}
			codes[i] = code
		}
	})
	return codes
}
