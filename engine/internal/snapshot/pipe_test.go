//go:build unix

package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
)

// Nobody writes to it: opening it would wait for ever. A file would take its place.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.morphseek")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := Load(path); fault.CodeOf(err) != fault.InputUnreadable || !strings.Contains(err.Error(), "is a pipe") {
		t.Error(err)
	}
	if err := Save(path, example([3]int{2, 2, 2})); fault.CodeOf(err) != fault.OutputUnwritable {
		t.Error(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("it is no pipe any more: %v", err)
	}
}
