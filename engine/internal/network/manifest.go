package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/morphseek/morphseek/engine/volume"
)

// Format is the bundle format that this library reads.
const Format = 1

// manifestKey names the manifest among the model's metadata_props.
const manifestKey = "morphseek_manifest"

// Manifest says what a bundle is and how to feed it. It travels inside the .onnx as JSON under metadata_props.
type Manifest struct {
	Format          int            `json:"format"`
	Name            string         `json:"name"`
	Version         string         `json:"version"`
	Backbone        string         `json:"backbone"`
	Latent          Latent         `json:"latent"`
	SizeMultiple    int            `json:"size_multiple"` // every size of the network grid is a multiple of it
	MinSize         [3]int         `json:"min_size"`      // voxels along z, y, x
	Size            *[3]int        `json:"size"`          // the only network grid that it runs on, voxels along z, y, x; null: any
	Precision       string         `json:"precision"`     // of the layers: "float32" or "float16"; fields are float32 in both
	SpacingMM       [3]*float64    `json:"spacing_mm"`    // of the network grid along z, y, x; null keeps the fixed image's
	Intensity       Intensity      `json:"intensity"`
	Modality        string         `json:"modality"`
	Initial         string         `json:"initial"` // the initial transform that it was trained behind: "affine", "rigid", "com" or "none"
	Steps           int            `json:"steps"`   // T that it was trained with
	Parametrisation string         `json:"parametrisation"`
	TrainingData    []Source       `json:"training_data"`
	Licence         string         `json:"licence"`
	Credit          string         `json:"credit"`
	Metrics         map[string]any `json:"metrics"` // as its trainer measured them
	Parameters      int64          `json:"parameters"`
	SHA256          string         `json:"sha256"` // of the graph, weights included: the raw payload of ModelProto.graph
}

// Latent is the grid on which the policy draws: Channels at 1/Stride of the network grid.
type Latent struct {
	Channels int `json:"channels"`
	Stride   int `json:"stride"`
}

// Intensity says how voxels become the network's input: the Low and High percentiles of the original image's finite
// voxels go to Out[0] and Out[1], linearly, clipped; outside the image is Background.
type Intensity struct {
	Method     string     `json:"method"` // "percentile"
	Low        float64    `json:"low"`
	High       float64    `json:"high"`
	Out        [2]float64 `json:"out"`
	Background float64    `json:"background"`
}

// Source is a data set that a model was trained on.
type Source struct {
	Name    string `json:"name"`
	Licence string `json:"licence"`
	Credit  string `json:"credit"`
}

// parseManifest reads a manifest. It does not check the keys of another format; of this format all must be known.
func parseManifest(text string) (m Manifest, err error) {
	if err = json.Unmarshal([]byte(text), &m); err != nil {
		return m, fmt.Errorf("the manifest is not readable: %w", err)
	}
	if m.Format != Format {
		return m, nil
	}
	known := json.NewDecoder(strings.NewReader(text))
	known.DisallowUnknownFields()
	if err = known.Decode(new(Manifest)); err != nil {
		return m, fmt.Errorf("the manifest has a key that format %d does not: %w", Format, err)
	}
	if err = unique(json.NewDecoder(strings.NewReader(text))); err != nil {
		return m, err
	}
	return m, m.check()
}

// unique reports a key that an object of a JSON value has twice, in any case: readers differ in which they take, and
// encoding/json ignores case.
func unique(in *json.Decoder) error {
	first, err := in.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('{') && first != json.Delim('[') {
		return nil
	}
	keys := map[string]bool{}
	for in.More() {
		if first == json.Delim('{') {
			key, err := in.Token()
			if err != nil {
				return err
			}
			folded := strings.ToLower(strings.ToUpper(key.(string))) // a decoder gives no other keys
			if keys[folded] {
				return fmt.Errorf("the manifest has the key %q twice", key)
			}
			keys[folded] = true
		}
		if err := unique(in); err != nil {
			return err
		}
	}
	_, err = in.Token()
	return err
}

