package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// ONNXRuntime returns the path of an ONNX Runtime library: MORPHSEEK_ORT_LIBRARY, the wheel in build/venv or that of the
// PATH's python3. Without, or without cgo, the test is skipped, or by MORPHSEEK_NEEDS_ORT fails.
func ONNXRuntime(t testing.TB) string {
	t.Helper()
	if !cgo {
		missing(t, "BUILT WITHOUT CGO, which ONNX Runtime is loaded with")
	}
	if path := os.Getenv("MORPHSEEK_ORT_LIBRARY"); path != "" {
		return path
	}
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..", "..")
	folders := []string{filepath.Join(root, "build", "venv", "lib", "python3*", "site-packages")}
	out, err := exec.Command("python3", "-c", "import importlib.util as u; print(u.find_spec('onnxruntime').submodule_search_locations[0])").Output()
	if err == nil {
		folders = append(folders, filepath.Dir(strings.TrimSpace(string(out))))
	}
	for _, folder := range folders {
		for _, name := range []string{"libonnxruntime.so.1*", "libonnxruntime.*.dylib", "onnxruntime.dll"} {
			if found, _ := filepath.Glob(filepath.Join(folder, "onnxruntime", "capi", name)); len(found) > 0 {
				return found[0]
			}
		}
	}
	missing(t, "NO ONNX RUNTIME. Set MORPHSEEK_ORT_LIBRARY or pip install onnxruntime")
	return ""
}

// missing ends the test.
func missing(t testing.TB, why string) {
	t.Helper()
	why += "; nothing about networks was tested"
	if os.Getenv("MORPHSEEK_NEEDS_ORT") != "" {
		t.Fatal(why)
	}
	t.Skip("SKIPPED: " + why)
}
