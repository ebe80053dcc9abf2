package main

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/morphseek/morphseek/engine"
)

//export ms_register
func ms_register(handle C.ms_engine, fixed, moving *C.ms_image, options *C.ms_options, progress C.ms_progress_fn, user unsafe.Pointer, out *C.ms_result) C.ms_status {
	return makeResult(out, func() (*engine.Result, error) {
		return register(handle, C.ms_pair{fixed: fixed, moving: moving}, options, progress, user)
	})
}

//export ms_register_pair
func ms_register_pair(handle C.ms_engine, pair *C.ms_pair, options *C.ms_options, progress C.ms_progress_fn, user unsafe.Pointer, out *C.ms_result) C.ms_status {
	return makeResult(out, func() (*engine.Result, error) {
		if pair == nil {
			return nil, invalid("pair is NULL")
		}
		p, err := takeStruct(unsafe.Pointer(pair), C.ms_pair{}, oldestPair, "pair")
		if err != nil {
			return nil, err
		}
		return register(handle, p, options, progress, user)
	})
}

func register(handle C.ms_engine, p C.ms_pair, options *C.ms_options, progress C.ms_progress_fn, user unsafe.Pointer) (*engine.Result, error) {
	opt, err := takeOptions(options)
	if err != nil {
		return nil, err
	}
	given, err := takePair(p)
	if err != nil {
		return nil, err
	}
	pair, err := given.Engine(opt.Threads)
	if err != nil {
		return nil, err
	}
	e, err := engines.get(uint64(handle))
	if err != nil {
		return nil, err
	}
	return e.Register(context.Background(), pair, opt, reporter(progress, user))
}

// reporter passes progress on to C, on the goroutine and so the thread that registers; nil for NULL.
func reporter(fn C.ms_progress_fn, user unsafe.Pointer) engine.ProgressFunc {
	if fn == nil {
		return nil
	}
	return func(p engine.Progress) bool {
		stage, message := C.CString(p.Stage), C.CString(p.Message)
		defer C.free(unsafe.Pointer(stage))
		defer C.free(unsafe.Pointer(message))
		return C.shim_progress(fn, stage, C.double(p.Fraction), message, user) == 0
	}
}
