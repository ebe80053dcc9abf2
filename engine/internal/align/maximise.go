package align

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/volume"
)

// motion moves a transform by parameters in units of the objective, in which the optimiser's first step is one long, at
// the body's rim: linear ones are divided by its radius. Zeros leave it as it is.
type motion struct {
	from   volume.Affine
	radius float64
	rigid  bool  // a rotation and a translation on top of from; else all its numbers move, under a penalty of strain
	free   []int // which parameters those are, of three angles or nine elements from 0 on and a translation from 9 on
}

// motion returns that of a transform, within the plane of a slice.
func (o *objective) motion(start volume.Affine, rigid bool) motion {
	free := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	switch {
	case rigid && o.flat:
		free = []int{2, 9, 10}
	case rigid:
		free = []int{0, 1, 2, 9, 10, 11}
	case o.flat:
		free = []int{0, 1, 3, 4, 9, 10}
	}
	return motion{o.centred(start), o.radius(), rigid, free}
}

// whole returns the linear parameters, of which those that are not free are zero, and the translation.
func (p motion) whole(x []float64) (linear [9]float64, t [3]float64) {
	for k, i := range p.free {
		if i < 9 {
			linear[i] = x[k] / p.radius
		} else {
			t[i-9] = x[k]
		}
	}
	return linear, t
}

func (p motion) at(x []float64) volume.Affine {
	linear, t := p.whole(x)
	c := p.from
	if p.rigid {
		turn, _ := rotation([3]float64(linear[:3]))
		c.M = volume.Product(turn, c.M)
	} else {
		floats.Add(c.M[:], linear[:])
	}
	floats.Add(c.T[:], t[:])
	return c
}

// slope writes the derivative of the cost by x, where the score has the derivatives m and t by the transform c; it
// returns what the motion adds to the cost.
func (p motion) slope(dst, x []float64, c volume.Affine, m [9]float64, t [3]float64) (penalty float64) {
	var all [12]float64
	if p.rigid {
		linear, _ := p.whole(x)
		_, d := rotation([3]float64(linear[:3]))
		for axis := range d {
			for i, dm := range volume.Product(d[axis], p.from.M) {
				all[axis] -= m[i] * dm / p.radius
			}
		}
	} else {
		strained, slope := strain(c.M)
		penalty = float64(strainWeight * strained)
		for i := range m {
			all[i] = (float64(strainWeight*slope[i]) - m[i]) / p.radius
		}
	}
	floats.ScaleTo(all[9:], -1, t[:])
	for k, i := range p.free {
		dst[k] = all[i]
	}
	return penalty
}

// evaluation is the cost and its derivative at the last parameters that were asked for.
type evaluation struct {
	*objective
	motion
	x, gradient []float64
	cost        float64
}

// newEvaluation returns an evaluation of the motions of a kind that has none yet.
func newEvaluation(o *objective, along motion) *evaluation {
	return &evaluation{objective: o, motion: along, gradient: make([]float64, len(along.free))}
}

func (e *evaluation) move(x []float64) {
	if e.x != nil && slices.Equal(x, e.x) {
		return
	}
	e.x = append(e.x[:0], x...)
	c := e.at(x)
	score, m, t := e.score(c)
	e.cost = -score + e.slope(e.gradient, x, c, m, t)
}

// effort is how long maximise climbs: so many rounds of so many steps, and up to so many rounds more until one hardly
// moves. It measures the curvature before each round by some of the points, on one side of the place or on both.
type effort struct{ rounds, more, steps, sides int }

var (
	brief  = effort{1, 0, 6, 1} // shows which starts lead to one place
	coarse = effort{2, 0, 6, 1}
	fine   = effort{3, 9, 18, 2}
)

