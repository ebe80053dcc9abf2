package search

import (
	"context"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/aligned"
	"github.com/morphseek/morphseek/engine/internal/blocks"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// Where the energy is a parabola, the Gibbs distribution is a normal one: of variance t/2a along each axis.
func TestMeanSquareIsOfNormalDistribution(t *testing.T) {
	const a, temperature = 1.25, 1.5
	l := blocks.Level{Radius: 5, Quantum: 1}
	lengths := squaredLengths(l, [9]float64{2, 0, 0, 0, 0, -3, 0, 1, 0}, 2*l.Radius+1)
	plain := squaredLengths(l, volume.Identity, 2*l.Radius+1)
	weights := make([]float32, len(plain))
	for i, d := range plain {
		weights[i] = float32(math.Exp(-a * d / temperature))
	}
	want := temperature / (2 * a) * (4 + 9 + 1)
	if got := mean(lengths, weights); math.Abs(got-want) > 1e-3*want {
		t.Errorf("mean square %g, want %g", got, want)
	}
}

// ranks returns the rank of every value.
func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if x[a] < x[b] {
			return -1
		}
		return 1
	})
	r := make([]float64, len(x))
	for rank, i := range order {
		r[i] = float64(rank)
	}
	return r
}

// The uncertainty ranks the errors of a search, is of their size, and scales with the voxels.
func TestUncertaintyTellsTheError(t *testing.T) {
	t.Parallel()
	const n = 48
	fixed, moving, truth := testkit.Phantom(n, 6, true)
	pair := aligned.Pair{Fixed: fixed, Moving: moving, Initial: volume.IdentityAffine()}
	u := testkit.Must(Run(context.Background(), pair, Options{}))(t)
	look := func(threads int) *volume.Volume {
		sd := testkit.Must(Uncertainty(context.Background(), pair, u, Options{Threads: threads}))(t)
		return sd.Resample(fixed.Geometry, volume.IdentityAffine(), volume.Linear, -1, threads)
	}
	sd := look(1)
	if !slices.Equal(sd.Data, look(3).Data) {
		t.Error("it depends on the number of threads")
	}
	if least := slices.Min(sd.Data); !(least > 0) {
		t.Errorf("it is %g somewhere, or does not cover the fixed volume", least)
	}
	found := u.Resample(fixed.Geometry, 1)
	var said, is []float64
	sum2, error2 := 0.0, 0.0
	for i, v := range fixed.Data {
		if v < 5 || v > 139 { // air, whose intensity is 140
			continue
		}
		dx, dy, dz := float64(found.X[i]-truth.X[i]), float64(found.Y[i]-truth.Y[i]), float64(found.Z[i]-truth.Z[i])
		said, is = append(said, float64(sd.Data[i])), append(is, math.Sqrt(dx*dx+dy*dy+dz*dz))
		sum2 += float64(sd.Data[i]) * float64(sd.Data[i])
		error2 += dx*dx + dy*dy + dz*dz
	}
	rho := stat.Correlation(ranks(said), ranks(is), nil)
	ratio := math.Sqrt(error2 / sum2)
	t.Logf("rank correlation %.2f, error/uncertainty %.2f, %d voxels", rho, ratio, len(is))
	if rho < 0.3 {
		t.Errorf("rank correlation %.2f", rho)
	}
	if ratio < 1/3. || ratio > 3 {
		t.Errorf("root mean square of the error is %.2f of that of the uncertainty", ratio)
	}

	// Without knowing the way, it is larger: the truth lies elsewhere.
	lost := testkit.Must(Uncertainty(context.Background(), pair, nil, Options{}))(t)
	at := [3]int{24, 24, 24}
	i := (at[2]*n+at[1])*n + at[0]
	if away := lost.Resample(fixed.Geometry, volume.IdentityAffine(), volume.Linear, -1, 1).Data[i]; !(away > 1.5*sd.Data[i]) {
		t.Errorf("%g mm before the search, %g after", away, sd.Data[i])
	}

	// Voxels of twice the size: the same images, twice the distances.
	for _, v := range []*volume.Geometry{&fixed.Geometry, &moving.Geometry, &u.Geometry} {
		v.Spacing = [3]float64{2, 2, 2}
		for a := range v.Origin {
			v.Origin[a] *= 2
		}
	}
	for i, v := range look(1).Data {
		if math.Abs(float64(v-2*sd.Data[i])) > 0.02*float64(v) {
			t.Fatalf("voxel %d: %g mm with voxels of 2 mm, %g with 1 mm", i, v, sd.Data[i])
		}
	}
}

func TestUncertaintyCancelled(t *testing.T) {
	t.Parallel()
	fixed, moving, _ := testkit.Phantom(40, 3, false)
	ctx, cancel := context.WithCancel(context.Background())
	pair := aligned.Pair{Fixed: fixed, Moving: moving, Initial: volume.IdentityAffine()}
	_, err := Uncertainty(ctx, pair, nil, Options{Progress: func(float64) { cancel() }})
	if fault.CodeOf(err) != fault.Cancelled {
		t.Errorf("error %v, want cancelled", err)
	}
}
