package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// onnxFile is what a look at a ModelProto tells without ONNX Runtime.
type onnxFile struct {
	graph           []byte // the raw payload of the graph
	metadata        map[string]string
	opset           uint64 // of the default operator domain
	inputs, outputs map[string]bool
	external        string // what points outside the file; empty where nothing does
}

// Field numbers of onnx.proto. They are frozen by protobuf's rules.
const (
	modelGraph, modelOpset, modelMetadata, modelFunctions = 7, 8, 14, 25
	opsetDomain, opsetVersion                             = 1, 2
	entryKey, entryValue                                  = 1, 2
	graphNode, graphInitializer, graphInput               = 1, 5, 11
	graphOutput, graphSparse                              = 12, 15
	valueName                                             = 1
	nodeOpType, nodeAttribute                             = 4, 5
	attrTensor, attrGraph, attrTensors, attrGraphs        = 5, 6, 10, 11
	attrSparse, attrSparses                               = 22, 23
	sparseValues, sparseIndices                           = 1, 2
	tensorName, tensorExternalData, tensorDataLocation    = 8, 13, 14
	locationExternal                                      = 1
	maxGraphDepth                                         = 32
)

// wireField is one field of a protobuf message.
type wireField struct {
	number  uint64
	varint  uint64 // wire type 0
	payload []byte // wire type 2, aliasing the message
	isBytes bool
}

var errWire = errors.New("the file is cut short or is not ONNX")

// fields calls visit for every field of a protobuf message, in order. Nothing is copied, and no length is trusted. A tag of more than 32
// bits is refused: other readers cut it, and would find a field there that this one does not.
func fields(message []byte, visit func(wireField) error) error {
	for b := message; len(b) > 0; {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag > math.MaxUint32 {
			return errWire
		}
		b = b[n:]
		f := wireField{number: tag >> 3}
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
			b, size, f.isBytes = b[n:], length, true
		case 5:
			size = 4
		default:
			return errWire
		}
		if size > uint64(len(b)) {
			return errWire
		}
		if f.isBytes {
			f.payload = b[:size]
		}
		b = b[size:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// scanONNX reads the parts of a ModelProto that a bundle is judged by. It fails on anything that is not well formed, on two
// graphs, and on local functions (which the manifest's hash would not cover).
func scanONNX(data []byte) (*onnxFile, error) {
	o := &onnxFile{metadata: map[string]string{}, inputs: map[string]bool{}, outputs: map[string]bool{}}
	graphs := 0
	err := fields(data, func(f wireField) error {
		switch {
		case f.number == modelGraph && f.isBytes:
			graphs++
			o.graph = f.payload
		case f.number == modelFunctions:
			return errors.New("the graph uses local functions; export it with functions inlined")
		case f.number == modelOpset && f.isBytes:
			domain, version, err := pair(f.payload, opsetDomain, opsetVersion)
			if err != nil {
				return err
			}
			if len(domain.payload) == 0 || string(domain.payload) == "ai.onnx" {
				o.opset = version.varint
			}
		case f.number == modelMetadata && f.isBytes:
			key, value, err := pair(f.payload, entryKey, entryValue)
			if err != nil {
				return err
			}
			o.metadata[string(key.payload)] = string(value.payload)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if graphs != 1 {
		return nil, fmt.Errorf("the file holds %d graphs, not 1", graphs)
	}
	return o, o.scanGraph(o.graph, 0)
}

// pair returns the last fields numbered first and second of a message.
func pair(message []byte, first, second uint64) (a, b wireField, err error) {
	err = fields(message, func(f wireField) error {
		switch f.number {
		case first:
			a = f
		case second:
			b = f
		}
		return nil
	})
	return a, b, err
}

// scanGraph collects the names of the outermost graph's inputs and outputs and looks for tensors kept in other files, in this
// graph and those nested in its nodes (Loop, If, Scan).
func (o *onnxFile) scanGraph(graph []byte, depth int) error {
	if depth > maxGraphDepth {
		return errors.New("graphs are nested too deeply")
	}
	return fields(graph, func(f wireField) error {
		if !f.isBytes {
			return nil
		}
		switch f.number {
		case graphNode:
			return o.scanNode(f.payload, depth)
		case graphInitializer:
			return o.scanTensor(f.payload)
		case graphSparse:
			return o.scanSparse(f.payload)
		case graphInput, graphOutput:
			if depth > 0 {
				return nil
			}
			name, _, err := pair(f.payload, valueName, 0)
			if f.number == graphInput {
				o.inputs[string(name.payload)] = true
			} else {
				o.outputs[string(name.payload)] = true
			}
			return err
		}
		return nil
	})
}

func (o *onnxFile) scanNode(node []byte, depth int) error {
	return fields(node, func(f wireField) error {
		switch {
		case f.number == nodeOpType && string(f.payload) == "EPContext":
			o.external = "a compiled context (EPContext)" // refers to a file by name, or runs opaque device code
		case f.number == nodeAttribute && f.isBytes:
			return fields(f.payload, func(a wireField) error {
				if !a.isBytes {
					return nil
				}
				switch a.number {
				case attrGraph, attrGraphs:
					return o.scanGraph(a.payload, depth+1)
				case attrTensor, attrTensors:
					return o.scanTensor(a.payload)
				case attrSparse, attrSparses:
					return o.scanSparse(a.payload)
				}
				return nil
			})
		}
		return nil
	})
}

func (o *onnxFile) scanSparse(sparse []byte) error {
	return fields(sparse, func(f wireField) error {
		if f.isBytes && (f.number == sparseValues || f.number == sparseIndices) {
			return o.scanTensor(f.payload)
		}
		return nil
	})
}

func (o *onnxFile) scanTensor(tensor []byte) error {
	name, external := "", false
	err := fields(tensor, func(f wireField) error {
		switch f.number {
		case tensorName:
			name = string(f.payload)
		case tensorExternalData:
			external = true
		case tensorDataLocation:
			external = external || uint32(f.varint) == locationExternal // an enumeration: readers cut it, too
		}
		return nil
	})
	if external {
		o.external = fmt.Sprintf("tensor %q", name)
	}
	return err
}
