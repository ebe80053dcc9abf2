package epi

import (
	"context"
	"math"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// distorted returns what an echo-planar image shows of a body that moved nowhere, by d voxels along an axis: at y = x +
// sign d(x) the value at x, divided by the slope of y. Line by line, linearly between points on a fine grid.
func distorted(body *volume.Volume, d func(at [3]float64) float64, axis int, sign float64) *volume.Volume {
	out := volume.Zeros(body.Geometry)
	n := body.Size
	each(body, axis, 1, func(line lineOf) {
		const fine = 8
		var ys, vs []float64
		i := line.first
		at := [3]float64{float64(i % n[0]), float64(i / n[0] % n[1]), float64(i / (n[0] * n[1]))}
		y := func(k float64) float64 { at[axis] = k; return k + sign*d(at) }
		for k := -fine * 8; k < fine*(line.n+8); k++ {
			x := float64(k) / fine
			value, _ := line.read(body.Data, float32(x))
			ys, vs = append(ys, y(x)), append(vs, float64(value)/((y(x+0.01)-y(x-0.01))/0.02))
		}
		j := 0
		for k := range line.n {
			for ys[j+1] < float64(k) {
				j++
			}
			t := (float64(k) - ys[j]) / (ys[j+1] - ys[j])
			out.Data[line.at(k)] = float32(vs[j] + t*(vs[j+1]-vs[j]))
		}
	})
	return out
}

func TestFieldIsFound(t *testing.T) {
	t.Parallel()
	const n = 56
	body, _, _ := testkit.Phantom(n, 0, false)
	for axis := range 3 {
		d := func(at [3]float64) float64 {
			x, y, z := at[(axis+1)%3]/n, at[axis]/n, at[(axis+2)%3]/n
			return 4*math.Exp(-12*((x-0.4)*(x-0.4)+(y-0.55)*(y-0.55)+(z-0.5)*(z-0.5))) - 1.5*math.Sin(2*x)*z
		}
		one, other := distorted(body, d, axis, 1), distorted(body, d, axis, -1)
		found := testkit.Must(Correct(context.Background(), Pair{one, other, axis}, 2, nil))(t)
		var errors, before, wrong []float32
		for i, v := range body.Data {
			at := [3]float64{float64(i % n), float64(i / n % n), float64(i / (n * n))}
			if v > 30 {
				errors = append(errors, float32(math.Abs(float64(found.Shift.Data[i])-d(at))))
				before = append(before, float32(math.Abs(float64(one.Data[i]-v))))
				wrong = append(wrong, float32(math.Abs(float64(found.One.Data[i]-v))))
			}
		}
		p := volume.Percentiles(errors, 50, 95)
		q, r := volume.Percentiles(before, 50)[0], volume.Percentiles(wrong, 50)[0]
		t.Logf("axis %d: median %.3f, 95 %% %.3f voxels; intensities off by %.2f, before %.2f", axis, p[0], p[1], r, q)
		if p[0] > 0.1 || p[1] > 0.3 || r > 0.25*q {
			t.Errorf("axis %d: the field is off by %.3f voxels, 95 %% by %.3f; intensities by %.2f of %.2f", axis, p[0], p[1], r, q)
		}
	}
}

// The correction finds the field of an object that takes less than a hundredth of the image.
func TestSmallObjectIsCorrected(t *testing.T) {
	const n = 48
	body := volume.Zeros(testkit.Grid([3]int{n, n, n}))
	for i := range body.Data {
		x, y, z := i%n-n/2, i/n%n-n/2, i/(n*n)-n/2
		if x*x+y*y+z*z < 36 {
			body.Data[i] = float32(100 + 10*(x+y))
		}
	}
	shift := func([3]float64) float64 { return 1.5 }
	one, other := distorted(body, shift, 1, 1), distorted(body, shift, 1, -1)
	found := testkit.Must(Correct(context.Background(), Pair{one, other, 1}, 1, nil))(t)
	if got := found.Shift.Data[(n*n*n+n*n+n)/2]; math.Abs(float64(got)-1.5) > 0.2 {
		t.Errorf("in the object's middle the shift is %.2f voxels, want 1.5", got)
	}
}

// The transpose is one: <A x, y> = <x, A' y>; and the step of a linear problem is its solution's direction.
func TestBackIsTheTranspose(t *testing.T) {
	g := volume.Geometry{Size: [3]int{7, 9, 5}, Spacing: [3]float64{1, 2, 3}, Direction: volume.Identity}
	v := volume.Zeros(g)
	l := newLevel(v, v, volume.Zeros(g), 1, 1, 1)
	var x, y, ax, aty, none [315]float32
	for i := range x {
		x[i], y[i] = float32(math.Sin(float64(i))), float32(math.Cos(float64(i*i)))
		l.p[i], l.q[i] = float32(math.Sin(float64(3*i))), float32(math.Cos(float64(i)))
	}
	l.forward(ax[:], x[:])
	l.back(aty[:], y[:], none[:])
	if a, b := l.dot(ax[:], y[:]), l.dot(x[:], aty[:]); math.Abs(a-b) > 1e-4 {
		t.Errorf("<A x, y> is %g and <x, A' y> %g", a, b)
	}
}

func TestCorrectRefuses(t *testing.T) {
	t.Parallel()
	body, _, _ := testkit.Phantom(24, 0, false)
	thin := body.Resample(body.Blocks([3]int{1, 4, 1}), volume.IdentityAffine(), volume.Nearest, 0, 1)
	for _, c := range []struct {
		name string
		pair Pair
		goOn bool
		want fault.Code
	}{
		{"no second image", Pair{One: body}, true, fault.EmptyVolume},
		{"two grids", Pair{body, thin, 1}, true, fault.GridMismatch},
		{"a fourth axis", Pair{body, body, 3}, true, fault.InvalidArgument},
		{"six voxels", Pair{thin, thin, 1}, true, fault.ThinVolume},
		{"cancelled", Pair{body, body, 1}, false, fault.Cancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Correct(context.Background(), c.pair, 1, func(float64) bool { return c.goOn })
			testkit.Fails(t, err, c.want)
		})
	}
}
