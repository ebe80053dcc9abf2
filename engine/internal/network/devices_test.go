//go:build cgo

package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	processor "github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// What ONNX Runtime 1.31.1 writes: the build for the CPU; that for the GPU without the CUDA libraries, without a
// driver, without a card, without TensorRT.
const (
	noBuild  = "CUDA execution provider is not enabled in this build."
	bridge   = "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:2043 onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : "
	noCUDA   = "Failed to load library /site-packages/onnxruntime/capi/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open shared object file: No such file or directory"
	noDriver = "Failed to load library /site-packages/onnxruntime/capi/libonnxruntime_providers_cuda.so with error: libcuda.so.1: cannot open shared object file: No such file or directory"
	noCard   = "Error creating C session: /onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:154 [with ERRTYPE = cudaError; bool THRW = true] CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=h ; file=/x.cc ; line=322 ; expr=cudaSetDevice(info_.device_id);"
	noTRT    = "libnvinfer.so.10: cannot open shared object file: No such file or directory"
)

func TestUnavailable(t *testing.T) {
	overwritten := t.TempDir()
	touch(t, overwritten, "libonnxruntime_providers_cuda.so")
	for _, c := range []struct{ device, library, cause, says, remedy string }{
		{cuda, "/x/libonnxruntime.so.1", noBuild, noBuild, "pip install 'morphseek[gpu]'"},
		{cuda, filepath.Join(overwritten, "libonnxruntime.so.1"), noBuild, noBuild, "onnxruntime was installed"},
		{cuda, "/x/libonnxruntime.so.1", bridge + noCUDA, ": " + noCUDA, "onnxruntime-gpu[cuda,cudnn]"},
		{cuda, "/x/libonnxruntime.so.1", bridge + noDriver, ": " + noDriver, "NVIDIA driver"},
		{cuda, "/x/libonnxruntime.so.1", noCard, ": CUDA failure 100: no CUDA-capable device is detected", "nvidia-smi"},
		{tensorrt, "/x/libonnxruntime.so.1", noTRT, noTRT, "pip install tensorrt"},
		{plugin + "/p.so", "/x/libonnxruntime.so.1", "Failed to load library /p.so with error: /p.so: invalid ELF header", "invalid ELF header", "give the path"},
		{plugin + "/p.so", "/x/libonnxruntime.so.1", "Error creating C session: GridSample is only supported for 4D input tensors.", "4D input tensors.", "another one"},
	} {
		err := unavailable(c.device, c.library, errors.New(c.cause))
		text := err.Error()
		if fault.CodeOf(err) != fault.DeviceUnavailable || !strings.HasSuffix(text, c.says) || !strings.Contains(text, c.remedy) || !strings.Contains(text, "device "+c.device) || strings.Contains(text, "onnxruntime_src") {
			t.Errorf("%s: %q became %q", c.remedy, c.cause, text)
		}
	}
}

func TestFallbackSaysWhy(t *testing.T) {
	cards := []GPU{{Name: "NVIDIA H100", Bytes: 80 << 30}}
	for _, c := range []struct {
		cause string
		cards []GPU
		says  []string
	}{
		{noBuild, nil, nil},
		{noBuild, cards, []string{noBuild, "ran on the CPU", "pip install 'morphseek[gpu]'"}},
		{bridge + noDriver, nil, []string{"libcuda.so.1", "ran on the CPU", "NVIDIA driver"}},
		{noCard, nil, []string{"no CUDA-capable device", "ran on the CPU"}},
	} {
		t.Run(fmt.Sprintf("%d cards, %.20s", len(c.cards), c.cause), func(t *testing.T) {
			got := fallback("/x/libonnxruntime.so.1", errors.New(c.cause), c.cards)
			if (got == "") != (c.says == nil) {
				t.Errorf("%q with %d cards: %q", c.cause, len(c.cards), got)
			}
			for _, words := range c.says {
				if !strings.Contains(got, words) {
					t.Errorf("%q is missing in %q", words, got)
				}
			}
		})
	}
}

func TestInventory(t *testing.T) {
	library := testkit.ONNXRuntime(t)
	sessions := NewSessions(library)
	defer sessions.Close()
	found := sessions.Inventory()
	if found.Library != library || found.Version == "" || !slices.Contains(found.Providers, "CPUExecutionProvider") {
		t.Errorf("runtime: %+v", found)
	}
	if p := found.Processor; p.Architecture != runtime.GOARCH || p.Threads < 1 || !slices.Equal(p.Features, processor.Features()) {
		t.Errorf("processor: %+v", p)
	}
	names := []string{}
	for _, d := range found.Devices {
		names = append(names, d.Name)
		if d.Usable != (d.Error == "") || d.Usable != (d.Remedy == "") {
			t.Errorf("%+v", d)
		}
	}
	if !slices.Equal(names, []string{"cpu", "cuda", "tensorrt"}) || !found.Devices[0].Usable {
		t.Errorf("devices: %+v", found.Devices)
	}
	if _, _, err := sessions.Get(tinyModel(t), cuda, 1); (err == nil) != found.Devices[1].Usable {
		t.Errorf("the list says %+v, opening %v", found.Devices[1], err)
	}
}

