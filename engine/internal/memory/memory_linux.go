package memory

import (
	"bytes"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// reserved is how many bytes of the heap are in large pages. The collector's lock guards it.
var reserved int64

// Reserve lets the heap grow by about bytes for each registration that is under way, and asks the system to fill that room
// with large pages when it is used: of small ones a registration needs a hundred thousand, and each costs microseconds
// (RATIONALE.md, Large pages).
func Reserve(bytes int64) {
	collector.Lock()
	defer collector.Unlock()
	more := bytes*int64(max(collector.users, 1)) - reserved
	if more <= 0 || more > Available() || !mayGrow(2*more) { // what else the process needs comes beside it
		return
	}
	reserved += more
	percent := debug.SetGCPercent(-1)
	const part = 16 << 20 // Go clears, and so fills, the whole of what it gives where a page of it was used before
	for ; more > 0; more -= part {
		_ = syscall.Madvise(make([]byte, part), syscall.MADV_HUGEPAGE) // where the system has none, all stays as it is
	}
	debug.SetGCPercent(percent)
	runtime.GC() // what is allocated from now on takes their room
}

// mayGrow says whether the process may have so many bytes of addresses more: where it may not (ulimit -v), Go would end it.
func mayGrow(bytes int64) bool {
	b, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	return err == nil && syscall.Munmap(b) == nil
}

// residentBytes returns the process's resident memory and its peak so far.
func residentBytes() (now, peak int64) {
	status, _ := os.ReadFile("/proc/self/status")
	return kibibytes(status, "VmRSS:"), kibibytes(status, "VmHWM:")
}

// availableBytes returns what the system can still give, the limits of the process and of its control groups included.
func availableBytes() int64 {
	free := int64(math.MaxInt64)
	if info, err := os.ReadFile("/proc/meminfo"); err == nil && bytes.Contains(info, []byte("MemAvailable:")) {
		free = kibibytes(info, "MemAvailable:")
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &limit); err == nil && limit.Cur < math.MaxInt64 {
		status, _ := os.ReadFile("/proc/self/status")
		free = min(free, int64(limit.Cur)-kibibytes(status, "VmSize:")+unused()) // whose addresses are used again
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return min(free, leftIn("/sys/fs/cgroup", string(groups)))
}

// unused is what the Go runtime has of the process's addresses without a use for it.
func unused() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() + s[1].Value.Uint64())
}

// leftIn returns the least that the memory limits of control groups leave, of those named in lines as /proc/self/cgroup
// has them and of those around them, in a tree mounted at root.
func leftIn(root, lines string) int64 {
	left := int64(math.MaxInt64)
	for line := range strings.Lines(lines) {
		_, named, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(named, ":")
		tree, files := root, [3]string{"memory.max", "memory.current", "inactive_file "}
		if slices.Contains(strings.Split(controllers, ","), "memory") { // version 1
			tree, files = root+"/memory", [3]string{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}
		}
		for ; ok; group = path.Dir(group) {
			folder := path.Join(tree, group)
			limit, err1 := number(path.Join(folder, files[0]))
			used, err2 := number(path.Join(folder, files[1]))
			if err1 == nil && err2 == nil {
				stat, _ := os.ReadFile(path.Join(folder, "memory.stat"))
				left = min(left, limit-used+after(stat, files[2]))
			}
			ok = len(group) > 1
		}
	}
	return left
}

// kibibytes reads a line "NAME  123 kB", in bytes.
func kibibytes(text []byte, name string) int64 { return 1024 * after(text, name) }

// after returns the number that follows name; 0 where there is none.
func after(text []byte, name string) int64 {
	if _, rest, ok := bytes.Cut(text, []byte(name)); ok {
		if f := bytes.Fields(rest); len(f) > 0 {
			n, _ := strconv.ParseInt(string(f[0]), 10, 64)
			return n
		}
	}
	return 0
}

// number reads a file that holds one; "max" and a missing file are errors.
func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}
