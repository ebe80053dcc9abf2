package parallel

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func TestForCoversEveryItemOnce(t *testing.T) {
	for _, c := range []struct{ n, grain, threads int }{{0, 4, 2}, {1, 4, 2}, {10, 3, 1}, {10, 3, 4}, {1000, 7, 3}, {5, 0, 2}, {8, 100, 0}} {
		t.Run(fmt.Sprintf("%d by %d, %d threads", c.n, c.grain, c.threads), func(t *testing.T) {
			hits := make([]atomic.Int32, c.n)
			For(c.n, c.grain, c.threads, func(lo, hi int) {
				if hi-lo > max(c.grain, 1) || lo >= hi {
					t.Errorf("%+v: range %d..%d", c, lo, hi)
				}
				for i := lo; i < hi; i++ {
					hits[i].Add(1)
				}
			})
			for i := range hits {
				if n := hits[i].Load(); n != 1 {
					t.Errorf("%+v: item %d visited %d times", c, i, n)
				}
			}
		})
	}
}

// The panic of a loop, and of a loop within one, comes with the stack of the goroutine that it happened on.
func TestPanicReachesTheCaller(t *testing.T) {
	for _, threads := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			for _, depth := range []int{1, 2} {
				func() {
					defer func() {
						p, ok := recover().(*Panic)
						if !ok || p.Value != "item 50" || !bytes.Contains(p.Stack, []byte("culprit")) || !strings.Contains(p.String(), "culprit") {
							t.Errorf("%d threads, %d loops: recovered %v", threads, depth, p)
						}
					}()
					loops(depth, threads)
				}()
			}
		})
	}
}

func loops(depth, threads int) {
	For(100, 1, threads, func(lo, hi int) {
		if lo != 50 {
			return
		}
		if depth > 1 {
			loops(depth-1, threads)
		}
		culprit()
	})
}

//go:noinline
func culprit() { panic("item 50") }

// Beside gives its two tasks the threads that there are, and both run at once where there are two.
func TestBeside(t *testing.T) {
	for threads, want := range map[int][2]int{1: {1, 1}, 2: {1, 1}, 5: {2, 3}, 8: {4, 4}} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			var got [2]int
			other := make(chan bool)
			Beside(threads, func(n int) {
				if got[0] = n; threads > 1 {
					<-other
				}
			}, func(n int) {
				if got[1] = n; threads > 1 {
					other <- true
				}
			})
			if got != want {
				t.Errorf("the tasks have %v threads, want %v", got, want)
			}
		})
	}
}

func TestReduceFoldsInOrder(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			got := Reduce(10, 3, threads,
				func(lo, hi int) []int { return []int{lo, hi} },
				func(a, b []int) []int { return append(a, b...) })
			if want := []int{0, 3, 3, 6, 6, 9, 9, 10}; !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	if got := Sum(0, 3, 2, func(lo, hi int) float64 { return 1 }); got != 0 {
		t.Errorf("sum of nothing is %g", got)
	}
}

func TestSumIsTheSameForAnyThreads(t *testing.T) {
	part := func(lo, hi int) (s float64) {
		for i := lo; i < hi; i++ {
			s += 1 / float64(i*i+1)
		}
		return s
	}
	one := Sum(100_000, 97, 1, part)
	for _, threads := range []int{2, 3, 8} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			if got := Sum(100_000, 97, threads, part); got != one {
				t.Errorf("%v, want %v", got, one)
			}
		})
	}
}
