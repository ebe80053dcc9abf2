// Package gopy is the Python way into the engine: gopy reads this package and compiles it into the extension that the
// Python package `morphseek` wraps. It holds no logic of its own.
//
// # Conventions
//
// Arrays come in and go out as the address of the caller's numpy buffer, so that no volume is copied on the way in and one
// is on the way out; the caller keeps the buffer alive for the call. A grid is the address of 18 float64: size, spacing and
// origin along x, y, z, then the row-major direction. Voxels are float32 with x fastest. A field is 3 planes of float32 in
// the layout of field.Field, in voxels of its grid. Address 0 stands for "not given".
//
// Tables and metrics go out as JSON, options come in as JSON. An error's text is "code|message"; the Python side raises the
// class that FaultTable gives for the code. No panic leaves the package: it becomes an error with code 1.
package gopy

import (
	"encoding/json"
	"fmt"
	"unsafe"

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

// at returns the address as a pointer. The memory is numpy's, so Go's garbage collector does not move or free it.
func at[T any](address uint64) *T {
	return *(**T)(unsafe.Pointer(&address))
}

// floats returns n float32 at address without copying them.
func floats(address uint64, n int) []float32 {
	return unsafe.Slice(at[float32](address), n)
}

// geometry reads 18 float64 as a geometry, without checks.
func geometry(v *[18]float64) volume.Geometry {
	return volume.Geometry{
		Size:      [3]int{int(v[0]), int(v[1]), int(v[2])},
		Spacing:   [3]float64(v[3:6]),
		Origin:    [3]float64(v[6:9]),
		Direction: [9]float64(v[9:18]),
	}
}

// grid reads a geometry from 18 float64 at address and checks it. name says which input it is, for the message.
func grid(address uint64, name string) (volume.Geometry, error) {
	v := at[[18]float64](address)
	if v == nil {
		return volume.Geometry{}, fault.New(fault.EmptyVolume, "%s volume is missing", name)
	}
	g := geometry(v)
	return g, g.Check(name)
}

// SameGrid reports whether two grids are one to the engine.
func SameGrid(one, other uint64) (same bool, err error) {
	defer guard(&err)
	return geometry(at[[18]float64](one)).SameGrid(geometry(at[[18]float64](other))), nil
}

// image returns the volume at address on the grid at gridAddress; nil, without an error, for address 0.
func image(address, gridAddress uint64, name string) (*volume.Volume, error) {
	if address == 0 {
		return nil, nil
	}
	g, err := grid(gridAddress, name)
	if err != nil {
		return nil, err
	}
	return &volume.Volume{Geometry: g, Data: floats(address, g.Voxels())}, nil
}

// affine reads a map from 12 float64 at address: the row-major matrix, then the translation; nil for address 0.
func affine(address uint64) *volume.Affine {
	v := at[[12]float64](address)
	if v == nil {
		return nil
	}
	return &volume.Affine{M: [9]float64(v[:9]), T: [3]float64(v[9:])}
}

// text returns v as JSON.
func text(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
