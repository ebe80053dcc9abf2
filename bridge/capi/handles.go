package main

import (
	"sync"
	"sync/atomic"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
)

var (
	engines = table[*engine.Engine]{kind: "engine", close: (*engine.Engine).Close}
	results = table[outcome]{kind: "result", close: func(outcome) error { return nil }}
)

// outcome is what a handle of a result stands for.
type outcome struct {
	*engine.Transform
	whole *engine.Result // nil for a transform alone: an inverse, a map from half-way
}

// lastHandle counts over all tables: handles of two kinds differ, and no handle is used twice.
var lastHandle atomic.Uint64

// table gives values opaque numbers. A value that is removed while in use is closed when the last use ends: a progress
// callback may destroy the very engine it reports on.
type table[T any] struct {
	kind  string
	close func(T) error

	mu      sync.Mutex
	entries map[uint64]*entry[T]
}

type entry[T any] struct {
	value   T
	users   int
	removed bool
}

func (t *table[T]) add(v T) uint64 {
	h := lastHandle.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries == nil {
		t.entries = make(map[uint64]*entry[T])
	}
	t.entries[h] = &entry[T]{value: v}
	return h
}

// use calls body with the value of handle h, which stays open meanwhile.
func (t *table[T]) use(h uint64, body func(T) error) error {
	t.mu.Lock()
	e, ok := t.entries[h]
	if ok {
		e.users++
	}
	t.mu.Unlock()
	if !ok {
		return t.invalid(h)
	}
	defer func() {
		t.mu.Lock()
		e.users--
		last := e.removed && e.users == 0
		t.mu.Unlock()
		if last {
			_ = t.close(e.value) // the call that removed it has returned, so no one can be told of the error
		}
	}()
	return body(e.value)
}

// remove makes handle h invalid and closes its value, or leaves that to the last user.
func (t *table[T]) remove(h uint64) error {
	t.mu.Lock()
	e, ok := t.entries[h]
	if ok {
		delete(t.entries, h)
		e.removed = true
	}
	idle := ok && e.users == 0
	t.mu.Unlock()
	switch {
	case !ok:
		return t.invalid(h)
	case idle:
		return t.close(e.value)
	}
	return nil
}

func (t *table[T]) invalid(h uint64) error {
	return fault.New(fault.InvalidHandle, "%d is no open %s: it was destroyed, or never made", h, t.kind)
}
