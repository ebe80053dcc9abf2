package engine

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// goroutine names the calling goroutine: "goroutine 12".
func goroutine() string {
	buffer := make([]byte, 32)
	head, _, _ := bytes.Cut(buffer[:runtime.Stack(buffer, false)], []byte(" ["))
	return string(head)
}

func TestProgress(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	p := Pair{Fixed: blob([3]int{40, 36, 32}, 0), Moving: blob([3]int{40, 36, 32}, 3)}
	me := goroutine()
	var stages []string
	hear, last := stagesOf(&stages), 0.0
	_, err := e.Register(context.Background(), p, with(func(o *Options) { o.Model, o.Initial = tiny, "affine" }), func(p Progress) bool {
		if g := goroutine(); g != me {
			t.Errorf("called on %s, not on %s", g, me)
		}
		if !(p.Fraction >= last && p.Fraction <= 1) {
			t.Errorf("fraction %g after %g", p.Fraction, last)
		}
		last = p.Fraction
		return hear(p)
	})
	testkit.OK(t, err)
	if want := []string{"align", "network", "finish"}; !slices.Equal(stages, want) || last != 1 {
		t.Errorf("stages %v up to %g, want %v", stages, last, want)
	}
}

// A caller hears of a registration, and can cancel it, before the volumes have been looked at.
func TestProgressBegins(t *testing.T) {
	e := open(t, Config{})
	v := blob([3]int{16, 16, 16}, 0)
	v.Spacing[0] = -1
	heard := 0
	testkit.Refused(e.Register(context.Background(), Pair{Fixed: v, Moving: v}, with(nil), func(Progress) bool { heard++; return true }))(t, fault.InvalidSpacing)
	if heard == 0 {
		t.Error("nothing was reported")
	}
}

// Cancelled in each stage, by the progress function or the context, a registration ends with Cancelled and leaves no
// goroutine.
func TestCancel(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	size := [3]int{32, 32, 32}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 3)}
	cache := t.TempDir()
	opt := with(func(o *Options) {
		o.Model, o.Initial, o.Search, o.Refine, o.Cache, o.Steps = tiny, "com", "on", 50, cache, 16
	})
	goroutines := runtime.NumGoroutine()
	for _, stage := range []string{"align", "search", "network", "refine", "finish"} {
		t.Run(stage, func(t *testing.T) {
			for _, byContext := range []bool{false, true} {
				ctx, cancel := context.WithCancel(context.Background())
				r, err := e.Register(ctx, p, opt, func(p Progress) bool {
					if p.Stage != stage {
						return true
					}
					if byContext {
						cancel()
					}
					return byContext
				})
				if fault.CodeOf(err) != fault.Cancelled || r != nil {
					t.Errorf("cancelled in %s (by context: %v): %v", stage, byContext, err)
				}
				cancel()
			}
		})
	}
	noneLeft(t, goroutines)
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("left in the cache: %v", left)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	testkit.Refused(e.Register(ctx, p, opt, nil))(t, fault.Cancelled)
}
