package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

// ball returns an image of a ball that fades at its border, its centre at x mm.
func ball(x float64) *volume.Volume {
	g := volume.Geometry{Size: [3]int{20, 20, 20}, Spacing: [3]float64{3, 3, 3}, Direction: volume.Identity}
	v, toPhysical := volume.Zeros(g), g.IndexToPhysical()
	for i := range v.Data {
		p := toPhysical.Apply(g.Point(i))
		r := volume.Distance(p, [3]float64{x, 30, 30})
		v.Data[i] = float32(100 / (1 + math.Exp(r-15)))
	}
	return v
}

// aligned returns the result of two balls that lie 6 mm apart, with the centres of mass alone: the quickest there is.
func aligned() (*engine.Result, error) {
	e, err := engine.Open(engine.Config{})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	options, err := engine.ParseOptions(`{"model": "none", "initial": "com", "search": "off", "refine": 0}`)
	if err != nil {
		return nil, err
	}
	return e.Register(context.Background(), engine.Pair{Fixed: ball(30), Moving: ball(36)}, options, nil)
}

// The moving ball lies 6 mm beyond the fixed one. So that is where the fixed image's points go.
func Example() {
	e, err := engine.Open(engine.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	options := engine.DefaultOptions()
	options.Initial = "rigid"
	result, err := e.Register(context.Background(), engine.Pair{Fixed: ball(30), Moving: ball(36)}, options, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	point := []float64{30, 30, 30} // LPS mm
	if err := result.TransformPoints(point); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("x moves by %.0f mm\n", point[0]-30)
	// Output:
	// x moves by 6 mm
}

// The verdict says whether to use a result, and why not.
func ExampleResult() {
	result, err := aligned()
	if err != nil {
		fmt.Println(err)
		return
	}
	verdict := result.Metrics.Verdict
	fmt.Println(verdict.Grade)
	for _, reason := range verdict.Reasons {
		fmt.Println("-", reason)
	}
	// Output:
	// good
}

// Labels keep their numbers with volume.Nearest, and where the moving image ends they are the background.
func ExampleTransform_Warp() {
	result, err := aligned()
	if err != nil {
		fmt.Println(err)
		return
	}
	labels := volume.Zeros(ball(36).Geometry) // drawn on the moving image: 7 from the seventh voxel on
	for i := range labels.Data {
		if labels.Point(i)[0] >= 6 {
			labels.Data[i] = 7
		}
	}
	warped, err := result.Warp(labels, volume.Nearest, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(warped.Data[:20]) // one row along x
	// Output:
	// [0 0 0 0 7 7 7 7 7 7 7 7 7 7 7 7 7 7 0 0]
}

// Points go from the fixed image to the moving one, in place.
func ExampleTransform_TransformPoints() {
	result, err := aligned()
	if err != nil {
		fmt.Println(err)
		return
	}
	points := []float64{30, 30, 30, 20, 40, 30} // two of them, LPS mm
	if err := result.TransformPoints(points); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.0f\n", points)
	// Output:
	// [36 30 30 26 40 30]
}

// The inverse leads from the moving image to the fixed one.
func ExampleTransform_Inverse() {
	result, err := aligned()
	if err != nil {
		fmt.Println(err)
		return
	}
	inverse, residual, err := result.Inverse()
	if err != nil {
		fmt.Println(err)
		return
	}
	point := []float64{36, 30, 30}
	if err := inverse.TransformPoints(point); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.0f, to %.1f mm\n", point, residual)
	// Output:
	// [30 30 30], to 0.0 mm
}

// Front ends hand options on as JSON; what is misspelt or out of range is an error that says what there is.
func ExampleParseOptions() {
	options, err := engine.ParseOptions(`{"similarity": "mind", "smoothness": 2.5, "uncertainty": true}`)
	fmt.Println(options.Similarity, options.Smoothness, options.Uncertainty, err)
	_, err = engine.ParseOptions(`{"initial": "spline"}`)
	fmt.Println(err)
	// Output:
	// mind 2.5 on <nil>
	// initial is "spline"; it must be one of none, com, rigid, affine
}

// A front end lists what it can ask for.
func ExampleOptionSpecs() {
	for _, o := range engine.OptionSpecs() {
		if o.Name == "initial" || o.Name == "threads" {
			fmt.Println(o.Name, o.Type, o.Default, o.Choices)
		}
	}
	// Output:
	// initial string affine [none com rigid affine]
	// threads int 0 []
}

// A context ends a registration, and its error keeps the cause.
func ExampleEngine_Register_cancelled() {
	e, err := engine.Open(engine.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	pair := engine.Pair{Fixed: ball(30), Moving: ball(36)}
	_, err = e.Register(ctx, pair, engine.DefaultOptions(), func(p engine.Progress) bool {
		cancel(os.ErrDeadlineExceeded) // at the first report
		return true
	})
	fmt.Println(errors.Is(err, fault.Cancelled), errors.Is(err, os.ErrDeadlineExceeded))
	// Output:
	// true true
}

// A saved result does later all that a fresh one does.
func ExampleLoadResult() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	result, err := aligned()
	if err != nil {
		fmt.Println(err)
		return
	}
	path := filepath.Join(folder, "balls.morphseek")
	if err := result.Save(path); err != nil {
		fmt.Println(err)
		return
	}
	again, err := engine.LoadResult(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again.Metrics.Verdict.Grade, again.Initial == result.Initial)
	// Output:
	// good true
}
