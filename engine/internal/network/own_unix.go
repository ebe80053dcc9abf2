//go:build cgo && !windows

package network

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static const char *own_path(void) {
	Dl_info info;
	return dladdr((void *)own_path, &info) ? info.dli_fname : NULL;
}
*/
import "C"

import "path/filepath"

// ownPath returns the file that this code was loaded from: our shared library, or the program. Empty where unknown.
func ownPath() string {
	path, err := filepath.Abs(C.GoString(C.own_path()))
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
