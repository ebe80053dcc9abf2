package network

import (
	"reflect"

	"golang.org/x/sys/windows"
)

// ownPath returns the file that this code was loaded from: our shared library, or the program. Empty where unknown.
func ownPath() string {
	const fromAddress, unchangedRefcount = 4, 2 // GET_MODULE_HANDLE_EX_FLAG_*
	// With fromAddress the "name" is an address inside the module; it is never read as text.
	here := reflect.ValueOf(ownPath).UnsafePointer()
	var module windows.Handle
	if windows.GetModuleHandleEx(fromAddress|unchangedRefcount, (*uint16)(here), &module) != nil {
		return ""
	}
	buffer := make([]uint16, windows.MAX_LONG_PATH)
	n, err := windows.GetModuleFileName(module, &buffer[0], uint32(len(buffer)))
	if err != nil {
		return ""
	}
	return windows.UTF16ToString(buffer[:n])
}
