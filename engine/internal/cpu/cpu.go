// Package cpu says what the processor offers to the assembly of this module, and lets tests do without.
//
// Assembly gives the bits of the Go loop that it stands for, so no result depends on the processor. For that a product
// is rounded before it is added: float32(x*y) + z. Without the conversion Go fuses the two on arm64, and on amd64 from
// GOAMD64=v3 on.
//
// Each package has its assembly in files *_amd64.go and *_amd64.s, and one file noasm.go for other processors and the
// build tag noasm:
//
//	internal/align   butterflies, products of spectra, features at a point, sums of the score    AVX
//	internal/blocks  lower envelopes, sums of messages                                           AVX
//	                 block costs                                                                 AVX2
//	internal/filter  symmetric kernels                                                           AVX
//	internal/interp  rows of trilinear samples                                                   AVX2
//	internal/mind    MIND-SSC: contrast, exponentials                                            AVX2
//	internal/refine  local NCC: moments, correlation, longest step                               AVX
//	                 a gradient on half the grid and back                                        AVX
//	                 local NCC: gradient                                                         AVX2
//	                 MIND-SSC: force, warp                                                       AVX
package cpu

import "runtime"

// features are those of this processor that are in use.
type features struct{ avx, avx2 bool }

var has = detect()

// AVX says whether there are vectors of eight float32.
func AVX() bool { return has.avx }

// AVX2 says whether there are also vectors of eight int32 and of 32 bytes.
func AVX2() bool { return has.avx2 }

// Feature is one of the processor's that assembly here can use.
type Feature struct {
	Name string `json:"name"`
	Used bool   `json:"used"`
}

// Features lists the features of the table above; none on a processor that has no assembly here.
func Features() []Feature {
	if runtime.GOARCH != "amd64" {
		return []Feature{}
	}
	return []Feature{{"AVX", has.avx}, {"AVX2", has.avx2}}
}

// Disable hides every feature, so that the Go loops run, until restore is called. It is for tests that do not run in
// parallel.
func Disable() (restore func()) {
	before := has
	has = features{}
	return func() { has = before }
}

// Both returns what a function gives with the processor's features and without them. It is for tests, as Disable is.
func Both[T any](run func() T) (vectors, loops T) {
	vectors = run()
	defer Disable()()
	return vectors, run()
}