// maximise finds the transform near start with the highest score less the penalty of strain, and returns it with its
// score. If rigid is set it adds a rotation and a translation to start; otherwise all twelve parameters are free.
//
// It takes Newton's steps, by the magnitude of the curvature. The cost has kinks where points cross the
// borders of voxels: a search along a line ends at one of them, and noise of a millionth decides at which. These steps
// follow the images continuously. The curvature is that over a part of a voxel, which does not see the kinks; it rises
// where a step shows more. Steps of the last round shorten, and the mean of its second half is taken.
func (o *objective) maximise(ctx context.Context, start volume.Affine, rigid bool, by effort) (volume.Affine, float64, error) {
	const (
		damping = 0.5
		longest = 4    // voxels at the rim
		fading  = 4    // steps of the last round, after which they are half as long
		settled = 0.01 // voxels at the rim
	)
	along := o.motion(start, rigid)
	here, rough := newEvaluation(o, along), newEvaluation(o.few, along)
	n := len(along.free)
	x, mean := make([]float64, n), make([]float64, n)
	moved := math.Inf(1) // by the round before
	for round, last := 0, false; !last; round++ {
		last = round >= by.rounds-1 && (round >= by.rounds+by.more-1 || moved < settled)
		began := slices.Clone(x)
		model, ok := rough.curvature(x, by.sides)
		var before, slope []float64 // of the last step
		if !ok {
			score, _, _ := o.score(o.centred(start))
			return start, score, nil
		}
		for it := range by.steps {
			if ctx.Err() != nil {
				return start, 0, ctx.Err()
			}
			here.move(x)
			if before != nil {
				model.learn(before, x, slope, here.gradient)
			}
			before, slope = slices.Clone(x), slices.Clone(here.gradient)
			step := model.step(slope)
			share := damping * longest / (longest + floats.Norm(step, 2))
			if last {
				share *= fading / float64(fading+it)
			}
			floats.AddScaled(x, -share, step)
			if last && it >= by.steps/2 {
				floats.AddScaled(mean, 1/float64(by.steps-by.steps/2), x)
			}
		}
		moved = floats.Distance(began, x, 2)
	}
	c := along.at(mean)
	score, _, _ := o.score(c)
	return o.absolute(c), score, nil
}

// curvature measures that of the cost about x and returns its magnitude. It is not ok where the score has none, as where
// the images do not overlap.
func (e *evaluation) curvature(x []float64, sides int) (model hessian, ok bool) {
	const (
		apart = 0.5  // voxels at the rim, on either side
		least = 0.02 // of the largest curvature: where there is next to none, steps are not long
	)
	n := len(x)
	slopes := mat.NewDense(n, n, nil)
	e.move(x)
	alone := e.with(1)
	parallel.Each(n, 1, e.threads, func(k int) {
		near, there, rise := newEvaluation(alone, e.motion), slices.Clone(x), make([]float64, n)
		for _, side := range []float64{apart, -apart}[:sides] {
			there[k] = x[k] + side
			near.move(there)
			floats.SubTo(rise, near.gradient, e.gradient)
			floats.AddScaled(slopes.RawRowView(k), 1/(float64(sides)*side), rise)
		}
	})
	symmetric := mat.NewSymDense(n, nil)
	for r := range n {
		for c := range r + 1 {
			symmetric.SetSym(r, c, (slopes.At(r, c)+slopes.At(c, r))/2)
		}
	}
	var eigen mat.EigenSym
	if most := mat.Norm(symmetric, math.Inf(1)); !(most > 0) || math.IsInf(most, 1) || !eigen.Factorize(symmetric, true) {
		return hessian{}, false
	}
	var axes mat.Dense
	eigen.VectorsTo(&axes)
	values := eigen.Values(nil)
	floor := least * floats.Norm(values, math.Inf(1))
	model = hessian{mat.NewSymDense(n, nil)}
	for k, v := range values {
		model.SymRankOne(model.SymDense, math.Hypot(v, floor), axes.ColView(k))
	}
	return model, true
}

// hessian is a positive definite estimate of the curvature of the cost.
type hessian struct{ *mat.SymDense }

// step returns what Newton's method subtracts at a gradient.
func (h hessian) step(gradient []float64) []float64 {
	var factor mat.Cholesky
	var step mat.VecDense
	if !factor.Factorize(h) || factor.SolveVecTo(&step, mat.NewVecDense(len(gradient), gradient)) != nil {
		return make([]float64, len(gradient)) // it is as good as singular
	}
	return step.RawVector().Data
}

// learn raises the curvature along the way between two places to what the gradients there show; else steps go to and fro
// across a valley that narrows. A way that is short against a voxel teaches less, for the slope varies within one.
func (h hessian) learn(from, to, slopeFrom, slopeTo []float64) {
	const short = 0.25 // voxels at the rim
	way, rise := mat.NewVecDense(len(from), nil), mat.NewVecDense(len(from), nil)
	floats.SubTo(way.RawVector().Data, to, from)
	floats.SubTo(rise.RawVector().Data, slopeTo, slopeFrom)
	square := mat.Dot(way, way)
	if more := mat.Dot(way, rise) - mat.Inner(way, h, way); more > 0 && square > 0 {
		h.SymRankOne(h.SymDense, more/(square*(square+float64(short*short))), way)
	}
}
