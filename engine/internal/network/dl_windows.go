package network

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// openLibrary loads a shared library for the life of the process.
func openLibrary(path string) (unsafe.Pointer, error) {
	handle, err := windows.LoadLibrary(path)
	return pointer(uintptr(handle)), err
}

// symbol returns an address inside a library; nil where there is no such name.
func symbol(library unsafe.Pointer, name string) unsafe.Pointer {
	address, err := windows.GetProcAddress(windows.Handle(library), name)
	if err != nil {
		return nil
	}
	return pointer(address)
}

// pointer makes an address outside Go's memory a pointer.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
