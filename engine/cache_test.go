package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/morphseek/morphseek/engine/internal/snapshot"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func TestCache(t *testing.T) {
	e := open(t, Config{RuntimeLibrary: testkit.ONNXRuntime(t)})
	size := [3]int{20, 16, 16}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 2)}
	dir := t.TempDir()
	opt := with(func(o *Options) { o.Model, o.Cache = tiny, dir })
	files := func() []string {
		found, _ := filepath.Glob(filepath.Join(dir, "*"))
		return found
	}
	fresh := register(t, e, p, opt)
	if fresh.Metrics.Cached || len(files()) != 1 {
		t.Fatalf("cached %v, files %v", fresh.Metrics.Cached, files())
	}
	files0 := files()[0]
	cached := register(t, e, p, opt)
	if !cached.Metrics.Cached {
		t.Fatal("computed twice")
	}
	cached.Metrics.Cached = false
	if !reflect.DeepEqual(cached, fresh) {
		t.Errorf("cached and fresh differ:\n%+v\n%+v", cached.Metrics, fresh.Metrics)
	}

	t.Run("damaged", func(t *testing.T) {
		testkit.OK(t, os.Truncate(files()[0], 1000))
		if r := register(t, e, p, opt); r.Metrics.Cached || !slices.Equal(r.Field.Data, fresh.Field.Data) {
			t.Error("a damaged file was used")
		}
		if !register(t, e, p, opt).Metrics.Cached {
			t.Error("a damaged file was not replaced")
		}
	})
	for name, other := range map[string]Pair{
		"of another pair on the same grids": {Fixed: p.Fixed, Moving: blob(size, 1)},
		"of another pair":                   {Fixed: blob([3]int{24, 20, 16}, 0), Moving: p.Moving},
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere := with(func(o *Options) { *o = opt; o.Cache = t.TempDir() })
			register(t, e, other, elsewhere)
			others, _ := filepath.Glob(filepath.Join(elsewhere.Cache, "*"))
			testkit.OK(t, os.Rename(others[0], files()[0]))
			if r := register(t, e, p, opt); r.Metrics.Cached || !slices.Equal(r.Field.Data, fresh.Field.Data) {
				t.Error("another pair's result was taken for this one's")
			}
		})
	}
	t.Run("linked", func(t *testing.T) {
		moved := filepath.Join(t.TempDir(), "moved")
		testkit.OK(t, os.Rename(files()[0], moved))
		if err := os.Symlink(moved, files0); err != nil {
			t.Skip(err)
		}
		if register(t, e, p, opt).Metrics.Cached {
			t.Error("a link was followed")
		}
		if info, err := os.Lstat(files0); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the link was not replaced: %v, %v", info, err)
		}
	})
	t.Run("for its owner alone", func(t *testing.T) {
		if info, err := os.Stat(files()[0]); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%v, %v", info, err)
		}
	})
	for name, change := range map[string]func(*Pair, *Options){
		"voxel":       func(p *Pair, _ *Options) { p.Moving = blob(size, 2); p.Moving.Data[7]++ },
		"geometry":    func(p *Pair, _ *Options) { p.Moving = blob(size, 2); p.Moving.Origin[2] += 1e-3 },
		"mask":        func(p *Pair, _ *Options) { p.FixedMask = p.Fixed },
		"other mask":  func(p *Pair, _ *Options) { p.MovingMask = p.Moving },
		"initial":     func(p *Pair, _ *Options) { a := volume.IdentityAffine(); p.Initial = &a },
		"seed":        func(_ *Pair, o *Options) { o.Seed = 1 },
		"model":       func(_ *Pair, o *Options) { o.Model = "none" },
		"threads":     func(_ *Pair, o *Options) { o.Threads = 1 },
		"steps":       func(_ *Pair, o *Options) { o.Steps = 1 },
		"smoothness":  func(_ *Pair, o *Options) { o.Smoothness = "low" },
		"nothing":     func(*Pair, *Options) {},
		"cache place": func(_ *Pair, o *Options) { o.Cache += string(filepath.Separator) },
	} {
		t.Run(name, func(t *testing.T) {
			q, o := p, opt
			change(&q, &o)
			same := name == "nothing" || name == "cache place"
			if r := register(t, e, q, o); r.Metrics.Cached != same {
				t.Errorf("with another %s: cached is %v", name, r.Metrics.Cached)
			}
		})
	}
	t.Run("threads", func(t *testing.T) {
		o := with(func(o *Options) { o.Cache, o.Threads = dir, 1 })
		register(t, e, p, o)
		o.Threads = 2
		if r := register(t, e, p, o); !r.Metrics.Cached || r.Metrics.Threads != 2 {
			t.Errorf("without a network, on other threads: cached %v, %d threads", r.Metrics.Cached, r.Metrics.Threads)
		}
	})
	t.Run("number in another text", func(t *testing.T) {
		path := func(smoothness string) string {
			return cachePath(Version, p, with(func(o *Options) { o.Smoothness = smoothness }), nil)
		}
		if path("2.5") != path("2.50") || path("2.5") == path("2.6") {
			t.Error("2.5 mm and 2.50 mm are one smoothness, 2.6 mm is another")
		}
	})
	t.Run("manifest", func(t *testing.T) {
		// The same network, told to look at the image in another way.
		bundle := testkit.Must(os.ReadFile(tiny))(t)
		other := bytes.Replace(bundle, []byte(`"high": 99,`), []byte(`"high": 55,`), 1)
		o := opt
		o.Model = filepath.Join(t.TempDir(), "tiny.onnx")
		if err := os.WriteFile(o.Model, other, 0o600); err != nil || bytes.Equal(other, bundle) {
			t.Fatal("no other manifest", err)
		}
		if r := register(t, e, p, o); r.Metrics.Cached {
			t.Error("one model's result was given out for another's")
		}
	})
	t.Run("folder to be made", func(t *testing.T) {
		o := opt
		o.Cache = filepath.Join(dir, "new", "folder")
		register(t, e, p, o)
		if info, err := os.Stat(o.Cache); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("cache folder: %v, %v", info, err)
		}
		if !register(t, e, p, o).Metrics.Cached {
			t.Error("nothing was kept")
		}
	})
	t.Run("folder of everybody", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("there are no such modes")
		}
		o := opt
		o.Cache = t.TempDir()
		register(t, e, p, o)
		testkit.OK(t, os.Chmod(o.Cache, 0o777))
		r := register(t, e, p, o)
		if r.Metrics.Cached || len(r.Metrics.Warnings) == 0 || !strings.Contains(r.Metrics.Warnings[0], "anybody can write") {
			t.Errorf("cached %v, warnings %q", r.Metrics.Cached, r.Metrics.Warnings)
		}
		testkit.OK(t, os.Chmod(o.Cache, 0o770))
		if !register(t, e, p, o).Metrics.Cached {
			t.Error("a group's cache was not used")
		}
	})
	opt.Cache = files()[0] // a file
	if r := register(t, e, p, opt); len(r.Metrics.Warnings) == 0 || !strings.Contains(r.Metrics.Warnings[len(r.Metrics.Warnings)-1], "not kept") {
		t.Errorf("warnings %q", r.Metrics.Warnings)
	}
}

