package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/internal/testkit"
	"github.com/morphseek/morphseek/engine/volume"
)

func example(size [3]int) *Snapshot {
	fixed := volume.Geometry{Size: size, Spacing: [3]float64{1, 0.5, 2.25}, Origin: [3]float64{-10, 1e-3, 7},
		Direction: [9]float64{0, -1, 0, 1, 0, 0, 0, 0, 1}}
	moving := testkit.Grid([3]int{300, 2, 77})
	s := &Snapshot{
		Field: field.New(fixed), Warped: testkit.Filled(fixed, func(i int) float32 { return float32(i) - 0.1 }), Moving: moving, Metrics: []byte(`{"version":"0.1.0"}`),
		Initial: volume.Affine{M: [9]float64{1, 2, 3, 4, 5, 6, 7, 8, math.Pi}, T: [3]float64{-1, 0, math.MaxFloat64}},
	}
	for i := range s.Field.Data {
		s.Field.Data[i] = float32(math.Sin(float64(i)))
	}
	s.Warped.Data[0] = float32(math.Inf(-1))
	return s
}

func withUncertainty(s *Snapshot) *Snapshot {
	s.Uncertainty = testkit.Filled(s.Field.Geometry, func(i int) float32 { return float32(i) / 7 })
	return s
}

func keyed(s *Snapshot) *Snapshot {
	s.Key = "5f0c"
	return s
}

func encoded(t testing.TB, s *Snapshot) []byte {
	t.Helper()
	var b bytes.Buffer
	testkit.OK(t, write(&b, s))
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	for size, want := range map[[3]int]*Snapshot{
		{2, 2, 2}:    example([3]int{2, 2, 2}),
		{5, 3, 4}:    withUncertainty(example([3]int{5, 3, 4})),
		{4, 4, 4}:    keyed(example([3]int{4, 4, 4})),
		{64, 33, 17}: withUncertainty(example([3]int{64, 33, 17})), // several chunks of floats
	} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.morphseek")
			for range 2 { // the second replaces the first
				testkit.OK(t, Save(path, want))
			}
			got := testkit.Must(Load(path))(t)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("size %v: what was read differs from what was written", size)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// testdata/version1.morphseek is what the library of version 1 of the format wrote of the example.
func TestReadsVersion1(t *testing.T) {
	got := testkit.Must(Load("testdata/version1.morphseek"))(t)
	if want := example([3]int{3, 2, 2}); !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, written was %+v", got, want)
	}
}

// A file of version 2 is one of today's without the key, an empty text, at the header's end.
func TestReadsVersion2(t *testing.T) {
	want := withUncertainty(example([3]int{3, 2, 2}))
	now := encoded(t, want)
	length := binary.LittleEndian.Uint32(now[12:])
	old := sealed(magic, 2, length-1, now[preamble:preamble+int(length)-1])
	old = append(old, now[preamble+int(length)+crcSize:]...)
	got, err := Read(bytes.NewReader(old), int64(len(old)))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v", got, err)
	}
}

// Any changed byte and any shortening is noticed.
func TestDamage(t *testing.T) {
	good := encoded(t, withUncertainty(example([3]int{3, 2, 2})))
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		if _, err := Read(bytes.NewReader(bad), int64(len(bad))); err == nil {
			t.Errorf("byte %d may change unnoticed", i)
		}
		if _, err := Read(bytes.NewReader(good[:i]), int64(i)); err == nil {
			t.Errorf("the first %d bytes pass as a snapshot", i)
		}
	}
	if _, err := Read(bytes.NewReader(append(good, 0)), int64(len(good)+1)); err == nil {
		t.Error("a byte too many is not noticed")
	}
}

// sealed makes a file whose checksum is right whatever its header says.
func sealed(magic string, version, length uint32, header []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	b = binary.LittleEndian.AppendUint32(b, length)
	b = append(b, header...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func TestForeign(t *testing.T) {
	good := encoded(t, example([3]int{2, 2, 2}))
	length := binary.LittleEndian.Uint32(good[12:])
	header := good[preamble : preamble+int(length)]
	huge := example([3]int{2, 2, 2})
	huge.Field.Geometry.Size = [3]int{2000, 2000, 2000}
	overflow := example([3]int{2, 2, 2})
	overflow.Field.Geometry.Size = [3]int{1 << 40, 1 << 40, 1 << 40}
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"empty":           {},
		"text":            []byte("dear reader, this is not a snapshot at all"),
		"other magic":     sealed("MORPHSNQ", version, length, header),
		"newer version":   sealed(magic, version+1, length, header),
		"no version":      sealed(magic, oldest-1, length, header),
		"header too long": sealed(magic, version, 1<<31, header),
		"empty header":    sealed(magic, version, 0, nil),
		"wild header":     sealed(magic, version, 40, bytes.Repeat([]byte{0xff}, 40)),
		"huge grid":       encoded(t, huge),
		"overflowing":     encoded(t, overflow),
	} {
		path := filepath.Join(dir, name)
		testkit.OK(t, os.WriteFile(path, data, 0o600))
		testkit.Refused(Load(path))(t, fault.SnapshotCorrupt)
	}
	testkit.Refused(Load(dir))(t, fault.InputUnreadable)
	testkit.Refused(Load(filepath.Join(dir, "absent")))(t, fault.InputUnreadable)
}

// TestPermissions: a snapshot is readable for whom a new file is.
func TestPermissions(t *testing.T) {
	dir := t.TempDir()
	path, plain := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	testkit.OK(t, Save(path, example([3]int{2, 2, 2})))
	testkit.OK(t, os.WriteFile(plain, nil, 0o666))
	got, err := os.Stat(path)
	want, err2 := os.Stat(plain)
	if err != nil || err2 != nil || got.Mode() != want.Mode() {
		t.Errorf("%v, %v; a new file: %v, %v", got.Mode(), err, want.Mode(), err2)
	}
}

func TestUnwritable(t *testing.T) {
	s := example([3]int{2, 2, 2})
	file := filepath.Join(t.TempDir(), "file")
	testkit.OK(t, os.WriteFile(file, []byte("kept"), 0o600))
	for _, path := range []string{filepath.Join(t.TempDir(), "no", "such", "folder"), filepath.Join(file, "below a file"), t.TempDir()} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			testkit.Fails(t, Save(path, s), fault.OutputUnwritable)
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".snapshot-*")); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	full := fmt.Errorf("write: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	testkit.Fails(t, writeError(full, "x"), fault.DiskFull)
}

func FuzzRead(f *testing.F) {
	good := encoded(f, withUncertainty(example([3]int{3, 2, 2})))
	f.Add(good, true)
	f.Add(good[:40], false)
	f.Add(sealed(magic, version, 40, bytes.Repeat([]byte{0x80}, 40)), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) > preamble+crcSize { // get past the checksum
			body := data[preamble : len(data)-crcSize]
			data = sealed(magic, version, uint32(len(body)), body)
		}
		s, err := Read(bytes.NewReader(data), int64(len(data)))
		if err == nil && len(s.Field.Data) != 3*len(s.Warped.Data) {
			t.Error("planes of unequal length")
		}
	})
}
