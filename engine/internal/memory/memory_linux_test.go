package memory

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
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
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &before); err != nil {
		t.Fatal(err)
	}
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
}
