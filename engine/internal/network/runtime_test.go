//go:build cgo

package network

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// ONNX Runtime is loaded once a process, so what happens without one is seen in a fresh process.
func TestRuntimeMissing(t *testing.T) {
	const marker = "MORPHSEEK_TEST_RUNTIME_MISSING"
	if os.Getenv(marker) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRuntimeMissing$", "-test.v")
		cmd.Env = append(os.Environ(), marker+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("PASS: TestRuntimeMissing")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	notLibrary := filepath.Join(t.TempDir(), "libonnxruntime.so.1.99")
	testkit.OK(t, os.WriteFile(notLibrary, []byte("not a library"), 0o600))
	m := tinyModel(t)
	for _, path := range []string{filepath.Join(t.TempDir(), "absent.so"), notLibrary} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			for _, viaVariable := range []bool{false, true} {
				explicit := path
				t.Setenv(LibraryVariable, "")
				if viaVariable {
					t.Setenv(LibraryVariable, path)
					explicit = ""
				}
				_, _, err := NewSessions(explicit).Get(m, "auto", 1)
				testkit.Fails(t, err, fault.RuntimeMissing, path, LibraryVariable)
			}
		})
	}
}

// A process holds one ONNX Runtime: whoever asks for another one is told.
func TestRuntimeFromElsewhere(t *testing.T) {
	loaded := testkit.ONNXRuntime(t)
	m := tinyModel(t)
	first := NewSessions(loaded)
	defer first.Close()
	if _, _, err := first.Get(m, "cpu", 1); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link, other := filepath.Join(dir, "link.so"), filepath.Join(dir, "other.so")
	testkit.OK(t, os.Symlink(loaded, link))
	testkit.OK(t, os.WriteFile(other, nil, 0o600))
	for _, c := range []struct {
		path string
		want fault.Code
	}{
		{"", fault.OK},
		{link, fault.OK},
		{other, fault.InvalidArgument},
		{filepath.Join(dir, "absent.so"), fault.RuntimeMissing},
	} {
		t.Run(filepath.Base(c.path), func(t *testing.T) {
			sessions := NewSessions(c.path)
			_, _, err := sessions.Get(m, "cpu", 1)
			sessions.Close()
			testkit.Fails(t, err, c.want, c.path)
		})
	}
}

func TestOwnPath(t *testing.T) {
	if path := ownPath(); !exists(path) {
		t.Errorf("our own file is said to be %q", path)
	}
}
