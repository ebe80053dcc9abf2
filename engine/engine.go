// Package engine is the one door to the registration core: Open an engine, Register pairs. It knows images only as voxels
// with geometry; reading files is the skins' business.
package engine

import (
	"context"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

// Version of the library, semantic. The build sets nothing: this line is the source for every skin.
const Version = "0.1.0"

// Config is what an Engine keeps over many registrations.
type Config struct {
	RuntimeLibrary string // path of the ONNX Runtime library; empty: looked for (engine/network says where)
	ModelDir       string // extra folder of bundles; may be empty
}

// Engine holds the runtime and its open models. It is safe for concurrent use.
type Engine struct{}

// Open makes an engine. ONNX Runtime is loaded when the first network runs, so an engine without one still aligns.
func Open(cfg Config) (*Engine, error) { return &Engine{}, nil }

// Close releases the models. Registrations under way finish first.
func (e *Engine) Close() error { return nil }

// Pair is what to register: the moving volume onto the fixed one's grid. Masks and the initial transform may be nil.
type Pair struct {
	Fixed, Moving         *volume.Volume
	FixedMask, MovingMask *volume.Volume // non-zero selects; each on its image's grid
	Initial               *volume.Affine // fixed -> moving LPS mm: where the initial alignment starts (or stays, with Initial: "none")
}

// Register runs the stages align -> search -> network -> refine -> finish.
func (e *Engine) Register(ctx context.Context, pair Pair, opt Options, progress ProgressFunc) (*Result, error) {
	return nil, fault.New(fault.Internal, "engine: Register is not there yet")
}
