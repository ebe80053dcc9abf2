// Package memory says how much memory there is, watches how it grows, and gives it back.
package memory

import (
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/morphseek/morphseek/engine/fault"
)

// Peak watches how far the process's resident memory grows. In a process that has registered before, memory is reused
// and the growth is less than what the registration used.
type Peak struct {
	first, highWater int64 // resident, and its peak over the process's life, at the start
	most             int64
}

// Start begins to watch.
func (p *Peak) Start() {
	p.first, p.highWater = residentBytes()
	p.most = p.first
}

// Sample notes what is in use now.
func (p *Peak) Sample() {
	now, highWater := residentBytes()
	p.most = max(p.most, now)
	if highWater > p.highWater { // the peak lay between two samples
		p.most = max(p.most, highWater)
	}
}

// Bytes is by how much memory grew.
func (p *Peak) Bytes() int64 {
	p.Sample()
	return p.most - p.first
}

// Lean lets garbage grow to a quarter of the live data, which are few large arrays; where the variable GOGC says otherwise, to
// that.
func Lean() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
}

// Tighten makes the collector run early while any registration is under way, and returns what ends that. By default garbage
// could grow to the size of the live data, of which a registration has about live bytes. A run of the collector waits for
// loops that cannot be interrupted, so little garbage is not worth one.
func Tighten(live int64) (loosen func()) {
	const least, most, little = 10, 400, 48 << 20 // percent, percent, bytes
	percent := int(min(max(100*little/max(live, 1), least), most))
	collector.Lock()
	defer collector.Unlock()
	if collector.users++; collector.users == 1 {
		collector.before = debug.SetGCPercent(percent)
	} else if now := debug.SetGCPercent(percent); now < percent {
		debug.SetGCPercent(now)
	}
	return func() {
		collector.Lock()
		defer collector.Unlock()
		if collector.users--; collector.users == 0 {
			debug.SetGCPercent(collector.before)
			Trim()
		}
	}
}

// collector is the process's: its setting is restored when the last registration ends.
var collector struct {
	sync.Mutex
	users, before int
}

// Trim gives unused memory back to the system at once, where it may be more than a quarter of a gigabyte: Go would keep it
// for minutes, while the caller writes large files. To ask the system for less again would take longer.
func Trim() {
	if Held() > 1<<28 {
		debug.FreeOSMemory()
	}
}

// Held is what the Go runtime holds of the system's memory.
func Held() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// Available is what the system, and the limit GOMEMLIMIT, leave, in bytes.
func Available() int64 {
	free := availableBytes()
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		free = min(free, limit-Held())
	}
	return free
}

// Check reports OutOfMemory where the system, or the limit GOMEMLIMIT, leaves less than need bytes. Go cannot recover
// from a failed allocation, so large ones are asked for here first.
func Check(need int64, what string) error {
	if free := Available(); need > free {
		const giga = 1e9
		return fault.New(fault.OutOfMemory, "%s needs about %.1f GB of memory and %.1f GB are free; "+
			"crop or downsample the images, use fewer trajectories, or close other programs",
			what, float64(need)/giga, float64(max(free, 0))/giga)
	}
	return nil
}
