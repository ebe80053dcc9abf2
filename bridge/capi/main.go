// Command capi is the C interface: built with -buildmode=c-shared it becomes libmorphseek.so.1, and include/morphseek.h, written by
// hand, is its documentation. This package only translates between C and the engine: handles, structs, status codes, text.
package main

// #cgo CFLAGS: -std=c11 -Wall
// #include "shim.h"
import "C"

import (
	"encoding/json"
	"unsafe"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
)

func main() {}

var version = C.CString(engine.Version)

// call runs the body of an exported function. No panic leaves it. An error becomes the calling thread's last
// error and the status. (An exported function stays on its caller's thread, so that thread is the right one.)
func call(body func() error) (status C.ms_status) {
	var err error
	defer func() {
		if r := recover(); r != nil {
			err = fault.Defect(r)
		}
		if err != nil {
			text := err.Error()
			C.shim_set_error(bytesOf(text), C.size_t(len(text)))
			status = C.ms_status(fault.CodeOf(err))
		}
	}()
	err = body()
	return C.MS_OK
}

// with is call for a body that takes the value of a handle.
func with[T any](t *table[T], handle uint64, body func(T) error) C.ms_status {
	return call(func() error {
		v, err := t.get(handle)
		if err != nil {
			return err
		}
		return body(v)
	})
}

// bytesOf returns the bytes of s, not terminated, for the length of one C call.
func bytesOf(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s))) }

func invalid(format string, args ...any) error {
	return fault.New(fault.InvalidArgument, format, args...)
}

// writeJSON writes v by the (dst, capacity, needed) protocol of the header.
func writeJSON(v any, dst *C.char, capacity C.size_t, needed *C.size_t) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeText(string(text), dst, capacity, needed)
}

// writeText writes text by the (dst, capacity, needed) protocol of the header.
func writeText(text string, dst *C.char, capacity C.size_t, needed *C.size_t) error {
	n := C.size_t(len(text) + 1)
	if dst == nil && capacity != 0 {
		return invalid("dst is NULL with a capacity of %d bytes", capacity)
	}
	if dst != nil && capacity < n {
		return invalid("the text needs %d bytes and dst has %d; ask for the size with dst NULL first", n, capacity)
	}
	if needed != nil {
		*needed = n
	}
	if dst != nil {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(dst)), n), text+"\x00")
	}
	return nil
}

//export ms_version
func ms_version() *C.char { return version }

//export ms_last_error
func ms_last_error() *C.char { return C.shim_error() }

//export ms_status_name
func ms_status_name(status C.ms_status) *C.char {
	name := fault.Code(status).String()
	return C.shim_keep_name(bytesOf(name), C.size_t(len(name)))
}

//export ms_status_exit
func ms_status_exit(status C.ms_status) C.int { return C.int(fault.Code(status).Exit()) }

//export ms_options_json
func ms_options_json(dst *C.char, capacity C.size_t, needed *C.size_t) C.ms_status {
	return call(func() error { return writeJSON(engine.OptionSpecs(), dst, capacity, needed) })
}

//export ms_errors_json
func ms_errors_json(dst *C.char, capacity C.size_t, needed *C.size_t) C.ms_status {
	return call(func() error { return writeJSON(fault.Table, dst, capacity, needed) })
}

//export ms_options_init
func ms_options_init(options *C.ms_options, size C.size_t) C.ms_status {
	return call(func() error {
		if options == nil {
			return invalid("options is NULL")
		}
		return putStruct(unsafe.Pointer(options), size, defaultOptions, oldestOptions, "options")
	})
}

//export ms_engine_create
func ms_engine_create(config *C.ms_engine_config, out *C.ms_engine) C.ms_status {
	return call(func() error {
		if out == nil {
			return invalid("out is NULL")
		}
		*out = 0
		cfg := engine.Config{TuneCollector: true}
		if config != nil {
			c, err := takeStruct(unsafe.Pointer(config), C.ms_engine_config{}, oldestConfig, "config")
			if err != nil {
				return err
			}
			cfg.RuntimeLibrary, cfg.ModelDir = C.GoString(c.runtime_library), C.GoString(c.model_dir)
		}
		e, err := engine.Open(cfg)
		if err != nil {
			return err
		}
		*out = C.ms_engine(engines.add(e))
		return nil
	})
}

//export ms_engine_destroy
func ms_engine_destroy(handle C.ms_engine) C.ms_status {
	return call(func() error {
		e, err := engines.remove(uint64(handle))
		if err != nil {
			return err
		}
		return e.Close() // which lets calls under way end, so a progress callback may destroy the engine that it reports on
	})
}

// tell writes what an engine says of itself, as JSON.
func tell(handle C.ms_engine, dst *C.char, capacity C.size_t, needed *C.size_t, say func(*engine.Engine) (any, error)) C.ms_status {
	return with(&engines, uint64(handle), func(e *engine.Engine) error {
		answer, err := say(e)
		if err != nil {
			return err
		}
		return writeJSON(answer, dst, capacity, needed)
	})
}

//export ms_model_list
func ms_model_list(handle C.ms_engine, dst *C.char, capacity C.size_t, needed *C.size_t) C.ms_status {
	return tell(handle, dst, capacity, needed, func(e *engine.Engine) (any, error) { return e.ListModels() })
}

//export ms_model_verify
func ms_model_verify(handle C.ms_engine, model *C.char, dst *C.char, capacity C.size_t, needed *C.size_t) C.ms_status {
	return tell(handle, dst, capacity, needed, func(e *engine.Engine) (any, error) {
		if model == nil {
			return nil, invalid("model is NULL")
		}
		return e.VerifyModel(C.GoString(model))
	})
}

//export ms_devices
func ms_devices(handle C.ms_engine, dst *C.char, capacity C.size_t, needed *C.size_t) C.ms_status {
	return tell(handle, dst, capacity, needed, func(e *engine.Engine) (any, error) { return e.Devices() })
}
