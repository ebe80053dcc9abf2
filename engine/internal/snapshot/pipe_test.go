//go:build unix

package snapshot

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// Nobody writes to it: opening it would wait for ever. A file would take its place.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.morphseek")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	testkit.Refused(Load(path))(t, fault.InputUnreadable, "is a pipe")
	testkit.Fails(t, Save(path, example([3]int{2, 2, 2})), fault.OutputUnwritable)
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("it is no pipe any more: %v", err)
	}
}
