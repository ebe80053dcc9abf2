package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// onnxFile is what a ModelProto tells without ONNX Runtime.
type onnxFile struct {
	graph           []byte // the raw payload of the graph
	metadata        map[string]string
	ir, opset       uint64 // the latter of the default operator domain
	inputs, outputs map[string]bool
	external        string // what points outside the file; empty where nothing does
}

const (
	maxGraphDepth = 32
	maxIR         = 127  // one byte in the file; ONNX counted to 13 in ten years
	maxOpset      = 1000 // likewise 26
)

// message lists the fields that a message of onnx.proto may have. Any other field is refused, and so is a second value
// of a field with one value: readers treat these differently.
type message struct {
	name   string
	fields map[uint64]fieldOf
}

type fieldOf struct {
	name   string
	wires  string // the wire types that it may have, as digits
	many   bool
	inside *message // kind of a message that is read, too; else nil
}

// Numbers and names are those of onnx.proto; the numbers are frozen by protobuf's rules.
var (
	entryMessage = &message{"StringStringEntryProto", map[uint64]fieldOf{
		1: {name: "key", wires: "2"}, 2: {name: "value", wires: "2"},
	}}
	opsetMessage = &message{"OperatorSetIdProto", map[uint64]fieldOf{
		1: {name: "domain", wires: "2"}, 2: {name: "version", wires: "0"},
	}}
	valueMessage = &message{"ValueInfoProto", map[uint64]fieldOf{
		1: {name: "name", wires: "2"}, 2: {name: "type", wires: "2"}, 3: {name: "doc_string", wires: "2"},
		4: {name: "metadata_props", wires: "2", many: true, inside: entryMessage},
	}}
	tensorMessage = &message{"TensorProto", map[uint64]fieldOf{
		1: {name: "dims", wires: "02", many: true}, 2: {name: "data_type", wires: "0"},
		4: {name: "float_data", wires: "25", many: true}, 5: {name: "int32_data", wires: "02", many: true},
		6: {name: "string_data", wires: "2", many: true}, 7: {name: "int64_data", wires: "02", many: true},
		8: {name: "name", wires: "2"}, 9: {name: "raw_data", wires: "2"},
		10: {name: "double_data", wires: "12", many: true}, 11: {name: "uint64_data", wires: "02", many: true},
		12: {name: "doc_string", wires: "2"}, 13: {name: "external_data", wires: "2", many: true},
		14: {name: "data_location", wires: "0"}, 16: {name: "metadata_props", wires: "2", many: true, inside: entryMessage},
	}}
	attributeMessage = &message{"AttributeProto", map[uint64]fieldOf{
		1: {name: "name", wires: "2"}, 2: {name: "f", wires: "5"}, 3: {name: "i", wires: "0"}, 4: {name: "s", wires: "2"},
		5: {name: "t", wires: "2", inside: tensorMessage}, 7: {name: "floats", wires: "25", many: true},
		8: {name: "ints", wires: "02", many: true}, 9: {name: "strings", wires: "2", many: true},
		10: {name: "tensors", wires: "2", many: true, inside: tensorMessage}, 13: {name: "doc_string", wires: "2"},
		14: {name: "tp", wires: "2"}, 15: {name: "type_protos", wires: "2", many: true}, 20: {name: "type", wires: "0"},
	}}
	nodeMessage = &message{"NodeProto", map[uint64]fieldOf{
		1: {name: "input", wires: "2", many: true}, 2: {name: "output", wires: "2", many: true}, 3: {name: "name", wires: "2"},
		4: {name: "op_type", wires: "2"}, 5: {name: "attribute", wires: "2", many: true, inside: attributeMessage},
		6: {name: "doc_string", wires: "2"}, 7: {name: "domain", wires: "2"},
		9: {name: "metadata_props", wires: "2", many: true, inside: entryMessage},
	}}
	graphMessage = &message{"GraphProto", map[uint64]fieldOf{
		1: {name: "node", wires: "2", many: true, inside: nodeMessage}, 2: {name: "name", wires: "2"},
		5:  {name: "initializer", wires: "2", many: true, inside: tensorMessage},
		10: {name: "doc_string", wires: "2"}, 11: {name: "input", wires: "2", many: true, inside: valueMessage},
		12: {name: "output", wires: "2", many: true, inside: valueMessage},
		13: {name: "value_info", wires: "2", many: true, inside: valueMessage},
		14: {name: "quantization_annotation", wires: "2", many: true},
		16: {name: "metadata_props", wires: "2", many: true, inside: entryMessage},
	}}
	modelMessage = &message{"ModelProto", map[uint64]fieldOf{
		1: {name: "ir_version", wires: "0"}, 2: {name: "producer_name", wires: "2"}, 3: {name: "producer_version", wires: "2"},
		4: {name: "domain", wires: "2"}, 5: {name: "model_version", wires: "0"}, 6: {name: "doc_string", wires: "2"},
		7: {name: "graph", wires: "2", inside: graphMessage}, 8: {name: "opset_import", wires: "2", many: true, inside: opsetMessage},
		14: {name: "metadata_props", wires: "2", many: true, inside: entryMessage},
	}}

	// Names, for the error, of fields that are refused.
	refused = map[*message]map[uint64]string{
		modelMessage:     {20: "training information", 25: "local functions; export it with functions inlined", 26: "a configuration of devices"},
		graphMessage:     {15: "sparse initializers; store them as plain tensors"},
		nodeMessage:      {8: "an overload of a function", 10: "a configuration of devices"},
		attributeMessage: {21: "a reference to a function's attribute", 22: "a sparse tensor", 23: "sparse tensors"},
		tensorMessage:    {3: "a part of a tensor"},
	}
)

