//go:build cgo

package network

import (
	"reflect"
	"testing"

	ort "github.com/yalue/onnxruntime_go"
)

// A session's options are read by reflection (append): another version of the library may keep them otherwise.
func TestOptionsAreOnePointer(t *testing.T) {
	options := reflect.TypeFor[ort.SessionOptions]()
	if options.NumField() != 1 {
		t.Fatalf("%v has %d members, not one", options, options.NumField())
	}
	if f := options.Field(0).Type; f.Kind() != reflect.Pointer || f.Elem().Name() != "_Ctype_struct_OrtSessionOptions" {
		t.Errorf("%v holds a %v, not C's options", options, f)
	}
}