// MORPHSEEK_PLUGIN_PROVIDER may name a real provider; that of onnxruntime-ep-openvino 1.8.1 loads, and then refuses the
// step graph, whose GridSample has 5 dimensions.
func TestPlugin(t *testing.T) {
	sessions := NewSessions(testkit.ONNXRuntime(t))
	defer sessions.Close()
	m := tinyModel(t)
	folder := t.TempDir()
	text := filepath.Join(folder, "text.so")
	testkit.OK(t, os.WriteFile(text, []byte("not a library"), 0o600))
	foreign := compile(t, folder, "libforeign.so", "int nothing;")
	for path, says := range map[string]string{
		filepath.Join(folder, "absent.so"): "does not exist",
		"":                                 "path",
		text:                               "text.so",
		foreign:                            "CreateEpFactories",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, _, err := sessions.Get(m, plugin+path, 1)
			if fault.CodeOf(err) != fault.DeviceUnavailable || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), plugin+path) {
				t.Errorf("plugin %q: %v", path, err)
			}
		})
	}
	runner, _, err := sessions.Get(m, cpu, 1)
	testkit.OK(t, err)
	chain(t, runner, m) // what was refused has done no harm
	path := os.Getenv("MORPHSEEK_PLUGIN_PROVIDER")
	if path == "" {
		return
	}
	for range 2 { // registered once, used often
		runner, _, err := sessions.Get(m, plugin+path, 1)
		switch {
		case err == nil:
			chain(t, runner, m)
		case !strings.Contains(err.Error(), "GridSample"):
			t.Error(err)
		}
	}
}

// The `nvidia-*` wheels as pip lays them out, with libraries that only link to each other as the real ones do: the
// loader takes the provider after cudaLibraries' files, in their order, and not before.
func TestCUDALibraries(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux's wheels are searched")
	}
	site := t.TempDir()
	dir := func(elements ...string) string {
		path := filepath.Join(append([]string{site}, elements...)...)
		testkit.OK(t, os.MkdirAll(path, 0o700))
		return path
	}
	cu13, cudnn, trt, capi := dir("nvidia", "cu13", "lib"), dir("nvidia", "cudnn", "lib"), dir("tensorrt_libs"), dir("onnxruntime", "capi")
	lt := compile(t, cu13, "libmsLt.so.13", "int lt(void) { return 7; }")
	blas := compile(t, cu13, "libmsblas.so.13", "int lt(void); int blas(void) { return lt(); }", lt)
	runtime := compile(t, cu13, "libmsrt.so.13", "int rt(void) { return 1; }")
	compile(t, cu13, "libunused.so.13", "int unused;")
	dnn := compile(t, cudnn, "libcudnn.so.9", "int dnn;")
	compile(t, cudnn, "libcudnn_ops.so.9", "int ops;")
	infer := compile(t, trt, "libmsinfer.so.10", "int rt(void); int infer(void) { return rt(); }", runtime)
	provider := compile(t, capi, "libonnxruntime_providers_cuda.so", "int blas(void); int rt(void); int provider(void) { return blas() + rt(); }", blas, runtime)
	compile(t, capi, "libonnxruntime_providers_tensorrt.so", "int infer(void); int trt(void) { return infer(); }", infer)

	library := filepath.Join(capi, "libonnxruntime.so.1.31.1")
	order := cudaLibraries(library)
	if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, slices.Sorted(slices.Values([]string{lt, blas, runtime, dnn, infer}))) {
		t.Errorf("found %v", order)
	}
	if _, err := openLibrary(provider); err == nil || !strings.Contains(err.Error(), "cannot open shared object file") {
		t.Errorf("the provider before its libraries: %v", err)
	}
	for _, path := range order {
		if _, err := openLibrary(path); err != nil {
			t.Errorf("in the order %v: %v", order, err)
		}
	}
	if handle, err := openLibrary(provider); err != nil || symbol(handle, "provider") == nil || symbol(handle, "absent") != nil {
		t.Errorf("the provider behind its libraries: %v", err)
	}

	for _, name := range []string{"libonnxruntime.so.1", filepath.Join(t.TempDir(), "onnxruntime", "capi", "libonnxruntime.so.1")} {
		t.Run(fmt.Sprintf("absolute %v", filepath.IsAbs(name)), func(t *testing.T) {
			if got := cudaLibraries(name); got != nil {
				t.Errorf("beside %s: %v", name, got)
			}
		})
	}
}

// compile makes a shared library that links to others.
func compile(t *testing.T, folder, name, code string, links ...string) string {
	t.Helper()
	source, path := filepath.Join(t.TempDir(), "source.c"), filepath.Join(folder, name)
	testkit.OK(t, os.WriteFile(source, []byte(code), 0o600))
	arguments := append([]string{"-shared", "-fPIC", "-Wl,-soname," + name, "-Wl,--unresolved-symbols=ignore-in-shared-libs", "-o", path, source}, links...)
	if out, err := exec.Command("cc", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return path
}

func touch(t *testing.T, elements ...string) {
	t.Helper()
	testkit.OK(t, os.WriteFile(filepath.Join(elements...), nil, 0o600))
}
