package network

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// Fields of protobuf as bytes.
func lengthed(number uint64, payload ...[]byte) []byte {
	all := bytes.Join(payload, nil)
	out := binary.AppendUvarint(binary.AppendUvarint(nil, number<<3|2), uint64(len(all)))
	return append(out, all...)
}

func counted(number, value uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, number<<3), value)
}

func text(number uint64, s string) []byte { return lengthed(number, []byte(s)) }

// resigned returns a bundle whose graph has more in it, and whose manifest says so.
func resigned(t testing.TB, data []byte, more ...[]byte) []byte {
	t.Helper()
	file := testkit.Must(scanONNX(data))(t)
	sum := func(graph []byte) string {
		s := sha256.Sum256(graph)
		return hex.EncodeToString(s[:])
	}
	graph := slices.Concat(file.graph, bytes.Join(more, nil))
	before, after, found := bytes.Cut(data, lengthed(7, file.graph))
	if !found {
		t.Fatal("no graph")
	}
	return edited(t, slices.Concat(before, lengthed(7, graph), after), sum(file.graph), sum(graph))
}

// node is an operator with attributes, in a graph.
func node(kind string, more ...[]byte) []byte {
	return lengthed(1, text(4, kind), bytes.Join(more, nil))
}

func attribute(payload ...[]byte) []byte {
	return lengthed(5, text(1, "a"), bytes.Join(payload, nil))
}

func TestParseIsStrict(t *testing.T) {
	tiny := read(t, "tiny.onnx")
	outside := slices.Concat(counted(2, 1), text(8, "w"), lengthed(13, text(1, "location"), text(2, "/etc/passwd")), counted(14, 1))
	inside := func(payload ...[]byte) []byte { return lengthed(6, payload...) } // the graph of an attribute
	deep := node("Relu")
	for range maxGraphDepth + 1 {
		deep = node("If", attribute(inside(deep)))
	}
	plus := func(more ...[]byte) []byte { return slices.Concat(tiny, bytes.Join(more, nil)) }
	manifest := func(old, new string) []byte { return edited(t, tiny, old, new) }
	for _, c := range []struct {
		name, words string
		data        []byte
		want        fault.Code
	}{
		{"as it was", "", resigned(t, tiny), fault.OK},
		{"a text that begins as a flatbuffer", "", slices.Concat(text(6, "  ORTM  "), tiny), fault.OK},
		{"a node more", "", resigned(t, tiny, node("Relu", text(7, "ai.onnx"))), fault.OK},
		{"ir_version twice", "ir_version twice", plus(counted(1, 10)), fault.ModelCorrupt},
		{"producer twice", "producer_name twice", plus(text(2, "x")), fault.ModelCorrupt},
		{"ir_version beyond", "ir_version is 300", slices.Concat(counted(1, 300), tiny[2:]), fault.ModelCorrupt},
		{"ir_version as text", "has a wrong type", slices.Concat(text(1, ""), tiny[2:]), fault.ModelCorrupt},
		{"training information", "training information", plus(lengthed(20)), fault.ModelCorrupt},
		{"functions", "local functions", plus(lengthed(25, lengthed(7, node("Constant", attribute(lengthed(5, outside)))))), fault.ModelCorrupt},
		{"devices", "configuration of devices", plus(lengthed(26)), fault.ModelCorrupt},
		{"an unknown field", "field 99 of ModelProto", plus(counted(99, 1)), fault.ModelCorrupt},
		{"operators of others", `"com.microsoft"`, plus(lengthed(8, text(1, "com.microsoft"), counted(2, 1))), fault.ModelCorrupt},
		{"operators twice", "operators twice", plus(lengthed(8, counted(2, 21))), fault.ModelCorrupt},
		{"operators by their other name", "operators twice", plus(lengthed(8, text(1, "ai.onnx"), counted(2, 21))), fault.ModelCorrupt},
		{"a version twice", "version twice", plus(lengthed(8, counted(2, 21), counted(2, 22))), fault.ModelCorrupt},
		{"the manifest twice", "metadata", plus(lengthed(14, text(1, manifestKey), text(2, "{}"))), fault.ModelCorrupt},
		{"the manifest's value twice", "value twice", plus(lengthed(14, text(1, "k"), text(2, "v"), text(2, "w"))), fault.ModelCorrupt},
		{"a graph's name twice", "GraphProto.name twice", resigned(t, tiny, text(2, "again")), fault.ModelCorrupt},
		{"an input twice", `input "tau" twice`, resigned(t, tiny, lengthed(11, text(1, "tau"))), fault.ModelCorrupt},
		{"a sparse initializer", "sparse initializers", resigned(t, tiny, lengthed(15)), fault.ModelCorrupt},
		{"a sparse attribute", "a sparse tensor", resigned(t, tiny, node("Constant", attribute(lengthed(22)))), fault.ModelCorrupt},
		{"sparse attributes", "sparse tensors", resigned(t, tiny, node("Constant", attribute(lengthed(23)))), fault.ModelCorrupt},
		{"a function's attribute", "reference to a function's", resigned(t, tiny, node("Relu", attribute(text(21, "b")))), fault.ModelCorrupt},
		{"an operator of others", `"com.microsoft"`, resigned(t, tiny, node("Gelu", text(7, "com.microsoft"))), fault.ModelCorrupt},
		{"of others, in a nested graph", `"evil"`, resigned(t, tiny, node("If", attribute(inside(node("Gelu", text(7, "evil")))))), fault.ModelCorrupt},
		{"a domain twice", "domain twice", resigned(t, tiny, node("Gelu", text(7, ""), text(7, "evil"))), fault.ModelCorrupt},
		{"an overload", "overload", resigned(t, tiny, node("Gelu", text(8, "x"))), fault.ModelCorrupt},
		{"nested too deeply", "nested too deeply", resigned(t, tiny, deep), fault.ModelCorrupt},
		{"a compiled context", "EPContext", resigned(t, tiny, node("EPContext", text(7, "com.microsoft"))), fault.ModelExternal},
		{"outside, in a tensor", `tensor "w"`, resigned(t, tiny, lengthed(5, outside)), fault.ModelExternal},
		{"outside, in an attribute", `tensor "w"`, resigned(t, tiny, node("Constant", attribute(lengthed(5, outside)))), fault.ModelExternal},
		{"outside, in a nested graph", `tensor "w"`, resigned(t, tiny, node("If", attribute(inside(lengthed(5, outside))))), fault.ModelExternal},
		{"outside, in the second of nested graphs", `tensor "w"`,
			resigned(t, tiny, node("If", attribute(lengthed(11), lengthed(11, node("Constant", attribute(lengthed(10, outside))))))), fault.ModelExternal},
		{"a nested graph twice", "AttributeProto.g twice", resigned(t, tiny, node("If", attribute(inside(), inside(lengthed(5, outside))))), fault.ModelCorrupt},
		{"a place twice", "data_location twice", resigned(t, tiny, lengthed(5, counted(14, 1), counted(14, 0))), fault.ModelCorrupt},
		{"a place beyond 32 bits", "that is unknown", resigned(t, tiny, lengthed(5, counted(14, 1<<32|1))), fault.ModelCorrupt},
		{"a part of a tensor", "a part of a tensor", resigned(t, tiny, lengthed(5, lengthed(3))), fault.ModelCorrupt},
		{"a key of the manifest twice", "twice", manifest(`"modality": "any"`, `"name": "another"`), fault.ModelCorrupt},
		{"a key in another case", "twice", manifest(`"modality": "any"`, `"NAME": "another"`), fault.ModelCorrupt},
		{"a key of an object twice", "twice", manifest(`"low": 1, "high": 99,`, `"low": 1, "low" : 99,`), fault.ModelCorrupt},
	} {
		_, err := Parse(c.data, "test.onnx")
		testkit.Fails(t, err, c.want, c.words)
	}
}

