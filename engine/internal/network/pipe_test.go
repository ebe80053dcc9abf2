//go:build unix

package network

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
)

// Nobody writes to it: opening it would wait for ever.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.onnx")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := Load(path, ""); fault.CodeOf(err) != fault.ModelNotFound || !strings.Contains(err.Error(), "is a pipe") {
		t.Error(err)
	}
}
