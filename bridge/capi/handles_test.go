package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
)

// resource counts how often it was closed.
type resource struct{ closed atomic.Int32 }

func newTable() *table[*resource] {
	return &table[*resource]{kind: "resource", close: func(r *resource) error { r.closed.Add(1); return nil }}
}

func TestTableRefusesWhatIsNotOpen(t *testing.T) {
	a, b := newTable(), newTable()
	h := a.add(&resource{})
	use := func(*resource) error { return nil }
	for name, err := range map[string]error{
		"zero": a.use(0, use), "never made": a.use(1<<63, use), "of another table": b.use(h, use), "removed from another": b.remove(h),
	} {
		if fault.CodeOf(err) != fault.InvalidHandle {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.remove(h); err != nil {
		t.Error(err)
	}
	if err := a.remove(h); fault.CodeOf(err) != fault.InvalidHandle {
		t.Errorf("removed twice: %v", err)
	}
	if again := a.add(&resource{}); again == h {
		t.Error("a handle was used again")
	}
}

func TestTableClosesAfterTheLastUse(t *testing.T) {
	table, r, failure := newTable(), &resource{}, errors.New("failed")
	h := table.add(r)
	err := table.use(h, func(*resource) error {
		if err := table.remove(h); err != nil {
			t.Error(err)
		}
		if err := table.use(h, func(*resource) error { return nil }); fault.CodeOf(err) != fault.InvalidHandle {
			t.Errorf("used after removal: %v", err)
		}
		if r.closed.Load() != 0 {
			t.Error("closed while in use")
		}
		return failure
	})
	if err != failure || r.closed.Load() != 1 {
		t.Errorf("use returned %v, closed %d times", err, r.closed.Load())
	}
}

func TestTableClosesOnceUnderContention(t *testing.T) {
	table := newTable()
	for range 200 {
		r := &resource{}
		h := table.add(r)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if i == 4 {
					_ = table.remove(h)
					return
				}
				_ = table.use(h, func(r *resource) error {
					if r.closed.Load() != 0 {
						t.Error("used after it was closed")
					}
					return nil
				})
			}()
		}
		wg.Wait()
		if n := r.closed.Load(); n != 1 {
			t.Fatalf("closed %d times", n)
		}
	}
}