// check reports the first value that no network can be run with.
func (m Manifest) check() error {
	in := m.Intensity
	switch {
	case m.Name == "":
		return errors.New("the manifest has no name")
	case m.Latent.Channels < 1 || m.Latent.Channels > 1<<16 || m.Latent.Stride < 1 || m.Latent.Stride > 1<<10:
		return fmt.Errorf("latent %+v is out of range", m.Latent)
	case m.SizeMultiple < 1 || m.SizeMultiple > 1<<10 || m.SizeMultiple%m.Latent.Stride != 0:
		return fmt.Errorf("size_multiple %d is not a multiple of the latent stride %d", m.SizeMultiple, m.Latent.Stride)
	case m.Steps < 1 || m.Steps > 16:
		return fmt.Errorf("steps %d is not in [1, 16]", m.Steps)
	case in.Method != "percentile":
		return fmt.Errorf("intensity method %q is unknown", in.Method)
	case !(in.Low >= 0 && in.Low < in.High && in.High <= 100 && in.Out[0] < in.Out[1]) || math.IsInf(in.Out[1]-in.Out[0], 0):
		return fmt.Errorf("intensity %+v is out of range", in)
	}
	for a := range 3 {
		if m.MinSize[a] < 0 || m.MinSize[a] > 1<<12 {
			return fmt.Errorf("min_size %v is out of range", m.MinSize)
		}
		if m.Size != nil && (m.Size[a] < 1 || m.Size[a] > 1<<12 || m.Size[a]%m.SizeMultiple != 0) {
			return fmt.Errorf("size %v is out of range or no multiple of %d", *m.Size, m.SizeMultiple)
		}
		if s := m.SpacingMM[a]; s != nil && !(*s >= 1e-3 && *s <= 1e3) {
			return fmt.Errorf("spacing_mm[%d] %g is out of range", a, *s)
		}
	}
	return nil
}

// Lengths returns what the network is made for along x, y, z, mm: its only grid, or else its least; 0 where the
// manifest does not say.
func (m Manifest) Lengths() (mm [3]float64) {
	size := m.MinSize
	if m.Size != nil {
		size = *m.Size
	}
	for a, s := range m.SpacingMM {
		if s != nil {
			mm[2-a] = float64(size[a]) * *s
		}
	}
	return mm
}

// Grid returns the network grid for a fixed image. Where the model runs on one size and the image is larger, its voxels
// are so, too.
func (m Manifest) Grid(fixed volume.Geometry) volume.Geometry {
	var spacing [3]float64
	for a, s := range m.SpacingMM {
		if s != nil {
			spacing[2-a] = *s
		}
	}
	grid := fixed.NetworkGrid(spacing, [3]int{m.MinSize[2], m.MinSize[1], m.MinSize[0]}, m.SizeMultiple)
	if m.Size == nil {
		return grid
	}
	size := [3]int{m.Size[2], m.Size[1], m.Size[0]}
	center := grid.Center()
	for a, n := range size {
		grid.Spacing[a] *= max(1, float64(grid.Size[a])/float64(n))
	}
	grid.Size = size
	return grid.CenteredAt(center)
}

// LatentSize returns the number of latent values N = C*d*h*w on a network grid.
func (m Manifest) LatentSize(g volume.Geometry) int {
	n := m.Latent.Channels
	for _, s := range g.Size {
		n *= s / m.Latent.Stride
	}
	return n
}

// Normalise rewrites v's voxels as the network wants them. low and high are the original image's percentiles.
func (in Intensity) Normalise(v *volume.Volume, low, high float64) {
	scale := 0.0
	if high > low {
		scale = (in.Out[1] - in.Out[0]) / (high - low)
	}
	lo, hi := float32(in.Out[0]), float32(in.Out[1])
	for i, x := range v.Data {
		y := float32(in.Out[0] + float64((float64(x)-low)*scale))
		v.Data[i] = min(max(y, lo), hi)
	}
}
