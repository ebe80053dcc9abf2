//go:build unix

package network

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// Nobody writes to it: opening it would wait for ever.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.onnx")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	testkit.Refused(Load(path, ""))(t, fault.ModelNotFound, "is a pipe")
}
