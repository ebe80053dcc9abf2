// Package moments sums two images over the windows around their voxels, from which come variances and local
// correlations.
package moments

import "github.com/morphseek/morphseek/engine/internal/filter"

// Sums are over the valid voxels of a window: how many they are, and the two images, their squares and their product.
type Sums struct{ N, F, M, FF, MM, FM float32 }

// Windows hands the sums over the window of 2*radius+1 voxels a side around each valid voxel to take, from several
// goroutines at once. valid is 1 where both images are known, else 0. Where m is nil the sums with it are zero.
func Windows(size [3]int, radius int, f, m, valid []float32, threads int, take func(i int, s Sums)) {
	images := 6
	if m == nil {
		images = 3
	}
	filter.Box(size, radius, images, threads, nil, func(y, z int, rows [][]float32) {
		from := (z*size[1] + y) * size[0]
		for x := range size[0] {
			w := valid[from+x]
			f := f[from+x] * w
			rows[0][x], rows[1][x], rows[2][x] = w, f, f*f
			if m != nil {
				m := m[from+x] * w
				rows[3][x], rows[4][x], rows[5][x] = m, m*m, f*m
			}
		}
	}, func(y, z int, rows [][]float32) {
		from := (z*size[1] + y) * size[0]
		for x, n := range rows[0] {
			if valid[from+x] == 0 {
				continue
			}
			s := Sums{N: n, F: rows[1][x], FF: rows[2][x]}
			if m != nil {
				s.M, s.MM, s.FM = rows[3][x], rows[4][x], rows[5][x]
			}
			take(from+x, s)
		}
	})
}
