package main

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
)

func TestTableRefusesWhatIsNotOpen(t *testing.T) {
	a, b := table[int]{kind: "number"}, table[int]{kind: "number"}
	h := a.add(7)
	for name, call := range map[string]func() (int, error){
		"zero": func() (int, error) { return a.get(0) }, "never made": func() (int, error) { return a.get(1 << 63) },
		"of another table": func() (int, error) { return b.get(h) }, "removed from another": func() (int, error) { return b.remove(h) },
	} {
		if _, err := call(); fault.CodeOf(err) != fault.InvalidHandle {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := a.get(h); v != 7 || err != nil {
		t.Error(v, err)
	}
	if v, err := a.remove(h); v != 7 || err != nil {
		t.Error(v, err)
	}
	if _, err := a.get(h); fault.CodeOf(err) != fault.InvalidHandle {
		t.Errorf("used after removal: %v", err)
	}
	if _, err := a.remove(h); fault.CodeOf(err) != fault.InvalidHandle {
		t.Errorf("removed twice: %v", err)
	}
	if again := a.add(7); again == h {
		t.Error("a handle was used again")
	}
}

func TestTableRemovesOnceUnderContention(t *testing.T) {
	numbers := table[int]{kind: "number"}
	for range 200 {
		h := numbers.add(7)
		var removals atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				_, _ = numbers.get(h)
				if _, err := numbers.remove(h); err == nil {
					removals.Add(1)
				}
			})
		}
		wg.Wait()
		if n := removals.Load(); n != 1 {
			t.Fatalf("removed %d times", n)
		}
	}
}
