//go:build cgo

package network

/*
#include <stddef.h>

typedef int (*init_fn)(unsigned);
typedef int (*count_fn)(int *);
typedef int (*get_fn)(int *, int);
typedef int (*name_fn)(char *, int, int);
typedef int (*memory_fn)(size_t *, int);

static int cards(void *init, void *count) {
	int n = 0;
	return ((init_fn)init)(0) == 0 && ((count_fn)count)(&n) == 0 ? n : 0;
}

static int card(void *get, void *name, void *memory, int i, char *text, int capacity, size_t *bytes) {
	int device;
	return ((get_fn)get)(&device, i) || ((name_fn)name)(text, capacity, device) || ((memory_fn)memory)(bytes, device);
}
*/
import "C"

import (
	"runtime"
	"slices"
	"unsafe"
)

// gpus asks the NVIDIA driver, where there is one, for its cards.
func gpus() []GPU {
	cards := []GPU{}
	name := "libcuda.so.1"
	if runtime.GOOS == "windows" {
		name = "nvcuda.dll"
	}
	driver, err := openLibrary(name)
	if err != nil {
		return cards
	}
	var f []unsafe.Pointer
	for _, name := range []string{"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2"} {
		f = append(f, symbol(driver, name))
	}
	if slices.Contains(f, nil) {
		return cards
	}
	for i := range C.cards(f[0], f[1]) {
		const capacity = 256
		var text [capacity]C.char
		var bytes C.size_t
		if C.card(f[2], f[3], f[4], i, &text[0], capacity, &bytes) == 0 {
			cards = append(cards, GPU{C.GoString(&text[0]), uint64(bytes)})
		}
	}
	return cards
}
