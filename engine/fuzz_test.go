package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/snapshot"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func FuzzParseOptions(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"refine": 2, "uncertainty": true}`, `{"smoothness": 2.50, "search": "off"}`, `{"smoothness": "1e308"}`,
		`{"threads": -1}`, `{"threads": 9223372036854775808}`, `{"device": "plugin:/x"}`, `{"refine": null}`, `{"a": [1`, `{"Refine": 1}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseOptions(text)
		var e *fault.Error
		if err != nil {
			if !errors.As(err, &e) || e.Code == fault.Internal {
				t.Errorf("an error without a code: %v", err)
			}
			return
		}
		again := testkit.Must(json.Marshal(o))(t)
		if p, err := ParseOptions(string(again)); err != nil || p != o {
			t.Errorf("%+v is read again as %+v (%v)", o, p, err)
		}
	})
}

// A saved result whose metrics are anything.
func FuzzMetrics(f *testing.F) {
	r := Result{}
	sound := testkit.Must(json.Marshal(r.Metrics))(f)
	for _, seed := range []string{string(sound), "{}", "", "null", "[]", `{"threads": -5}`, `{"threads": 1e99}`} {
		f.Add(seed)
	}
	v := blob([3]int{4, 4, 4}, 0)
	s := &snapshot.Snapshot{Field: field.New(v.Geometry), Warped: v, Initial: volume.Affine{M: volume.Identity}, Moving: v.Geometry}
	f.Fuzz(func(t *testing.T, metrics string) {
		path := filepath.Join(t.TempDir(), "a"+cacheEnding)
		saved := *s
		saved.Metrics = []byte(metrics)
		testkit.OK(t, snapshot.Save(path, &saved))
		r, err := LoadResult(path)
		if err != nil {
			if code := fault.CodeOf(err); code != fault.SnapshotCorrupt {
				t.Errorf("code %v: %v", code, err)
			}
			return
		}
		if _, err := r.Warp(v, volume.Linear, 0); err != nil {
			t.Errorf("a result that was read does not warp: %v", err)
		}
		os.Remove(path)
	})
}

// A registration of small images with any voxels, on any grids, ends in a result or in an error that has a code.
func FuzzRegister(f *testing.F) {
	numbers := func(xs ...float64) (out []byte) {
		for _, x := range xs {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
		}
		return out
	}
	plain := []float64{1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}
	voxels := make([]byte, 4*5*5*5)
	for i := range voxels {
		voxels[i] = byte(i * i)
	}
	f.Add(voxels, numbers(plain...), uint8(0), uint8(0x55), uint8(5))
	f.Add(voxels, numbers(append([]float64{1e-6, 1e-6, 1e-4, 1e9, -1e9, 1e9, 0, -1, 0, 1, 0, 0, 0, 0, -1}, plain...)...), uint8(1), uint8(0x27), uint8(3))
	f.Add(numbers(math.NaN(), math.Inf(1), 1e300, math.Copysign(0, -1)), numbers(plain...), uint8(2), uint8(0x99), uint8(2))
	f.Add([]byte{}, numbers(1e-300, math.NaN(), 1), uint8(3), uint8(0xff), uint8(200))
	f.Fuzz(func(t *testing.T, voxels, numbers []byte, how, sizes, depth uint8) {
		number := func(i int, otherwise float64) float64 {
			if len(numbers) < 8*i+8 {
				return otherwise
			}
			return math.Float64frombits(binary.LittleEndian.Uint64(numbers[8*i:]))
		}
		image := func(first int, size [3]int) *volume.Volume {
			g := volume.Geometry{Size: size}
			for a := range 3 {
				g.Spacing[a], g.Origin[a] = number(first+a, 1), number(first+3+a, 0)
			}
			for a := range 9 {
				g.Direction[a] = number(first+6+a, volume.Identity[a])
			}
			v := &volume.Volume{Geometry: g, Data: make([]float32, size[0]*size[1]*size[2])}
			for i := range v.Data {
				if at := 4 * i; at+4 <= len(voxels) {
					v.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(voxels[at:]))
				} else if len(voxels) > 0 {
					v.Data[i] = float32(voxels[i%len(voxels)])
				}
			}
			return v
		}
		one, other, deep := int(sizes&15), int(sizes>>4), int(depth%12)
		pair := Pair{Fixed: image(0, [3]int{one, other, deep}), Moving: image(15, [3]int{other, deep, one})}
		if how&1 != 0 {
			initial := volume.Affine{M: volume.Identity}
			for a := range initial.M {
				initial.M[a] = number(30+a, initial.M[a])
			}
			for a := range initial.T {
				initial.T[a] = number(39+a, 0)
			}
			pair.Initial = &initial
		}
		if how&2 != 0 {
			pair.FixedMask = &volume.Volume{Geometry: pair.Fixed.Geometry, Data: pair.Fixed.Data}
		}
		o := with(func(o *Options) {
			o.Refine, o.Threads = 2, 1
			o.Initial = []string{"none", "com", "rigid", "affine"}[how>>2&3]
			if how&16 != 0 {
				o.Search = "on"
			}
			if how&32 != 0 {
				o.Uncertainty = "on"
			}
		})
		e := open(t, Config{})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // these images are of 3,300 voxels at most
		defer cancel()
		r, err := e.Register(ctx, pair, o, nil)
		if ctx.Err() != nil {
			t.Fatalf("%v, %v and %+v take too long", pair.Fixed.Geometry, pair.Moving.Geometry, o)
		}
		if err != nil {
			if code := fault.CodeOf(err); code == fault.Internal || code == fault.OK {
				t.Errorf("code %v: %v", code, err)
			}
			return
		}
		for _, x := range r.Field.Data {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatal("a displacement is not finite")
			}
		}
		if _, err := json.Marshal(r.Metrics); err != nil {
			t.Error(err)
		}
	})
}
