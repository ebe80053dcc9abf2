package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/morphseek/morphseek/engine/internal/network"
	"github.com/morphseek/morphseek/engine/internal/option"
	"github.com/morphseek/morphseek/engine/internal/snapshot"
	"github.com/morphseek/morphseek/engine/volume"
)

// cached returns a result that the folder of the option cache holds, or else computes it and keeps it there.
func cached(e *env, version string, pair Pair, opt Options, model *network.Model, compute func() (*Result, error)) (*Result, error) {
	if opt.Cache == "" {
		return compute()
	}
	if strangers := openToStrangers(opt.Cache); strangers != "" {
		e.notes.warn("The cache was not used: " + strangers)
		return compute()
	}
	path := cachePath(version, pair, opt, model)
	if err := e.ctx.Err(); err != nil {
		return nil, err
	}
	if result := fromCache(path, pair, opt); result != nil {
		e.report.begin("finish", 1, 1, "the same registration was done before: its result is taken from %s", path)
		return result, nil
	}
	result, err := compute()
	if err != nil {
		return nil, err
	}
	if err := keep(result, path, cacheLimit); err != nil { // the registration succeeds without its cached copy
		result.Metrics.Warnings = append(result.Metrics.Warnings, "The result was not kept for the next time: "+err.Error())
	}
	return result, nil
}

// cachePath names the file in the cache folder that holds the result of exactly this registration: the same voxels,
// geometries, masks, start, options, model and library version.
func cachePath(version string, pair Pair, opt Options, model *network.Model) string {
	dir := opt.Cache
	opt = opt.ofResult()
	if mm := opt.plan().Width(); mm > 0 {
		opt.Smoothness = option.Number(mm) // 2.50 is 2.5
	}
	var manifest *network.Manifest // the whole of it: SHA256 is the graph's, and windows, spacings and steps shape the result, too
	if model != nil {
		manifest = &model.Manifest
		opt.Model = model.Name // the folder it lies in does not count
	} else {
		opt.Threads = 0 // without a network the result does not depend on them
	}
	h := sha256.New()
	plain := json.NewEncoder(h) // of what came from JSON or was checked to be finite: Encode cannot fail, nor can a hash
	plain.Encode([]any{version, opt, manifest, pair.Initial})
	for _, v := range []*volume.Volume{pair.Fixed, pair.Moving, pair.FixedMask, pair.MovingMask, pair.Rigid} {
		if v == nil {
			plain.Encode(nil)
			continue
		}
		plain.Encode(v.Geometry)
		hashFloats(h, v.Data)
	}
	for _, c := range pair.Channels {
		plain.Encode([]any{c.Name, c.Weight, c.Labels, c.Fixed.Geometry, c.Moving.Geometry})
		hashFloats(h, c.Fixed.Data)
		hashFloats(h, c.Moving.Data)
	}
	if len(pair.Landmarks) > 0 {
		plain.Encode(pair.Landmarks)
	}
	if f := pair.InitialField; f != nil {
		plain.Encode(f.Geometry)
		hashFloats(h, f.Data)
	}
	return filepath.Join(dir, hex.EncodeToString(h.Sum(nil))+cacheEnding)
}

func hashFloats(h hash.Hash, values []float32) {
	for part := range slices.Chunk(values, 1<<14) {
		_ = binary.Write(h, binary.LittleEndian, part) // of numbers it cannot fail
	}
}

// keyOf returns what a file in a cache is asked for by: its name, which is the hash of all that shaped the result. It
// stands inside the file, too, so that a file that somebody renamed or copied is not another pair's result.
func keyOf(path string) string { return strings.TrimSuffix(filepath.Base(path), cacheEnding) }

// fromCache returns the result kept at path, or nil: one that is missing, not sound, of another pair or elsewhere (a
// link) is computed again and replaced.
func fromCache(path string, pair Pair, opt Options) *Result {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	r, key, err := load(path)
	if err != nil || key != keyOf(path) || r.Field.Geometry != pair.Fixed.Geometry || r.Moving != pair.Moving.Geometry || (r.Uncertainty != nil) != (opt.Uncertainty == "on") {
		return nil
	}
	r.Metrics.Cached, r.Metrics.Threads, r.Threads = true, opt.Threads, opt.Threads
	now := time.Now()
	os.Chtimes(path, now, now) // the least recently used are dropped first; a failure does no harm
	return r
}

// cacheLimit is how many bytes a cache folder holds: some forty results of 160x192x224.
const cacheLimit = 5 << 30

// cacheEnding is the file name ending of a cached result.
const cacheEnding = ".morphseek"

// abandoned is the age from which a half-written result counts as left behind by a process that ended.
const abandoned = 24 * time.Hour

// keep saves a result at path in a cache folder, which is made where it is missing (for its owner alone: it will hold
// resampled patients), and drops those that were used longest ago until the folder holds no more than limit bytes.
func keep(r *Result, path string, limit int64) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := r.save(path, keyOf(path)); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var files []os.FileInfo
	size := int64(0)
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && strings.HasPrefix(info.Name(), snapshot.Temporary) && time.Since(info.ModTime()) > abandoned {
			os.Remove(filepath.Join(dir, info.Name())) // another process may have removed it; a failure does no harm
			continue
		}
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(info.Name()) != cacheEnding {
			continue // gone meanwhile, or not ours
		}
		files = append(files, info)
		size += info.Size()
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if size <= limit {
			break
		}
		if f.Name() == filepath.Base(path) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil && !os.IsNotExist(err) {
			return err
		}
		size -= f.Size()
	}
	return nil
}
