package network

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
)

// LibraryVariable names the environment variable with the path of the ONNX Runtime library.
const LibraryVariable = "MORPHSEEK_ORT_LIBRARY"

// libraryPatterns returns the file names of ONNX Runtime on this platform, best first.
func libraryPatterns() []string {
	switch runtime.GOOS {
	case "windows":
		return []string{"onnxruntime.dll"}
	case "darwin":
		return []string{"libonnxruntime.dylib", "libonnxruntime.*.dylib"}
	}
	return []string{"libonnxruntime.so.1*", "libonnxruntime.so"}
}

// libraryCandidates lists the ONNX Runtime libraries to try, in order: the explicit path, or else MORPHSEEK_ORT_LIBRARY
// (either stands alone: what was asked for by name is not replaced by something else); beside our own library and the
// program; the `onnxruntime` wheel of the Python environment that our library or the program lives in, or that is
// active; the system's.
func libraryCandidates(explicit string) ([]string, error) {
	if explicit == "" {
		explicit = os.Getenv(LibraryVariable)
	}
	if explicit != "" {
		if !exists(explicit) {
			return nil, fault.New(fault.RuntimeMissing,
				"the ONNX Runtime library %s does not exist; correct the path (runtime library option or %s), or "+
					"leave it out to have it looked for", explicit, LibraryVariable)
		}
		return []string{explicit}, nil
	}
	var homes []string
	if self := ownPath(); self != "" {
		homes = append(homes, filepath.Dir(self))
	}
	if program, err := os.Executable(); err == nil {
		homes = append(homes, filepath.Dir(program))
	}
	dirs := slices.Clone(homes)
	for _, home := range homes { // a package in site-packages, or a folder of it
		for up := range 3 {
			dirs = append(dirs, filepath.Join(home, filepath.Join([]string{"..", "..", ".."}[:up]...), "onnxruntime", "capi"))
		}
	}
	prefixes := []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}
	for _, home := range homes { // bin/ or lib/ of a virtual environment
		prefixes = append(prefixes, filepath.Dir(home))
	}
	for _, prefix := range prefixes {
		if prefix != "" {
			dirs = append(dirs, glob(prefix, "lib", "python3*", "site-packages", "onnxruntime", "capi")...)
			dirs = append(dirs, glob(prefix, "Lib", "site-packages", "onnxruntime", "capi")...)
		}
	}
	var files []string
	for _, dir := range dirs {
		for _, pattern := range libraryPatterns() {
			for _, file := range glob(dir, pattern) {
				if !slices.Contains(files, file) {
					files = append(files, file)
				}
			}
		}
	}
	return append(files, strings.TrimSuffix(libraryPatterns()[0], "*")), nil // what the system's loader looks up
}

func glob(elements ...string) []string {
	files, _ := filepath.Glob(filepath.Join(elements...))
	return files
}
