package network

import (
	"context"
	"debug/elf"
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	processor "github.com/morphseek/morphseek/engine/internal/cpu" // cpu is a device here
	"github.com/morphseek/morphseek/engine/internal/parallel"
)

// Devices, as the option names them; the last is a prefix of the path of an ONNX Runtime plugin provider's library.
const (
	auto     = "auto"
	cpu      = "cpu"
	cuda     = "cuda"
	tensorrt = "tensorrt"
	plugin   = "plugin:"
)

// Inventory is what there is to run on: the processor for every stage, the rest for networks.
type Inventory struct {
	Processor Processor `json:"processor"`
	Library   string    `json:"library"`   // path of the ONNX Runtime in use; empty where none loads
	Version   string    `json:"version"`   // of ONNX Runtime
	Providers []string  `json:"providers"` // execution providers that it was built with, by its names
	GPUs      []GPU     `json:"gpus"`      // that the NVIDIA driver shows
	Devices   []Device  `json:"devices"`
}

// Processor is what the engine uses of it.
type Processor struct {
	Architecture string              `json:"architecture"` // by Go's name
	Threads      int                 `json:"threads"`      // where the option leaves it to the engine
	Features     []processor.Feature `json:"features"`
}

// GPU is one card as its driver describes it.
type GPU struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"` // of memory
}

// Device is a value of the device option, tried.
type Device struct {
	Name   string `json:"name"`
	Usable bool   `json:"usable"`
	Error  string `json:"error"`  // why it is not
	Remedy string `json:"remedy"` // what to do about it
}

// Inventory tries every device with one step of a built-in network on the smallest grid.
func (s *Sessions) Inventory() Inventory {
	inventory := Inventory{GPUs: gpus()}
	inventory.Processor = Processor{runtime.GOARCH, parallel.Threads(0), processor.Features()}
	inventory.Library, inventory.Version, inventory.Providers = runtimeInfo(s.library)
	for _, name := range []string{cpu, cuda, tensorrt} {
		device := Device{Name: name}
		if err := s.probe(name); err != nil {
			err = concise(err)
			device.Error, device.Remedy = err.Error(), remedy(name, inventory.Library, err)
		}
		device.Usable = device.Error == ""
		inventory.Devices = append(inventory.Devices, device)
	}
	return inventory
}

// probe runs a step on a device, in a session of its own.
func (s *Sessions) probe(device string) error {
	known := builtins()
	first := known[slices.Min(slices.Collect(maps.Keys(known)))]
	if first.err != nil {
		return first.err
	}
	if err := loadRuntime(s.library); err != nil {
		return err
	}
	runner, err := newORTRunner(first.model, device, 1)
	if err != nil {
		return err
	}
	defer runner.Close()
	size := first.model.MinSize
	voxels := size[0] * size[1] * size[2]
	step := NewStep(first.model.Manifest, size, 1, 1)
	step.Fixed, step.Moving, step.Previous = make([]float32, voxels), make([]float32, voxels), make([]float32, 3*voxels)
	return runner.Run(context.Background(), step)
}

// unavailable returns the error for a device that was asked for by name.
func unavailable(device, library string, cause error) error {
	cause = concise(cause)
	return fault.Wrap(fault.DeviceUnavailable, cause,
		"device %s is not available; %s, or use device auto or cpu", device, remedy(device, library, cause))
}

// fallback says why "auto" took the CPU. A runtime for the CPU on a machine without a GPU is no surprise, and needs no
// words.
func fallback(library string, cause error, cards []GPU) string {
	if strings.Contains(cause.Error(), cpuBuild) && len(cards) == 0 {
		return ""
	}
	return "The GPU is not usable (" + concise(cause).Error() + "), so the network ran on the CPU. To use it, " + remedy(cuda, library, cause) + "."
}

var essence = regexp.MustCompile(`(Failed to load library|CU[A-Z]+ failure)[^;\n]*`)

