package network

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// golden is testdata/policy.json, made by testdata/make_policy.py.
type golden struct {
	Epsilon []struct {
		Seed       uint64
		Step       int
		Trajectory int
		Values     []float32
	}
	Quantile struct{ P, X []float64 }
	LogLike  struct {
		Epsilon  []float32
		LogSigma []float32 `json:"log_sigma"`
		Tau      float64
		Value    float64
	} `json:"log_likelihood"`
	Advantages struct{ Rewards, Values []float64 }
}

func load(t *testing.T) (g golden) {
	testkit.Read(t, "testdata/policy.json", &g)
	return g
}

func TestSampleGolden(t *testing.T) {
	for _, c := range load(t).Epsilon {
		n := len(c.Values)
		epsilon := make([]float32, (c.Trajectory+1)*n)
		Sample(epsilon, c.Trajectory+1, c.Seed, c.Step)
		if row := epsilon[c.Trajectory*n:]; !slices.Equal(row, c.Values) {
			t.Errorf("seed %d step %d trajectory %d:\n%v\nindependently\n%v", c.Seed, c.Step, c.Trajectory, row[:4], c.Values[:4])
		}
	}
}

func TestSampleMoments(t *testing.T) {
	const n, trajectories = 200_000, 3
	epsilon := make([]float32, trajectories*n)
	epsilon[0] = 1 // must be cleared
	Sample(epsilon, trajectories, 42, 0)
	if slices.ContainsFunc(epsilon[:n], func(x float32) bool { return x != 0 }) {
		t.Error("trajectory 0 is not the mean")
	}
	a, b := epsilon[n:2*n], epsilon[2*n:]
	var moments [5]float64
	var cross, below float64
	for i, x := range a {
		power := 1.0
		for k := range moments {
			moments[k] += power / n
			power *= float64(x)
		}
		cross += float64(x) * float64(b[i]) / n
		if x < -1.959964 {
			below++
		}
	}
	for k, want := range []float64{1, 0, 1, 0, 3} { // the standard errors are below 0.022
		if math.Abs(moments[k]-want) > 0.08 {
			t.Errorf("moment %d is %g, want %g", k, moments[k], want)
		}
	}
	if math.Abs(cross) > 0.01 {
		t.Errorf("trajectories correlate: %g", cross)
	}
	if share := below / n; math.Abs(share-0.025) > 0.0015 {
		t.Errorf("%g of the values lie below the 2.5 %% quantile", share)
	}
}

func TestQuantile(t *testing.T) {
	g := load(t).Quantile
	for i, p := range g.P {
		if got := quantile(p); math.Abs(got-g.X[i]) > 4e-15*math.Max(1, math.Abs(g.X[i])) {
			t.Errorf("quantile(%g) = %.17g, scipy %.17g", p, got, g.X[i])
		}
	}
	for _, x := range []float64{1e-300, 1e-16, 0.3, math.Sqrt2 / 2, 1, 1.5, math.E, 1e10} {
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 4e-16*math.Max(1, math.Abs(want)) {
			t.Errorf("ln(%g) = %.17g, want %.17g", x, got, want)
		}
	}
}

func TestLogLikelihood(t *testing.T) {
	g := load(t).LogLike
	want := g.Value / math.Sqrt(float64(len(g.Epsilon)))
	if got := LogLikelihood(g.Epsilon, g.LogSigma, g.Tau); math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%g, torch gives %g", got, want)
	}
}

// The spread over a group is that of chi-square/(2 sqrt N): sqrt(2)/2 whatever N.
func TestLDVNSpread(t *testing.T) {
	const trajectories = 64
	for _, n := range []int{100, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			epsilon := make([]float32, trajectories*n)
			Sample(epsilon, trajectories, 5, 0)
			logSigma := make([]float32, n)
			var sum, square float64
			for j := 1; j < trajectories; j++ {
				l := LogLikelihood(epsilon[j*n:(j+1)*n], logSigma, 1)
				sum += l
				square += l * l
			}
			const k = trajectories - 1
			if sd := math.Sqrt(square/k - sum*sum/k/k); math.Abs(sd-math.Sqrt2/2) > 0.2 {
				t.Errorf("N = %d: standard deviation %g", n, sd)
			}
		})
	}
}

func TestAdvantages(t *testing.T) {
	g := load(t).Advantages
	testkit.Close(t, "advantages", Advantages(g.Rewards), g.Values, 1e-12)
	testkit.Close(t, "equal rewards", Advantages([]float64{2, 2, 2}), make([]float64, 3), 0)
}

func TestBest(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		rewards []float32
		want    int
	}{
		{[]float32{-3}, 0},
		{[]float32{1, 1}, 0},
		{[]float32{1, 2, 2}, 1},
		{[]float32{nan, -1, nan, -2}, 1},
		{[]float32{nan, nan}, -1},
	} {
		if got := Best(c.rewards); got != c.want {
			t.Errorf("Best(%v) = %d, want %d", c.rewards, got, c.want)
		}
	}
}
