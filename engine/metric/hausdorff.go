package metric

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Agreement is how well a label of two maps agrees. Dice is 2|A&B| / (|A|+|B|). HD95 is the 95 % Hausdorff distance in
// mm: the greater of the two directed 95th percentiles of the distances between surface voxels, as MONAI has it.
// Surface voxels have a face neighbour outside their label; the border of the volume counts as outside. HD95 of a label
// that only one map holds is +Inf.
type Agreement struct {
	Label      int
	Dice, HD95 float64
}

// Compare returns the agreement of every label but 0 that occurs in either map, in ascending order. The maps must lie
// on one grid, of this spacing.
func (r *Runs) Compare(o *Runs, spacing [3]float64, threads int) []Agreement {
	labels := append(r.Labels(), o.Labels()...)
	slices.Sort(labels)
	labels = slices.Compact(labels)
	agreements, near := make([]Agreement, len(labels)), shellsOf(spacing)
	parallel.Each(len(labels), 1, threads, func(i int) {
		l := labels[i]
		agreements[i] = Agreement{Label: l, HD95: math.Inf(1)}
		if r.byLabel[l] == nil || o.byLabel[l] == nil {
			return
		}
		a, b := r.mask(l), o.mask(l)
		agreements[i].Dice = 2 * float64(a.common(b)) / float64(a.count+b.count)
		s, t := newTarget(a.surface(), spacing), newTarget(b.surface(), spacing)
		agreements[i].HD95 = max(t.percentile95(s, near), s.percentile95(t, near))
	})
	return agreements
}

// shell is the offsets at one distance.
type shell struct {
	squared float64 // mm
	by      []point
}

// around is how many voxels along an axis the shells reach.
const around = 2

// shellsOf returns the distances from a voxel to others, the least first, as far as the shells surely hold all that are
// no farther.
func shellsOf(spacing [3]float64) (shells []shell) {
	beyond := (around + 1) * min(spacing[0], spacing[1], spacing[2])
	for z := int32(-around); z <= around; z++ {
		for y := int32(-around); y <= around; y++ {
			for x := int32(-around); x <= around; x++ {
				by := point{x, y, z}
				d := squared(by, point{}, spacing)
				if d >= float64(beyond*beyond) {
					continue
				}
				k, known := slices.BinarySearchFunc(shells, d, func(s shell, d float64) int { return cmp.Compare(s.squared, d) })
				if !known {
					shells = slices.Insert(shells, k, shell{squared: d})
				}
				shells[k].by = append(shells[k].by, by)
			}
		}
	}
	return shells
}

// percentile95 returns the 95th percentile of the distances in mm from the voxels of s to t, by numpy's linear rule.
// Shell after shell takes from s the voxels that have one of t at its distance; those that are farther than all shells
// are measured one by one.
func (t *target) percentile95(s *target, near []shell) float64 {
	n := s.surface.count
	pos := float64(0.95 * float64(n-1))
	low := int(pos)
	high := min(low+1, n-1)
	between := func(a, b float64) float64 {
		a, b = math.Sqrt(a), math.Sqrt(b)
		return a + float64((b-a)*(pos-float64(low)))
	}
	const few = 7 // offsets after which surfaces that lie apart are told from others
	left := restOf(s.surface, t.surface)
	lower, looks := -1.0, 0 // squared, of the voxel at low
	for _, shell := range near {
		if looks >= few && 2*left.count > n {
			break
		}
		left.without(shell.by)
		looks += len(shell.by)
		if lower < 0 && n-left.count > low {
			lower = shell.squared
		}
		if n-left.count > high {
			return between(lower, shell.squared)
		}
	}
	top := t.farthestOf(s, left, min(n-low, left.count)) // what is not left is nearer
	if lower >= 0 {
		return between(lower, top.least())
	}
	return between(top.least(), top.second())
}

// rest is the voxels of one mask for which no near one of another was found yet.
type rest struct {
	of, to *mask
	words  []uint64 // not 0
	at     []int32  // their places in of
	there  []int32  // and in to, where that reaches them
	beyond []bool   // it does not
	count  int
}

func restOf(of, to *mask) *rest {
	n := len(of.used)
	r := &rest{of, to, make([]uint64, n), slices.Clone(of.used), make([]int32, n), make([]bool, n), of.count}
	for k, i := range of.used {
		place, _ := of.in(to, i)
		r.words[k], r.there[k] = of.words[i], place
		r.beyond[k] = !of.near(to, i)
	}
	return r
}

// near says whether words within a margin of that one lie in o.
func (m *mask) near(o *mask, i int32) bool {
	x, y, z := m.from(o.lo, i)
	return x >= 0 && x < o.size[0] && y >= 0 && y < o.size[1] && z >= 0 && z < o.size[2]
}

// without takes away the voxels that have one of the other mask at one of these offsets.
func (r *rest) without(by []point) {
	to, kept := r.to, 0
	nx, ny, nz := to.size[0], to.size[1], to.size[2]
	for k, v := range r.words {
		if !r.beyond[k] {
			row := r.there[k] / nx
			x, y, z := r.there[k]-row*nx, row%ny, row/ny
			for _, p := range by {
				if yy, zz := y+p[1], z+p[2]; yy < 0 || yy >= ny || zz < 0 || zz >= nz {
					continue
				}
				o := r.there[k] + p[1]*nx + p[2]*nx*ny
				there := to.words[o]
				switch {
				case p[0] > 0:
					there >>= uint(p[0])
					if x+1 < nx {
						there |= to.words[o+1] << uint(64-p[0])
					}
				case p[0] < 0:
					there <<= uint(-p[0])
					if x > 0 {
						there |= to.words[o-1] >> uint(64+p[0])
					}
				}
				if there &= v; there != 0 {
					r.count -= bits.OnesCount64(there)
					if v &^= there; v == 0 {
						break
					}
				}
			}
		}
		if v != 0 {
			r.words[kept], r.at[kept], r.there[kept], r.beyond[kept] = v, r.at[k], r.there[k], r.beyond[k]
			kept++
		}
	}
	r.words, r.at, r.there, r.beyond = r.words[:kept], r.at[:kept], r.there[:kept], r.beyond[:kept]
}

// mask returns what is left.
func (r *rest) mask() *mask {
	m := &mask{lo: r.of.lo, size: r.of.size, words: make([]uint64, len(r.of.words)), used: r.at, count: r.count}
	for k, i := range r.at {
		m.words[i] = r.words[k]
	}
	return m
}
