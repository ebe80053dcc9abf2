package engine

import (
	"fmt"
	"sync"

	"github.com/morphseek/morphseek/engine/internal/memory"
)

// reporter carries progress from the working goroutines to the one that called Register, without ever making the former
// wait.
type reporter struct {
	news chan struct{} // holds a token while there is something to take

	parent *reporter // gets the reports instead, as part of its own current stage; may be nil

	mu       sync.Mutex
	queue    []Progress
	last     Progress
	lo, span float64 // of the whole, the current stage's part
	peak     memory.Peak
}

func newReporter() *reporter {
	r := &reporter{news: make(chan struct{}, 1)}
	r.peak.Start()
	return r
}

// begin enters a stage that takes the part [lo, hi] of the whole.
func (r *reporter) begin(stage string, lo, hi float64, format string, args ...any) {
	r.mu.Lock()
	r.last.Stage, r.lo, r.span = stage, lo, hi-lo
	r.mu.Unlock()
	r.at(0, format, args...)
}

// at reports that fraction of the current stage is done. An empty format sends no message.
func (r *reporter) at(fraction float64, format string, args ...any) {
	r.mu.Lock()
	r.last.Fraction = max(r.last.Fraction, min(r.lo+float64(r.span*min(max(fraction, 0), 1)), 1))
	r.last.Message = fmt.Sprintf(format, args...)
	if r.parent != nil {
		r.parent.at(r.last.Fraction, "%s", r.last.Message)
		r.mu.Unlock()
		return
	}
	r.queue = append(r.queue, r.last)
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// take returns the reports since the last call: where there are none, a heartbeat, which repeats the last without its
// message.
func (r *reporter) take() []Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	queue := r.queue
	r.queue = nil
	if len(queue) == 0 && r.last.Stage != "" {
		queue = []Progress{{Stage: r.last.Stage, Fraction: r.last.Fraction}}
	}
	return queue
}

// sample notes the memory in use now.
func (r *reporter) sample() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peak.Sample()
}

// peakBytes returns how far the memory grew since the reporter was made.
func (r *reporter) peakBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak.Bytes()
}
