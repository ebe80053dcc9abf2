package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	data := testkit.Must(os.ReadFile(filepath.Join("testdata", name)))(t)
	return data
}

// edited returns data with old replaced by new, of the same length, so that no protobuf length changes.
func edited(t testing.TB, data []byte, old, new string) []byte {
	t.Helper()
	if len(old) != len(new) || bytes.Count(data, []byte(old)) != 1 {
		t.Fatalf("cannot replace %q by %q", old, new)
	}
	return bytes.Replace(data, []byte(old), []byte(new), 1)
}

func TestParse(t *testing.T) {
	tiny := read(t, "tiny.onnx")
	flipped := bytes.Clone(tiny)
	flipped[bytes.Index(flipped, []byte("encode"))+200] ^= 1 // a weight
	for _, c := range []struct {
		name string
		data []byte
		want fault.Code
	}{
		{"sound", tiny, fault.OK},
		{"empty", nil, fault.ModelCorrupt},
		{"text", []byte("version https://git-lfs.github.com/spec/v1\n"), fault.ModelCorrupt},
		{"checkpoint", []byte("PK\x03\x04"), fault.ModelCorrupt},
		{"cut short", tiny[:len(tiny)-100], fault.ModelCorrupt},
		{"cut at the manifest", tiny[:bytes.Index(tiny, []byte(manifestKey))-4], fault.ModelCorrupt},
		{"two graphs", append(bytes.Clone(tiny), 7<<3|2, 0), fault.ModelCorrupt},
		{"a tag of more than 32 bits", append(binary.AppendUvarint(bytes.Clone(tiny), 1<<32+7<<3|2), 0), fault.ModelCorrupt},
		{"local functions", append(bytes.Clone(tiny), 25<<3&127|2|128, 1, 0), fault.ModelCorrupt},
		{"no manifest", edited(t, tiny, manifestKey, "morphseek_manifesT"), fault.ModelCorrupt},
		{"bad JSON", edited(t, tiny, `{"format": 1`, `{"format"; 1`), fault.ModelCorrupt},
		{"bad stride", edited(t, tiny, `"size_multiple": 4`, `"size_multiple": 3`), fault.ModelCorrupt},
		{"bad percentiles", edited(t, tiny, `"low": 1,`, `"low":99,`), fault.ModelCorrupt},
		{"no steps", edited(t, tiny, `"steps": 3`, `"steps": 0`), fault.ModelCorrupt},
		{"unknown key", edited(t, tiny, `"parameters"`, `"parameterz"`), fault.ModelCorrupt},
		{"unknown key of an object", edited(t, tiny, `"background": 0`, `"backgroond": 0`), fault.ModelCorrupt},
		{"later format with a key of its own", edited(t, tiny, `{"format": 1, "name"`, `{"format": 2, "nome"`), fault.ModelVersion},
		{"later format", edited(t, tiny, `{"format": 1`, `{"format": 2`), fault.ModelVersion},
		{"changed weight", flipped, fault.ModelTampered},
		{"weights elsewhere", read(t, "external.onnx"), fault.ModelExternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Parse(c.data, "test.onnx")
			testkit.Fails(t, err, c.want, "test.onnx")
			if c.name == "checkpoint" && !strings.Contains(err.Error(), "morphseek train export") {
				t.Errorf("the message does not say what makes a bundle of it: %v", err)
			}
			if err == nil && (m.Name != "tiny" || m.Latent != (Latent{2, 4}) || m.MinSize != [3]int{8, 8, 8} || m.SpacingMM[0] != nil || m.Steps != 3) {
				t.Errorf("manifest %+v", m.Manifest)
			}
		})
	}
}

func TestUnknownManifestKeyIsNamed(t *testing.T) {
	_, err := parseManifest(`{"format": 1, "latent": {"channel": 2}}`)
	if err == nil || !strings.Contains(err.Error(), `"channel"`) {
		t.Errorf("got %v", err)
	}
}

// Every beginning of a bundle is refused, whatever it ends with.
func TestParseTruncated(t *testing.T) {
	tiny := read(t, "tiny.onnx")
	for n := range tiny {
		if _, err := Parse(tiny[:n], "cut"); err == nil {
			t.Fatalf("%d of %d bytes pass as a bundle", n, len(tiny))
		}
	}
}

func FuzzParse(f *testing.F) {
	tiny := read(f, "tiny.onnx")
	for _, seed := range [][]byte{nil, tiny, read(f, "external.onnx"), tiny[:len(tiny)/2], {7<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data, "fuzz")
		var e *fault.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("an error without a code: %v", err)
		}
		if err == nil && m.Manifest.check() != nil {
			t.Errorf("an unusable manifest passed: %+v", m.Manifest)
		}
	})
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	tiny := read(t, "tiny.onnx")
	for name, data := range map[string][]byte{"good.onnx": tiny, "bad.onnx": tiny[:99], "note.txt": nil} {
		testkit.OK(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for _, c := range []struct {
		name, dir string
		want      fault.Code
		says      string
	}{
		{"good", dir, fault.OK, ""},
		{"good.onnx", dir, fault.OK, ""},
		{filepath.Join(dir, "good.onnx"), "", fault.OK, ""},
		{"good", "", fault.ModelNotFound, `no model "good"; it must be one of`},
		{"bad", dir, fault.ModelCorrupt, "bad.onnx"},
		{"absent", dir, fault.ModelNotFound, `no model "absent"; it must be one of`},
		{"absent.onnx", dir, fault.ModelNotFound, "the file absent.onnx does not exist"},
		{filepath.Join(dir, "absent"), "", fault.ModelNotFound, filepath.Join(dir, "absent") + " does not exist"},
		{"", dir, fault.ModelNotFound, `no model ""`},
		{dir, "", fault.ModelNotFound, "no model"},
		{filepath.Join(dir, "good.onnx", "x"), "", fault.ModelNotFound, "cannot be opened"},
	} {
		testkit.Refused(Load(c.name, c.dir))(t, c.want, c.says)
	}
	builtin := len(List(""))
	entries := List(dir)[builtin:]
	if len(entries) != 2 || entries[0].Code != fault.ModelCorrupt || entries[1].Code != fault.OK || entries[1].Manifest.Name != "tiny" {
		t.Errorf("List: %+v", entries)
	}
	for _, e := range List("") {
		if e.Code != fault.OK {
			t.Errorf("built-in bundle: %s", e.Error)
		}
	}
}

// The manifest's lengths are along z, y, x, as its sizes are.
func TestGridOfUnevenSpacing(t *testing.T) {
	z, y, x := 3., 1., 2.
	m := Manifest{SizeMultiple: 8, MinSize: [3]int{8, 8, 8}, SpacingMM: [3]*float64{&z, &y, &x}}
	fixed := testkit.Grid([3]int{40, 30, 60})
	g := m.Grid(fixed)
	if g.Spacing != [3]float64{2, 1, 3} || g.Size != [3]int{24, 32, 24} {
		t.Errorf("size %v, spacing %v", g.Size, g.Spacing)
	}
}
