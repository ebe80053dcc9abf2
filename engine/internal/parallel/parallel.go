// Package parallel splits voxel loops over goroutines. Work is cut into fixed chunks that do not depend on the number
// of threads, so that reductions summed chunk by chunk give the same bits whatever the machine.
package parallel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Threads resolves a thread option: n itself if positive, else the number of processors Go may use.
func Threads(n int) int {
	if n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}

// For calls body(lo, hi) over ranges that cover [0, n), each at most grain long, in order, on at most threads goroutines at
// once. A panic in body reaches the caller as a *Panic, so that the engine's border sees it.
func For(n, grain, threads int, body func(lo, hi int)) {
	if n <= 0 {
		return
	}
	grain = max(grain, 1)
	chunks := (n + grain - 1) / grain
	threads = min(Threads(threads), chunks)
	if threads <= 1 {
		defer func() {
			if r := recover(); r != nil {
				panic(caught(r))
			}
		}()
		for lo := 0; lo < n; lo += grain {
			body(lo, min(lo+grain, n))
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var once sync.Once
	var failure *Panic
	work := func() {
		defer wg.Done()
		defer func() {
			if r := recover(); r != nil {
				once.Do(func() { failure = caught(r) })
				next.Store(int64(chunks))
			}
		}()
		for {
			c := int(next.Add(1)) - 1
			if c >= chunks {
				return
			}
			body(c*grain, min((c+1)*grain, n))
		}
	}
	wg.Add(threads)
	for range threads - 1 {
		go work()
	}
	work()
	wg.Wait()
	if failure != nil {
		panic(failure)
	}
}

// Each calls body(i) for every i in [0, n), in ranges of grain as For does.
func Each(n, grain, threads int, body func(i int)) {
	For(n, grain, threads, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			body(i)
		}
	})
}

// Beside calls a and b, each with its half of the threads: at once where there are two or more.
func Beside(threads int, a, b func(threads int)) {
	tasks := [2]func(int){a, b}
	threads = Threads(threads)
	Each(len(tasks), 1, threads, func(i int) { tasks[i](max((threads+i)/2, 1)) })
}

// Panic is what a body panicked with, and the stack of the goroutine that it ran on.
type Panic struct {
	Value any
	Stack []byte
}

// caught keeps a panic of a loop within the loop as it is.
func caught(recovered any) *Panic {
	if p, ok := recovered.(*Panic); ok {
		return p
	}
	return &Panic{recovered, debug.Stack()}
}

func (p *Panic) String() string { return fmt.Sprintf("%v\n\nin a loop at\n%s", p.Value, p.Stack) }

// Rows returns the grain, in rows of nx voxels, at which For hands out about 16k voxels at a time: coarse enough to
// hide the hand-out, fine enough to balance uneven rows.
func Rows(nx int) int { return max(1, 1<<14/max(nx, 1)) }

// Reduce folds part(lo, hi) over the chunks of [0, n) with merge, in order: the same bits for any number of threads. It
// returns the zero T for n <= 0.
func Reduce[T any](n, grain, threads int, part func(lo, hi int) T, merge func(a, b T) T) T {
	grain = max(grain, 1)
	partial := make([]T, (max(n, 0)+grain-1)/grain)
	For(n, grain, threads, func(lo, hi int) { partial[lo/grain] = part(lo, hi) })
	var total T
	for i, p := range partial {
		if i == 0 {
			total = p
			continue
		}
		total = merge(total, p)
	}
	return total
}

// Sum adds part(lo, hi) over the chunks of [0, n) in order: the same bits for any number of threads.
func Sum(n, grain, threads int, part func(lo, hi int) float64) float64 {
	return Reduce(n, grain, threads, part, func(a, b float64) float64 { return a + b })
}
