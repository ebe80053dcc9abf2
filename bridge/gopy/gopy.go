// Package gopy is the Python way into the engine: gopy reads this package and compiles it into the extension that the
// Python package `morphseek` wraps. It holds no logic of its own.
//
// # Conventions
//
// Arrays come in and go out as the address of the caller's numpy buffer, so that no volume is copied on the way in and one
// is on the way out; the caller keeps the buffer alive for the call. A grid is the address of 18 float64: size, spacing and
// origin along x, y, z, then the row-major direction. An affine map is a volume.Affine: 12 float64, the row-major matrix,
// then the translation. Voxels are float32 with x fastest. A field is 3 planes of float32 in the layout of field.Field, in
// voxels of its grid. Address 0 stands for "not given".
//
// Tables and metrics go out as JSON. Options come in as JSON, and so does the call of Register, whose arrays are addresses.
// An error's text is "code|message"; the Python side raises the class that FaultTable gives for the code. No panic leaves
// the package: it becomes an error with code 1.
package gopy

import (
	"encoding/json"
	"fmt"
	"unsafe"

	"github.com/morphseek/morphseek/bridge/internal/wire"
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

// guard makes the named error result of an entry point fit to cross: a panic becomes an error, and an error's text gets its
// code in front. Use: defer guard(&err).
func guard(err *error) {
	if r := recover(); r != nil {
		*err = fault.Defect(r)
	}
	if *err != nil {
		*err = fmt.Errorf("%d|%w", fault.CodeOf(*err), *err)
	}
}

// floats returns n float32 at address without copying them.
func floats(address uint64, n int) []float32 {
	return unsafe.Slice(wire.Address[float32](address), n)
}

// grid reads a geometry from 18 float64 at address and checks it. name says which input it is, for the message.
func grid(address uint64, name string) (volume.Geometry, error) {
	v := wire.Address[[18]float64](address)
	if v == nil {
		return volume.Geometry{}, fault.New(fault.EmptyVolume, "%s volume is missing", name)
	}
	g := wire.GeometryOf(v)
	return g, g.Check(name)
}

// SameGrid reports whether two grids are one to the engine.
func SameGrid(one, other uint64) (same bool, err error) {
	defer guard(&err)
	a, b := wire.Address[[18]float64](one), wire.Address[[18]float64](other)
	return wire.GeometryOf(a).SameGrid(wire.GeometryOf(b)), nil
}

// image returns the volume at address on the grid at gridAddress. name says which input it is, for the message.
func image(address, gridAddress uint64, name string) (*volume.Volume, error) {
	g, err := grid(gridAddress, name)
	if err != nil {
		return nil, err
	}
	return &volume.Volume{Geometry: g, Data: floats(address, g.Voxels())}, nil
}

// text returns v as JSON.
func text(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