// What ONNX Runtime is given holds the graph that was hashed, and passes as the same bundle but for its manifest.
func TestRunnableHoldsWhatWasHashed(t *testing.T) {
	for _, name := range []string{"tiny.onnx", "loop.onnx"} {
		t.Run(name, func(t *testing.T) {
			m := model(t, name)
			given := m.runnable()
			o := testkit.Must(scanONNX(given))(t)
			if !bytes.Equal(o.graph, m.graph) || o.ir != m.ir || o.opset != m.opset || len(o.metadata) != 0 {
				t.Error("another model is run")
			}
		})
	}
}

// A file that begins as ONNX Runtime's own format runs the network that was verified.
func TestRunsWhatWasVerified(t *testing.T) {
	m := testkit.Must(Parse(slices.Concat(text(6, "  ORTM  "), read(t, "tiny.onnx")), "like a flatbuffer"))(t)
	s := NewStep(m.Manifest, [3]int{8, 8, 8}, 1, 1)
	s.Fixed, s.Moving, s.Previous = make([]float32, 512), make([]float32, 512), make([]float32, 3*512)
	testkit.OK(t, onCPU(t, m, 1).Run(context.Background(), s))
}

// Any bytes as a part of the graph, with a manifest that says so.
func FuzzGraph(f *testing.F) {
	tiny := read(f, "tiny.onnx")
	for _, seed := range [][]byte{
		nil, node("Relu", text(7, "ai.onnx")), lengthed(15), node("If", attribute(lengthed(6, node("EPContext")))),
		lengthed(5, counted(14, 1)), lengthed(11, text(1, "steps")), {0x0a, 0x80}, {0xff, 0xff, 0xff, 0xff, 0x0f},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(resigned(t, tiny, data), "fuzz")
		if fault.CodeOf(err) == fault.ModelTampered || fault.CodeOf(err) == fault.Internal {
			t.Errorf("got %v", err)
		}
		if err != nil {
			return
		}
		if o, err := scanONNX(m.runnable()); err != nil || !bytes.Equal(o.graph, m.graph) {
			t.Errorf("another graph is run (%v)", err)
		}
	})
}

func FuzzManifest(f *testing.F) {
	file := testkit.Must(scanONNX(read(f, "tiny.onnx")))(f)
	sound := file.metadata[manifestKey]
	for _, seed := range []string{"", "{}", sound, strings.Replace(sound, "null", "1e300", 1), strings.Repeat("[", 20000), `{"format": 1, "format": 2}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseManifest(text)
		if err != nil || m.Format != Format {
			return
		}
		g := m.Grid(testkit.Grid([3]int{40, 30, 60}))
		for a, n := range g.Size {
			if n < 1 || n%m.SizeMultiple != 0 || !(g.Spacing[a] > 0) {
				t.Errorf("%+v makes the grid %+v", m, g)
			}
		}
	})
}