// A full cache folder loses the results used longest ago, and keeps the files that are not the cache's.
func TestCacheIsBounded(t *testing.T) {
	e := open(t, Config{})
	size := [3]int{20, 16, 16}
	p := Pair{Fixed: blob(size, 0), Moving: blob(size, 1)}
	r := register(t, e, p, with(nil))
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	testkit.OK(t, os.WriteFile(file("notes.txt"), make([]byte, 1<<20), 0o600))
	for name, age := range map[string]time.Duration{"0": 25 * time.Hour, "1": time.Hour} { // of a process that was killed, and of one at work
		name = file(snapshot.Temporary + name)
		testkit.OK(t, os.WriteFile(name, nil, 0o600))
		testkit.OK(t, os.Chtimes(name, time.Now().Add(-age), time.Now().Add(-age)))
	}
	const ample = 1 << 40
	for i, name := range []string{"a", "b", "c"} {
		testkit.OK(t, keep(r, file(name+cacheEnding), ample))
		then := time.Now().Add(time.Duration(i-10) * time.Hour)
		testkit.OK(t, os.Chtimes(file(name+cacheEnding), then, then))
	}
	info := testkit.Must(os.Stat(file("a" + cacheEnding)))(t)
	if fromCache(file("a"+cacheEnding), p, with(nil)) == nil { // now b is the one used longest ago
		t.Fatal("nothing read")
	}
	testkit.OK(t, keep(r, file("d"+cacheEnding), 3*info.Size()))
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if want := []string{snapshot.Temporary + "1", "a" + cacheEnding, "c" + cacheEnding, "d" + cacheEnding, "notes.txt"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	testkit.OK(t, keep(r, file("e"+cacheEnding), 1))
	if found, _ := filepath.Glob(file("*" + cacheEnding)); len(found) != 1 || found[0] != file("e"+cacheEnding) {
		t.Errorf("a result larger than the limit leaves %v, want it alone", found)
	}
}
