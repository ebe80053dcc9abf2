package memory

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// TestReserve sees that what is allocated after Reserve lies in large pages, which the system says in smaps.
func TestReserve(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("this kernel has no large pages")
	}
	const size = 100 << 20
	for _, enough := range []int64{size, 2 * size, size} { // again, more, less
		Reserve(enough)
		b := make([]byte, size/2)
		if at := uintptr(unsafe.Pointer(&b[len(b)/2])); !inLarge(t, at) {
			t.Errorf("after Reserve(%d) an array lies in small pages", enough)
		}
	}
}

// inLarge reads whether large pages were asked for at an address.
func inLarge(t *testing.T, at uintptr) bool {
	t.Helper()
	maps := testkit.Must(os.ReadFile("/proc/self/smaps"))(t)
	here := false
	for line := range bytes.Lines(maps) {
		var lo, hi uintptr
		if n, _ := fmt.Sscanf(string(line), "%x-%x ", &lo, &hi); n == 2 {
			here = lo <= at && at < hi
		}
		if flags, ok := strings.CutPrefix(string(line), "VmFlags:"); ok && here {
			return strings.Contains(flags, " hg")
		}
	}
	t.Fatalf("no mapping holds %x", at)
	return false
}

// TestReserveForEach sees that there is room for each registration that is under way.
func TestReserveForEach(t *testing.T) {
	const size = 40 << 20
	for range 3 {
		defer Tighten(size)()
	}
	reserved = size
	if Reserve(size); reserved < 3*size {
		t.Errorf("three registrations have room of %d bytes", reserved)
	}
}

// TestMayGrow sees that a process is told of the bound of its addresses (ulimit -v), beyond which Go would end it.
func TestMayGrow(t *testing.T) {
	var before syscall.Rlimit
	testkit.OK(t, syscall.Getrlimit(syscall.RLIMIT_AS, &before))
	const bound = 1 << 42
	limit := before
	limit.Cur = bound
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		t.Skip(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_AS, &before) }()
	for bytes, want := range map[int64]bool{1 << 20: true, bound: false} {
		if got := mayGrow(bytes); got != want {
			t.Errorf("%d bytes more of %d: %v", bytes, int64(bound), got)
		}
	}
	const left = 1 << 30
	idle := unused()
	status := testkit.Must(os.ReadFile("/proc/self/status"))(t)
	limit.Cur = uint64(kibibytes(status, "VmSize:") + left)
	testkit.OK(t, syscall.Setrlimit(syscall.RLIMIT_AS, &limit))
	if got := Available(); max(got-left-idle, left+idle-got) > left/4 {
		t.Errorf("%d bytes are available of %d", got, left+idle)
	}
}

// The least limit of the process's groups and those around them counts, in both versions of control groups.
func TestLimitsOfControlGroups(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"memory.max": "max\n", "memory.current": "900\n",
		"job/memory.max": "1000\n", "job/memory.current": "700\n", "job/memory.stat": "anon 600\ninactive_file 50\n",
		"job/step/memory.max": "max\n", "job/step/memory.current": "600\n",
		"memory/one/memory.limit_in_bytes": "500\n", "memory/one/memory.usage_in_bytes": "100\n", "memory/one/memory.stat": "total_inactive_file 7\n",
	} {
		path = filepath.Join(root, path)
		testkit.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.OK(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for lines, want := range map[string]int64{
		"": math.MaxInt64, "0::/\n": math.MaxInt64, "0::/job/step\n": 350, "0::/job\n": 350,
		"0::/elsewhere/of/a/host\n": math.MaxInt64, "5:cpu,memory:/one\n": 407, "5:cpu:/one\n": math.MaxInt64, "nonsense": math.MaxInt64,
	} {
		if got := leftIn(root, lines); got != want {
			t.Errorf("%q leaves %d, want %d", lines, got, want)
		}
	}
}
