package engine_test

import (
	"context"
	"fmt"
	"math"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/volume"
)

// ball returns an image of a ball that fades at its border, its centre at x mm.
func ball(x float64) *volume.Volume {
	g := volume.Geometry{Size: [3]int{32, 32, 32}, Spacing: [3]float64{2, 2, 2}, Direction: volume.Identity}
	v, toPhysical := volume.Zeros(g), g.IndexToPhysical()
	for i := range v.Data {
		p := toPhysical.Apply(g.Point(i))
		r := math.Hypot(math.Hypot(p[0]-x, p[1]-30), p[2]-30)
		v.Data[i] = float32(100 / (1 + math.Exp(r-15)))
	}
	return v
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
