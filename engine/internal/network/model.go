// Package network runs trained registration networks. A model bundle is one .onnx file whose metadata carry a manifest;
// it is read and verified here without ONNX Runtime, which is loaded when the first network runs.
//
// # The step graph
//
// One run is one registration step: (fixed, moving, u_prev, epsilon, tau) -> (u, warped, reward, mu, log_sigma). The
// graph warps the original moving image by u_prev, encodes, forms z = mu + tau*sigma*epsilon for J trajectories,
// decodes phi, composes u = u_prev o phi, and scores without labels. Step gives the shapes.
//
// A model that loops has one more input, steps, and one more output, njd: a run takes that many steps and keeps the
// trajectory of the greatest reward in between, so that a GPU sees one upload and one download. Without steps it takes
// one. It may have the input first, too, the number of steps taken before the run: such a network sees the pair a
// little displaced from step to step.
package network

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

//go:embed bundles
var builtin embed.FS

const extension = ".onnx"

// maxBundle is ONNX's own limit: a protobuf message has at most 2 GiB.
const maxBundle = 1 << 31

// Names of the step graph's tensors.
var (
	inputNames  = []string{"fixed", "moving", "u_prev", "epsilon", "tau"}
	outputNames = []string{"u", "reward", "mu", "log_sigma"} // "warped" is not asked for: the image is resampled once, at the end
)

// Names of what a model that loops has besides; firstInput only where the network treats the steps differently.
const stepsInput, firstInput, njdOutput = "steps", "first", "njd"

// Model is a verified bundle.
type Model struct {
	Manifest
	Path   string // empty: built in
	Loops  bool   // a run may take several steps
	counts bool   // and wants to know how many were taken before it

	graph     []byte // what SHA256 is of
	ir, opset uint64 // the versions of the file's form and of the operators
}

// Bytes returns about how much memory the tensors of a registration take on a network grid; 0 steps are the model's own.
func (m *Model) Bytes(grid volume.Geometry, steps, trajectories int) int64 {
	const float = 4
	inRun, j := int64(1), int64(trajectories) // steps in one run of the graph
	if m.Loops {
		inRun = int64(cmp.Or(steps, m.Steps))
	}
	voxels := (2 + 3 + 3*j) * int64(grid.Voxels())        // both images, the field before, a field a trajectory
	latent := inRun * (j + 2) * int64(m.LatentSize(grid)) // noise, mu, log sigma
	return float * (voxels + latent)
}

// tensors names what a run of the model takes and gives.
func (m *Model) tensors() (inputs, outputs []string) {
	if !m.Loops {
		return inputNames, outputNames
	}
	inputs, outputs = append(slices.Clone(inputNames), stepsInput), append(slices.Clone(outputNames), njdOutput)
	if m.counts {
		inputs = append(inputs, firstInput)
	}
	return inputs, outputs
}

// Info describes a bundle to a front end.
type Info struct {
	Manifest Manifest   `json:"manifest"` // empty where the bundle is not sound
	Path     string     `json:"path"`     // empty: built in
	Code     fault.Code `json:"code"`     // 0 where the bundle is sound
	Error    string     `json:"error"`    // why it is not
}

// Parse verifies a bundle held in memory; name is what messages call it. It returns ModelCorrupt, ModelVersion,
// ModelExternal or ModelTampered. The model aliases data.
func Parse(data []byte, name string) (*Model, error) {
	if bytes.HasPrefix(data, []byte("PK\x03\x04")) { // a zip archive, as PyTorch writes
		return nil, fault.New(fault.ModelCorrupt,
			"model %s is a checkpoint of PyTorch, not a bundle; make one with `morphseek train export`", name)
	}
	file, err := scanONNX(data)
	if err != nil {
		return nil, fault.Wrap(fault.ModelCorrupt, err, "model %s cannot be read; fetch it again", name)
	}
	text, ok := file.metadata[manifestKey]
	if !ok {
		return nil, fault.New(fault.ModelCorrupt,
			"model %s is an ONNX file but not a MorphSeek bundle: it has no manifest; export it with `morphseek "+
				"train export`", name)
	}
	manifest, err := parseManifest(text)
	if err != nil {
		return nil, fault.Wrap(fault.ModelCorrupt, err, "model %s has a faulty manifest; export it again", name)
	}
	if manifest.Format != Format {
		return nil, fault.New(fault.ModelVersion,
			"model %s has bundle format %d, and this library reads format %d; update the older of the two",
			name, manifest.Format, Format)
	}
	if file.external != "" {
		return nil, fault.New(fault.ModelExternal,
			"model %s keeps %s outside the file, which is not allowed; export it with the weights inside", name, file.external)
	}
	if sum := sha256.Sum256(file.graph); hex.EncodeToString(sum[:]) != strings.ToLower(manifest.SHA256) {
		return nil, fault.New(fault.ModelTampered,
			"model %s is not what its maker signed off: the sha256 of its graph is %x, its manifest says %s; fetch "+
				"it again from a source that you trust", name, sum, manifest.SHA256)
	}
	if file.opset < 20 { // 5-D GridSample
		return nil, fault.New(fault.ModelCorrupt,
			"model %s uses ONNX opset %d; at least 20 is needed; export it again", name, file.opset)
	}
	for _, in := range inputNames {
		if !file.inputs[in] {
			return nil, fault.New(fault.ModelCorrupt, "model %s lacks the input %q of a step graph; export it again", name, in)
		}
	}
	for _, out := range outputNames {
		if !file.outputs[out] {
			return nil, fault.New(fault.ModelCorrupt, "model %s lacks the output %q of a step graph; export it again", name, out)
		}
	}
	loops := file.inputs[stepsInput] && file.outputs[njdOutput]
	return &Model{Manifest: manifest, Loops: loops, counts: loops && file.inputs[firstInput], graph: file.graph, ir: file.ir, opset: file.opset}, nil
}