// concise returns the message of the CUDA libraries or the loader without the C++ signatures that ONNX Runtime puts
// around it.
func concise(err error) error {
	if text := essence.FindString(err.Error()); text != "" {
		return errors.New(strings.TrimSpace(text))
	}
	return err
}

// remedy says what to do about a device that failed with cause, by what ONNX Runtime and the loader write.
func remedy(device, library string, cause error) string {
	text := cause.Error()
	has := func(sign string) bool { return strings.Contains(text, sign) }
	switch {
	case device == cpu || fault.CodeOf(cause) == fault.RuntimeMissing:
		return "install ONNX Runtime (pip install 'morphseek[network]')"
	case strings.HasPrefix(device, plugin) && !has("does not exist") && !has("Failed to load library") && !has("Failed to get symbol"):
		return "this provider does not take the network: give another one"
	case strings.HasPrefix(device, plugin):
		return "give the path of an ONNX Runtime plugin provider's library, built for this version of ONNX Runtime, with what it links to beside it"
	case has(cpuBuild) && len(providerLibraries(library)) > 0:
		return "put back onnxruntime-gpu, over which onnxruntime was installed (pip install --force-reinstall --no-deps onnxruntime-gpu)"
	case has(cpuBuild):
		return "install an ONNX Runtime for the GPU (pip install 'morphseek[gpu]', then pip install --force-reinstall --no-deps onnxruntime-gpu)"
	case has("libcuda.so") || has("nvcuda.dll") || has("no CUDA-capable device") || has("driver version is insufficient"):
		return "install an NVIDIA driver for this CUDA version, and see that nvidia-smi lists the card"
	case has("libnvinfer") || has("libnvonnxparser"):
		return "install the version of TensorRT that is named here (pip install tensorrt)"
	case has("cannot open shared object file") || has("cudnn"):
		return "install the CUDA libraries (pip install 'onnxruntime-gpu[cuda,cudnn]')"
	}
	return "update the NVIDIA driver and onnxruntime-gpu"
}

// cpuBuild is in ONNX Runtime's error for a provider that it was built without.
const cpuBuild = "not enabled in this build"

// providerLibraries returns ONNX Runtime's libraries for NVIDIA GPUs, which lie beside it; none for an ONNX Runtime
// that the system's loader found by its bare name.
func providerLibraries(library string) []string {
	if !filepath.IsAbs(library) {
		return nil
	}
	return append(glob(filepath.Dir(library), "libonnxruntime_providers_cuda.so"), glob(filepath.Dir(library), "libonnxruntime_providers_tensorrt.so")...)
}

// cudaLibraries lists the libraries that ONNX Runtime's GPU providers link to in wheels beside its own, each after those it
// needs: loaded by path, the loader then finds them by name without LD_LIBRARY_PATH (Linux alone).
func cudaLibraries(library string) []string {
	sitePackages := filepath.Join(filepath.Dir(library), "..", "..")
	dirs := append(glob(sitePackages, "nvidia", "*", "lib"), glob(sitePackages, "tensorrt_libs")...)
	var order []string
	seen := map[string]bool{}
	var visit func(file string)
	visit = func(file string) {
		for _, name := range neededBy(file) {
			if seen[name] {
				continue
			}
			seen[name] = true
			for _, dir := range dirs {
				if path := filepath.Join(dir, name); exists(path) {
					visit(path)
					order = append(order, path)
					break
				}
			}
		}
	}
	providers := providerLibraries(library)
	for _, provider := range providers {
		visit(provider)
	}
	if len(providers) == 0 {
		return nil
	}
	// The CUDA provider opens these itself when it needs them, by name.
	for _, pattern := range []string{"libcudnn.so.*", "libcufft.so.*", "libnvrtc.so.*"} {
		for _, dir := range dirs {
			for _, path := range glob(dir, pattern) {
				if !slices.Contains(order, path) {
					visit(path)
					order = append(order, path)
				}
			}
		}
	}
	return order
}

// neededBy returns the names that a shared library links to; none for what is no ELF file.
func neededBy(path string) []string {
	file, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	names, _ := file.ImportedLibraries()
	return names
}
