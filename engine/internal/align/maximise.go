package align

import (
	"context"
	"slices"

	"gonum.org/v1/gonum/optimize"

	"github.com/morphseek/morphseek/engine/volume"
)

// motion moves a transform by parameters in units of the objective, in which the optimiser's first step is one long, at
// the body's rim: linear ones are divided by its radius. Zeros leave it as it is.
type motion interface {
	parameters() int
	at(x []float64) volume.Affine
	// slope writes the derivative of the cost by x, where the score has the derivatives m and t by the transform c; it
	// returns what the motion adds to the cost.
	slope(dst, x []float64, c volume.Affine, m [9]float64, t [3]float64) float64
}

// rigidMotion is a rotation and a translation on top of a transform.
type rigidMotion struct {
	from   volume.Affine
	radius float64
}

func (r rigidMotion) parameters() int { return 6 }

func (r rigidMotion) rotation(x []float64) ([9]float64, [3][9]float64) {
	return rotation([3]float64{x[0] / r.radius, x[1] / r.radius, x[2] / r.radius})
}

func (r rigidMotion) at(x []float64) volume.Affine {
	c := r.from
	turn, _ := r.rotation(x)
	c.M = volume.Product(turn, r.from.M)
	for i := range 3 {
		c.T[i] += x[3+i]
	}
	return c
}

func (r rigidMotion) slope(dst, x []float64, _ volume.Affine, m [9]float64, t [3]float64) float64 {
	_, d := r.rotation(x)
	for axis := range 3 {
		dst[axis] = 0
		for i, dm := range volume.Product(d[axis], r.from.M) {
			dst[axis] -= m[i] * dm / r.radius
		}
	}
	for i := range 3 {
		dst[3+i] = -t[i]
	}
	return 0
}

// affineMotion has all twelve parameters free, under a penalty of strain.
type affineMotion struct {
	from   volume.Affine
	radius float64
}

func (a affineMotion) parameters() int { return 12 }

func (a affineMotion) at(x []float64) volume.Affine {
	c := a.from
	for i := range 9 {
		c.M[i] += x[i] / a.radius
	}
	for i := range 3 {
		c.T[i] += x[9+i]
	}
	return c
}

func (a affineMotion) slope(dst, _ []float64, c volume.Affine, m [9]float64, t [3]float64) float64 {
	penalty, slope := strain(c.M)
	for i := range m {
		dst[i] = (float64(strainWeight*slope[i]) - m[i]) / a.radius
	}
	for i := range 3 {
		dst[9+i] = -t[i]
	}
	return float64(strainWeight * penalty)
}

// planar is a motion restricted to a plane: only those parameters that stay within it are free.
type planar struct {
	motion
	free []int
}

func (p planar) parameters() int { return len(p.free) }

// whole returns the parameters of the motion.
func (p planar) whole(x []float64) []float64 {
	all := make([]float64, p.motion.parameters())
	for k, i := range p.free {
		all[i] = x[k]
	}
	return all
}

func (p planar) at(x []float64) volume.Affine { return p.motion.at(p.whole(x)) }

func (p planar) slope(dst, x []float64, c volume.Affine, m [9]float64, t [3]float64) float64 {
	all := make([]float64, p.motion.parameters())
	added := p.motion.slope(all, p.whole(x), c, m, t)
	for k, i := range p.free {
		dst[k] = all[i]
	}
	return added
}

// The parameters that stay within the plane: of a rotation and a translation, and of all twelve.
var planarRigid, planarAffine = []int{2, 3, 4}, []int{0, 1, 3, 4, 9, 10}

// evaluation is the cost and its derivative at the last parameters that were asked for.
type evaluation struct {
	*objective
	motion
	x, gradient []float64
	cost        float64
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

// maximise finds the transform near start with the highest score less the penalty of strain, and returns it with its
// score. If rigid is set it adds a rotation and a translation to start; otherwise all twelve parameters are free.
func (o *objective) maximise(
	ctx context.Context, start volume.Affine, rigid bool, iterations int,
) (volume.Affine, float64, error) {
	var along motion = affineMotion{o.centred(start), o.radius()}
	free := planarAffine
	if rigid {
		along, free = rigidMotion{o.centred(start), o.radius()}, planarRigid
	}
	if o.flat {
		along = planar{along, free}
	}
	here := evaluation{objective: o, motion: along, gradient: make([]float64, along.parameters())}
	problem := optimize.Problem{
		Func: func(x []float64) float64 { here.move(x); return here.cost },
		Grad: func(grad, x []float64) { here.move(x); copy(grad, here.gradient) },
		Status: func() (optimize.Status, error) {
			return optimize.NotTerminated, ctx.Err()
		},
	}
	result, err := optimize.Minimize(problem, make([]float64, along.parameters()), &optimize.Settings{
		MajorIterations: iterations, FuncEvaluations: 2 * iterations, GradientThreshold: 1e-6,
		Converger: &optimize.FunctionConverge{Absolute: 1e-5, Iterations: 4},
	}, &optimize.LBFGS{})
	if ctx.Err() != nil {
		return start, 0, ctx.Err()
	}
	if result == nil {
		return start, 0, err // an error beside a result is a line search that ended early: the best point so far is kept
	}
	c := along.at(result.X)
	score, _, _ := o.score(c)
	return o.absolute(c), score, nil
}
