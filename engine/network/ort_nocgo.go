//go:build !cgo

package network

import "github.com/morphseek/morphseek/engine/fault"

// Built without cgo the engine still aligns; ONNX Runtime, a C library, is out of reach.
func openSession(string, *Model, string, int) (Runner, string, error) {
	return nil, "", fault.New(fault.RuntimeMissing, "this build has no ONNX Runtime support; build with CGO_ENABLED=1, or use model none")
}
