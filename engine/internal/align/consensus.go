package align

import (
	"slices"

	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/blocks"
	"github.com/morphseek/morphseek/engine/volume"
	"gonum.org/v1/gonum/mat"
)

const (
	kept      = 0.5 // of the matches, those that agree best
	fade      = 0.8 // of the residual up to which they are kept, to either side: there they count in part, so that none decides
	rounds    = 24  // of the fit, by which it has settled
	stiffness = 0.3 // of the fit's linear part, as a share of the matches' variance in space
)

// match is a point of the fixed body and the point, before the initial transform, whose surroundings match: LPS mm.
type match struct {
	at, to [3]float64
	weight float64 // the square of the depth in the body
}

// consensus fits t to block matches in both directions. Between modalities the score of the whole can be higher where walls
// and spines agree and the organs lie centimetres off. A block inside the body, which moves by itself, finds its organ.
func (a *aligner) consensus(v views, t volume.Affine) (volume.Affine, error) {
	for round := range blocks.Rounds {
		if err := a.checkpoint(0.9 + float64(0.05*float64(round))); err != nil {
			return t, err
		}
		inverse, err := t.Inverse()
		if err != nil {
			return t, nil // nothing to match
		}
		forward := aligned.Pair{Fixed: a.fixed, Moving: a.moving, FixedMask: a.opt.FixedMask, MovingMask: a.opt.MovingMask, Initial: t}
		matches := sampleMatches(v.fixed, v.moving, t, blocks.Match(forward, round, a.opt.Threads))
		backward := aligned.Pair{Fixed: a.moving, Moving: a.fixed, FixedMask: a.opt.MovingMask, MovingMask: a.opt.FixedMask, Initial: inverse}
		for _, w := range sampleMatches(v.moving, v.fixed, inverse, blocks.Match(backward, round, a.opt.Threads)) {
			matches = append(matches, match{at: inverse.Apply(w.to), to: inverse.Apply(w.at), weight: w.weight})
		}
		if len(matches) > 0 {
			t = a.withinPlane(t.After(trimmedFit(matches)))
		}
	}
	return t, nil
}

// sampleMatches reads f (nil: no block matches) at every third voxel, along each axis, of the fixed body that t carries
// into the moving field of view.
func sampleMatches(fixed, moving features, t volume.Affine, f *field.Field) []match {
	if f == nil {
		return nil
	}
	n, m := fixed.grid.Size, moving.grid.Size
	toPhysical, toMoving := fixed.grid.IndexToPhysical(), moving.grid.PhysicalToIndex().After(t)
	var points []float64
	var matches []match
	for z := 1; z < n[2]; z += 3 {
		for y := 1; y < n[1]; y += 3 {
			for x := 1; x < n[0]; x += 3 {
				i := (z*n[1]+y)*n[0] + x
				if fixed.body[i] == 0 {
					continue
				}
				p := toPhysical.Apply([3]float64{float64(x), float64(y), float64(z)})
				inside := true
				at := toMoving.Apply(p)
				for a := range moving.image.Axes() {
					inside = inside && at[a] >= 1 && at[a] <= float64(m[a]-2)
				}
				if inside {
					points = append(points, p[:]...)
					matches = append(matches, match{at: p, weight: float64(fixed.depth[i] * fixed.depth[i])})
				}
			}
		}
	}
	f.TransformPoints(points)
	for i := range matches {
		matches[i].to = [3]float64(points[3*i:])
	}
	return matches
}

// trimmedFit returns the affine at -> to by least trimmed squares (Rousseeuw, J. Am. Stat. Assoc. 1984), its linear
// part drawn towards the identity by ridge regression; the identity where the matches do not determine one.
func trimmedFit(matches []match) volume.Affine {
	fit := volume.IdentityAffine()
	residuals := make([]float64, len(matches))
	in := matches
	for range rounds {
		var ok bool
		if fit, ok = ridgeFit(in); !ok {
			return volume.IdentityAffine()
		}
		for i, w := range matches {
			residuals[i] = volume.Distance(fit.Apply(w.at), w.to)
		}
		sorted := slices.Sorted(slices.Values(residuals))
		limit := sorted[int(kept*float64(len(sorted)-1))]
		if limit == 0 {
			return fit // it passes through all that are kept
		}
		in = make([]match, 0, len(matches))
		for i, w := range matches {
			if share := float64((1+fade)*limit) - residuals[i]; share > 0 {
				w.weight *= min(share/(2*fade*limit), 1)
				in = append(in, w)
			}
		}
	}
	return fit
}

// ridgeFit is one weighted least squares fit; not ok where it is singular.
func ridgeFit(matches []match) (fit volume.Affine, ok bool) {
	total := 0.0
	var at, move [3]float64 // means
	for _, v := range matches {
		total += v.weight
		for a := range 3 {
			at[a] += float64(v.weight * v.at[a])
			move[a] += float64(v.weight * (v.to[a] - v.at[a]))
		}
	}
	if !(total > 0) {
		return fit, false
	}
	for a := range 3 {
		at[a] /= total
		move[a] /= total
	}
	var scatter, cross [9]float64 // row-major
	for _, v := range matches {
		for r := range 3 {
			x := v.weight * (v.at[r] - at[r]) / total
			for c := range 3 {
				scatter[3*r+c] += float64(x * (v.at[c] - at[c]))
				cross[3*r+c] += float64(x * (v.to[c] - v.at[c] - move[c]))
			}
		}
	}
	ridge := stiffness * (scatter[0] + scatter[4] + scatter[8]) / 3
	for a := range 3 {
		scatter[4*a] += ridge
	}
	var slope mat.Dense
	if slope.Solve(mat.NewDense(3, 3, scatter[:]), mat.NewDense(3, 3, cross[:])) != nil {
		return fit, false
	}
	fit.M = volume.Identity
	for r := range 3 {
		for c := range 3 {
			fit.M[3*r+c] += slope.At(c, r)
		}
	}
	centre := fit.Apply(at)
	for a := range 3 {
		fit.T[a] = at[a] + move[a] - centre[a]
	}
	return fit, true
}
