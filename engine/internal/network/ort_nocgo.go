//go:build !cgo

package network

import "github.com/morphseek/morphseek/engine/fault"

// Built without cgo the engine still aligns; ONNX Runtime, a C library, is out of reach.
var errNoRuntime = fault.New(fault.RuntimeMissing, "this build has no ONNX Runtime support; build with CGO_ENABLED=1, or use model none")

func openSession(string, *Model, string, int) (Runner, string, error) { return nil, "", errNoRuntime }

func newORTRunner(*Model, string, int) (Runner, error) { return nil, errNoRuntime }

func loadRuntime(string) error { return errNoRuntime }

func runtimeInfo(string) (path, version string, providers []string) { return "", "", []string{} }

func gpus() []GPU { return []GPU{} }
