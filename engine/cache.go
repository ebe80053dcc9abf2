package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"math"
	"path/filepath"

	"github.com/morphseek/morphseek/engine/network"
	"github.com/morphseek/morphseek/engine/volume"
)

// cachePath names the file in the cache folder that holds the result of exactly this registration: the same voxels, geometries,
// masks, initial transform, options (threads included: they may change the last bit), model and library version.
func cachePath(pair Pair, opt Options, model *network.Model) string {
	dir := opt.Cache
	opt.Cache = ""
	var manifest *network.Manifest // the whole of it: SHA256 is the graph's, and windows, spacings and steps shape the result, too
	if model != nil {
		manifest = &model.Manifest
		opt.Model = model.Name // wherever it lies
	}
	h := sha256.New()
	plain := json.NewEncoder(h) // of what came from JSON or was checked to be finite: Encode cannot fail, nor can a hash
	plain.Encode([]any{Version, opt, manifest, pair.Initial})
	for _, v := range []*volume.Volume{pair.Fixed, pair.Moving, pair.FixedMask, pair.MovingMask} {
		if v == nil {
			plain.Encode(nil)
			continue
		}
		plain.Encode(v.Geometry)
		hashFloats(h, v.Data)
	}
	return filepath.Join(dir, hex.EncodeToString(h.Sum(nil))+".morphseek")
}

func hashFloats(h hash.Hash, values []float32) {
	buffer := make([]byte, 0, 1<<16)
	for len(values) > 0 {
		n := min(len(values), cap(buffer)/4)
		buffer = buffer[:0]
		for _, x := range values[:n] {
			buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
		}
		h.Write(buffer)
		values = values[n:]
	}
}

// fromCache returns the result kept at path, or nil: one that is missing or not sound is computed again and replaced.
func fromCache(path string) *Result {
	r, err := LoadResult(path)
	if err != nil {
		return nil
	}
	r.Metrics.Cached = true
	return r
}
