package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/parallel"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

// After Close every method says so.
func TestClosed(t *testing.T) {
	e := open(t, Config{})
	for range 2 {
		testkit.OK(t, e.Close())
	}
	v := blob([3]int{16, 16, 16}, 0)
	testkit.Refused(e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), nil))(t, fault.InvalidHandle)
	testkit.Refused(e.Devices())(t, fault.InvalidHandle)
	testkit.Refused(e.ListModels())(t, fault.InvalidHandle)
	testkit.Refused(e.VerifyModel("hippocampus"))(t, fault.InvalidHandle)
}

// A progress function may close the engine that it reports on: the registration goes on to its end.
func TestCloseWithinProgress(t *testing.T) {
	e := open(t, Config{})
	v := blob([3]int{16, 16, 16}, 0)
	done := make(chan error, 1)
	go func() {
		_, err := e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), func(Progress) bool { return e.Close() == nil })
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("hangs")
	}
	testkit.Refused(e.ListModels())(t, fault.InvalidHandle)
}

// The collector belongs to the process, unless the engine is told that it has it to itself: then it collects early, and
// earlier still while a registration runs.
func TestCollectorIsTheProcesss(t *testing.T) {
	const percent, lean = 77, 25
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	t.Setenv("GOGC", "")
	v := blob([3]int{16, 16, 16}, 0)
	for _, c := range []struct {
		tune bool
		idle int
	}{{false, percent}, {true, lean}} {
		t.Run(fmt.Sprintf("tuned %v", c.tune), func(t *testing.T) {
			now := func() int {
				now := debug.SetGCPercent(percent)
				debug.SetGCPercent(now)
				return now
			}
			seen := c.idle
			e := open(t, Config{TuneCollector: c.tune})
			_, err := e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), func(Progress) bool {
				if now := now(); now != c.idle {
					seen = now
				}
				return true
			})
			testkit.OK(t, err)
			if tuned := seen != c.idle; tuned != c.tune {
				t.Errorf("the collector ran at %d %%", seen)
			}
			if after := now(); after != c.idle {
				t.Errorf("it is left at %d %%", after)
			}
		})
	}
}

// The report of a defect names the loop that it is in, on whichever goroutine that ran.
func TestDefectNamesItsPlace(t *testing.T) {
	for _, threads := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			err := func() (err error) {
				defer fault.Recovered(&err)
				parallel.For(64, 1, threads, func(int, int) { culprit() })
				return nil
			}()
			if !errors.Is(err, fault.Internal) || !strings.Contains(err.Error(), "culprit") {
				t.Error(err)
			}
		})
	}
}

//go:noinline
func culprit() { _ = (*volume.Volume)(nil).Data[0] }

// Whoever cancelled, errors.Is finds why.
func TestCancelledKeepsItsCause(t *testing.T) {
	e := open(t, Config{})
	v := blob([3]int{24, 24, 24}, 0)
	boss := errors.New("the boss said so")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(boss)
	for _, c := range []struct {
		name     string
		ctx      context.Context
		progress ProgressFunc
		want     error
	}{
		{"by the context", ctx, nil, boss},
		{"by progress", context.Background(), func(Progress) bool { return false }, context.Canceled},
	} {
		_, err := e.Register(c.ctx, Pair{Fixed: v, Moving: v}, with(nil), c.progress)
		if !errors.Is(err, fault.Cancelled) || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Eight at once, on one engine, agree to the bit with one alone.
func TestConcurrent(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	size := [3]int{24, 20, 16}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 3)}
	opt := with(func(o *Options) { o.Model, o.Initial, o.Trajectories = tiny, "com", 2 })
	want := register(t, e, p, opt)
	percent := debug.SetGCPercent(90)
	defer debug.SetGCPercent(percent)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := e.Register(context.Background(), p, opt, func(Progress) bool { return true })
			if err != nil {
				t.Error(err)
			} else if !slices.Equal(r.Field.Data, want.Field.Data) || !slices.Equal(r.Warped.Data, want.Warped.Data) {
				t.Error("a concurrent registration differs")
			}
		})
	}
	wg.Wait()
	if got := debug.SetGCPercent(90); got != 90 {
		t.Errorf("the collector was left at %d %%", got)
	}
}

func TestPanicStaysInside(t *testing.T) {
	v := blob([3]int{16, 16, 16}, 0)
	e := open(t, Config{})
	goroutines := runtime.NumGoroutine()
	_, err := e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), func(Progress) bool { panic("in the callback") })
	testkit.Fails(t, err, fault.Internal, "in the callback")
	noneLeft(t, goroutines)
	testkit.Refused((&Result{}).JacobianDeterminant())(t, fault.Internal)
}
