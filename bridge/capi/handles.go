package main

import (
	"sync"
	"sync/atomic"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
)

var (
	engines = table[*engine.Engine]{kind: "engine"}
	results = table[outcome]{kind: "result"}
)

// outcome is what a handle of a result stands for.
type outcome struct {
	*engine.Transform
	whole *engine.Result // nil for a transform alone: an inverse, a map from half-way
}

// lastHandle counts over all tables: handles of two kinds differ, and no handle is used twice.
var lastHandle atomic.Uint64

// table gives values opaque numbers. A call may go on with the value of a handle that is removed meanwhile.
type table[T any] struct {
	kind    string
	entries sync.Map // from handles to values
}

func (t *table[T]) add(v T) uint64 {
	h := lastHandle.Add(1)
	t.entries.Store(h, v)
	return h
}

// get returns the value of handle h.
func (t *table[T]) get(h uint64) (v T, err error) {
	value, ok := t.entries.Load(h)
	if !ok {
		return v, t.invalid(h)
	}
	return value.(T), nil
}

// remove makes handle h invalid and returns its value.
func (t *table[T]) remove(h uint64) (v T, err error) {
	value, ok := t.entries.LoadAndDelete(h)
	if !ok {
		return v, t.invalid(h)
	}
	return value.(T), nil
}

func (t *table[T]) invalid(h uint64) error {
	return fault.New(fault.InvalidHandle, "%d is no open %s: it was destroyed, or never made", h, t.kind)
}