// builtins are the bundles inside the library, verified once.
var builtins = sync.OnceValue(func() map[string]loaded {
	files, _ := fs.Glob(builtin, "bundles/*"+extension)
	models := make(map[string]loaded, len(files))
	for _, file := range files {
		data, err := builtin.ReadFile(file)
		if err != nil { // files of an embed.FS that Glob names can be read
			panic(err)
		}
		m, err := Parse(data, stem(file))
		models[stem(file)] = loaded{m, err}
	}
	return models
})

type loaded struct {
	model *Model
	err   error
}

func stem(path string) string { return strings.TrimSuffix(filepath.Base(path), extension) }

// Load verifies and returns the bundle called name: a built-in one, one in dir (which may be empty), or a path to a
// .onnx.
func Load(name, dir string) (*Model, error) {
	if b, ok := builtins()[name]; ok {
		return b.model, b.err
	}
	if name == "none" {
		return nil, fault.New(fault.ModelNotFound,
			"\"none\" stands for no network: there is no such bundle; it must be one of %s, or the path of a .onnx "+
				"bundle", strings.Join(Names(dir), ", "))
	}
	path, isPath := name, strings.ContainsAny(name, `/\`)
	if dir != "" && !isPath {
		if p := filepath.Join(dir, strings.TrimSuffix(name, extension)+extension); exists(p) {
			path = p
		}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (isPath || filepath.Ext(name) == extension):
		return nil, fault.New(fault.ModelNotFound, "model: the file %s does not exist; check the path", name)
	case errors.Is(err, fs.ErrNotExist), err == nil && info.IsDir():
		return nil, fault.New(fault.ModelNotFound,
			"there is no model %q; it must be one of %s, or the path of a .onnx bundle",
			name, strings.Join(append(Names(dir), "none"), ", "))
	case err != nil:
		return nil, fault.Wrap(fault.ModelNotFound, err, "model %s cannot be opened", path)
	case !info.Mode().IsRegular(): // a pipe that nobody writes to would be waited for without end
		return nil, fault.New(fault.ModelNotFound,
			"model %s is a pipe, a socket or a device, and no regular file; save what it gives to a file first", path)
	case info.Size() > maxBundle:
		return nil, fault.New(fault.ModelCorrupt, "model %s has %d bytes, more than an ONNX file can have", path, info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Wrap(fault.ModelNotFound, err, "model %s cannot be read", path)
	}
	m, err := Parse(data, path)
	if err != nil {
		return nil, err
	}
	m.Path = path
	return m, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// List describes the built-in bundles and those in dir (which may be empty), faulty ones included.
func List(dir string) []Info {
	infos := []Info{}
	add := func(path string, m *Model, err error) {
		info := Info{Path: path, Code: fault.CodeOf(err)}
		if err == nil {
			info.Manifest = m.Manifest
		} else {
			info.Error = err.Error()
		}
		infos = append(infos, info)
	}
	for _, name := range slices.Sorted(maps.Keys(builtins())) {
		b := builtins()[name]
		add("", b.model, b.err)
	}
	for _, file := range bundlesIn(dir) {
		m, err := Load(file, "")
		add(file, m, err)
	}
	return infos
}

// Names returns what Load accepts as a name: the built-in bundles' and those in dir (which may be empty).
func Names(dir string) []string {
	names := slices.Collect(maps.Keys(builtins()))
	for _, file := range bundlesIn(dir) {
		names = append(names, stem(file))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func bundlesIn(dir string) []string {
	if dir == "" {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"+extension))
	return files
}