func init() { // a graph holds attributes that hold graphs
	attributeMessage.fields[6] = fieldOf{name: "g", wires: "2", inside: graphMessage}
	attributeMessage.fields[11] = fieldOf{name: "graphs", wires: "2", many: true, inside: graphMessage}
}

// wireField is one field of a protobuf message.
type wireField struct {
	number, wire uint64
	varint       uint64 // wire type 0
	payload      []byte // wire type 2, aliasing the message
}

var errWire = errors.New("the file is cut short or is not ONNX")

// fields calls visit for every field of a protobuf message, in order. Nothing is copied, and no length is trusted. A
// tag of more than 32 bits is refused: other readers cut it, and would find a field there that this one does not.
func fields(message []byte, visit func(wireField) error) error {
	for b := message; len(b) > 0; {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag > math.MaxUint32 {
			return errWire
		}
		b = b[n:]
		f := wireField{number: tag >> 3, wire: tag & 7}
		size := uint64(0)
		switch tag & 7 {
		case 0:
			if f.varint, n = binary.Uvarint(b); n <= 0 {
				return errWire
			}
			size = uint64(n)
		case 1:
			size = 8
		case 2:
			length, n := binary.Uvarint(b)
			if n <= 0 {
				return errWire
			}
			b, size = b[n:], length
		case 5:
			size = 4
		default:
			return errWire
		}
		if size > uint64(len(b)) {
			return errWire
		}
		if f.wire == 2 {
			f.payload = b[:size]
		}
		b = b[size:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// scanONNX reads the parts of a ModelProto that a bundle is judged by. It fails on anything that is not well formed or
// not in the tables above.
func scanONNX(data []byte) (*onnxFile, error) {
	o := &onnxFile{metadata: map[string]string{}, inputs: map[string]bool{}, outputs: map[string]bool{}}
	if err := o.look(data, modelMessage, 0); err != nil {
		return nil, err
	}
	switch {
	case o.graph == nil:
		return nil, errors.New("the file holds no graph")
	case o.ir < 1 || o.ir > maxIR:
		return nil, fmt.Errorf("its ir_version is %d", o.ir)
	case o.opset > maxOpset:
		return nil, fmt.Errorf("its opset is %d", o.opset)
	}
	return o, nil
}

// look checks a message of a kind and those inside it. depth counts the graphs around it.
func (o *onnxFile) look(data []byte, kind *message, depth int) error {
	if depth > maxGraphDepth {
		return errors.New("graphs are nested too deeply")
	}
	one := map[uint64]wireField{}
	err := fields(data, func(f wireField) error {
		field, known := kind.fields[f.number]
		if !known {
			if name, named := refused[kind][f.number]; named {
				return fmt.Errorf("it has %s", name)
			}
			return fmt.Errorf("it has a field %d of %s that this library does not know", f.number, kind.name)
		}
		if !strings.Contains(field.wires, strconv.FormatUint(f.wire, 10)) {
			return fmt.Errorf("%s.%s has a wrong type", kind.name, field.name)
		}
		if !field.many {
			if _, twice := one[f.number]; twice {
				return fmt.Errorf("it has %s.%s twice", kind.name, field.name)
			}
			one[f.number] = f
		}
		if err := o.note(f, kind, depth); err != nil || field.inside == nil {
			return err
		}
		if kind == attributeMessage && field.inside == graphMessage {
			return o.look(f.payload, field.inside, depth+1)
		}
		return o.look(f.payload, field.inside, depth)
	})
	if err != nil {
		return err
	}
	return o.judge(one, kind)
}

// note keeps the fields of the outer messages that a bundle is judged by.
func (o *onnxFile) note(f wireField, kind *message, depth int) error {
	switch {
	case kind == modelMessage && f.number == 7:
		o.graph = f.payload
	case kind == modelMessage && f.number == 14:
		key, value, err := pair(f.payload)
		if _, twice := o.metadata[string(key)]; twice {
			return fmt.Errorf("it has the metadata %q twice", key)
		}
		o.metadata[string(key)] = string(value)
		return err
	case kind == graphMessage && depth == 0 && (f.number == 11 || f.number == 12):
		names, what := o.inputs, "input"
		if f.number == 12 {
			names, what = o.outputs, "output"
		}
		name, _, err := pair(f.payload)
		if names[string(name)] {
			return fmt.Errorf("it has the %s %q twice", what, name)
		}
		names[string(name)] = true
		return err
	case kind == tensorMessage && f.number == 13:
		o.external = "the data of a tensor"
	}
	return nil
}

// judge checks a message by its fields with one value.
func (o *onnxFile) judge(one map[uint64]wireField, kind *message) error {
	switch kind {
	case modelMessage:
		o.ir = one[1].varint
	case opsetMessage:
		if !standard(one[1]) {
			return fmt.Errorf("it uses operators of %q, which are not ONNX's own", one[1].payload)
		}
		if o.opset != 0 {
			return errors.New("it names ONNX's operators twice")
		}
		o.opset = one[2].varint
	case nodeMessage:
		if string(one[4].payload) == "EPContext" {
			o.external = "a compiled context (EPContext)" // refers to a file by name, or runs opaque device code
		} else if !standard(one[7]) {
			return fmt.Errorf("the operator %q is of %q, and not one of ONNX's own", one[4].payload, one[7].payload)
		}
	case tensorMessage:
		switch location := one[14].varint; location {
		case 0:
		case 1:
			o.external = fmt.Sprintf("tensor %q", one[8].payload)
		default:
			return fmt.Errorf("tensor %q lies in a place %d that is unknown", one[8].payload, location)
		}
	}
	return nil
}

// standard says whether a domain of operators is ONNX's own.
func standard(domain wireField) bool {
	return len(domain.payload) == 0 || string(domain.payload) == "ai.onnx"
}

// pair returns the fields 1 and 2 of a message.
func pair(message []byte) (a, b []byte, err error) {
	err = fields(message, func(f wireField) error {
		switch f.number {
		case 1:
			a = f.payload
		case 2:
			b = f.payload
		}
		return nil
	})
	return a, b, err
}

// runnable returns the ModelProto that ONNX Runtime is given: the graph that was hashed, the operator version that was
// checked, and nothing else. We write its first bytes, so that it cannot be taken for another format.
func (m *Model) runnable() []byte {
	var opset []byte
	opset = binary.AppendUvarint(append(opset, 2<<3), m.opset)
	model := make([]byte, 0, len(m.graph)+32)
	model = append(model, 1<<3, byte(m.ir), 8<<3|2, byte(len(opset)))
	model = append(append(model, opset...), 7<<3|2)
	return append(binary.AppendUvarint(model, uint64(len(m.graph))), m.graph...)
}
