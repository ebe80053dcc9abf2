package volume

import (
	"math"

	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// BlockMeans returns the means over blocks of voxels that are finite and where mask, on v's grid, is not 0 (nil:
// everywhere): NaN where a block has none. known is which share of a block they are.
func (v *Volume) BlockMeans(block [3]int, mask *Volume, threads int) (mean, known *Volume) {
	g := v.Blocks(block)
	mean, known = Zeros(g), Zeros(g)
	nx, ny := g.Size[0], g.Size[1]
	parallel.Each(ny*g.Size[2], parallel.Rows(nx*block[0]*block[1]*block[2]), threads, func(r int) {
		sum, count := mean.Data[r*nx:(r+1)*nx], known.Data[r*nx:(r+1)*nx]
		y0, z0 := r%ny*block[1], r/ny*block[2]
		for z := z0; z < min(z0+block[2], v.Size[2]); z++ {
			for y := y0; y < min(y0+block[1], v.Size[1]); y++ {
				base := (z*v.Size[1] + y) * v.Size[0]
				row := v.Data[base : base+v.Size[0]]
				x := 0
				for i := range sum {
					for end := min(x+block[0], len(row)); x < end; x++ {
						s := row[x]
						if !IsFinite(s) || (mask != nil && mask.Data[base+x] == 0) {
							continue
						}
						sum[i] += s
						count[i]++
					}
				}
			}
		}
		for i, n := range count {
			if sum[i] /= n; n == 0 {
				sum[i] = float32(math.NaN())
			}
			count[i] = n / float32(block[0]*block[1]*block[2])
		}
	})
	return mean, known
}
