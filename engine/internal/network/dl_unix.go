//go:build cgo && !windows

package network

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"unsafe"
)

// openLibrary loads a shared library for the life of the process, with local symbols: libraries that link to it find it
// by its SONAME, and another CUDA in this process (PyTorch's, say) is not mixed up with it.
func openLibrary(path string) (unsafe.Pointer, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	handle := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return nil, errors.New(C.GoString(C.dlerror()))
	}
	return handle, nil
}

// symbol returns an address inside a library; nil where there is no such name.
func symbol(library unsafe.Pointer, name string) unsafe.Pointer {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.dlsym(library, text)
}
