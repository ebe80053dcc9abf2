//go:build !amd64 || noasm

package refine

func momentsVector(rows [][]float32, f, m, overN []float32) int { return 0 }

func correlateVector(da, dc, flat []float32, rows [][]float32, overN, meanF, overB []float32) int {
	return 0
}

func (s *ncc) gradientVector(g [3][]float32, i int, rows [][]float32) bool { return false }

func (r forceRow) vector(fixed, warped []int16) (squares int64, ok bool) { return 0, false }

func (s *ssd) warpVector(row []int16, p points) bool { return false }

func sumVector(lanes *[8]float64, row []float32) int { return 0 }

func longestVector(x, y, z []float32) (most float32, n int) { return 0, 0 }

func quarterVector(dst, a, b, c, d []float32) int { return 0 }

func spreadVector(out, line []float32) int { return 0 }
