//go:build cgo

package network

/*
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// What onnxruntime_go does not wrap of ONNX Runtime's C interface. That is a table of functions, to which new ones are
// only ever appended; these are the places of those called here (onnxruntime_c_api.h).
enum {
	GET_ERROR_MESSAGE = 2,
	CREATE_ENV = 3,
	RELEASE_STATUS = 93,
	GET_AVAILABLE_PROVIDERS = 125,
	RELEASE_AVAILABLE_PROVIDERS = 126,
	GET_EP_DEVICES = 303,
	APPEND_EXECUTION_PROVIDER_V2 = 304,
	HARDWARE_DEVICE_TYPE = 307,
	EP_DEVICE_NAME = 312,
	EP_DEVICE_HARDWARE = 316,
};

typedef void *const *table;

static table get_table(void *get_api_base) {
	const struct { table (*get)(uint32_t); } *base = ((const void *(*)(void))get_api_base)();
	return base->get(22); // the first version with all of them
}

// failure returns the text of a status, to be freed, and releases it; NULL for success.
static char *failure(table api, void *status) {
	if (status == NULL) return NULL;
	char *text = strdup(((const char *(*)(void *))api[GET_ERROR_MESSAGE])(status));
	((void (*)(void *))api[RELEASE_STATUS])(status);
	return text;
}

static char *get_providers(table api, char ***names, int *n) {
	return failure(api, ((void *(*)(char ***, int *))api[GET_AVAILABLE_PROVIDERS])(names, n));
}

static void release_providers(table api, char **names, int n) {
	failure(api, ((void *(*)(char **, int))api[RELEASE_AVAILABLE_PROVIDERS])(names, n));
}

// The process has one environment: this returns that which onnxruntime_go made.
static char *get_env(table api, void **env) {
	const int errors_only = 3;
	return failure(api, ((void *(*)(int, const char *, void **))api[CREATE_ENV])(errors_only, "morphseek", env));
}

static char *get_devices(table api, void *env, void *const **devices, size_t *n) {
	return failure(api, ((void *(*)(void *, void *const **, size_t *))api[GET_EP_DEVICES])(env, devices, n));
}

static const char *device_name(table api, void *device) {
	return ((const char *(*)(void *))api[EP_DEVICE_NAME])(device);
}

static int device_kind(table api, void *device) {
	void *hardware = ((void *(*)(void *))api[EP_DEVICE_HARDWARE])(device);
	return ((int (*)(void *))api[HARDWARE_DEVICE_TYPE])(hardware);
}

static char *append_device(table api, void *options, void *env, void *device) {
	typedef void *(*fn)(void *, void *, void *const *, size_t, const char *const *, const char *const *, size_t);
	return failure(api, ((fn)api[APPEND_EXECUTION_PROVIDER_V2])(options, env, &device, 1, NULL, NULL, 0));
}
*/
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
)

// api is ONNX Runtime's table of functions and its environment.
type api struct {
	table C.table
	env   unsafe.Pointer
}

// connect returns the interface of the ONNX Runtime that was loaded from path.
func connect(path string) (api, error) {
	library, err := openLibrary(path)
	if err != nil {
		return api{}, err
	}
	a := api{table: C.get_table(symbol(library, "OrtGetApiBase"))}
	return a, failed(C.get_env(a.table, &a.env))
}

// failed makes the text of a failure, which it frees, an error; NULL is success.
func failed(text *C.char) error {
	if text == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(text))
	return errors.New(C.GoString(text))
}

// providers returns the names of the execution providers that ONNX Runtime was built with.
func (a api) providers() []string {
	var names **C.char
	var n C.int
	if failed(C.get_providers(a.table, &names, &n)) != nil {
		return nil
	}
	defer C.release_providers(a.table, names, n)
	providers := []string{}
	for _, name := range unsafe.Slice(names, n) {
		providers = append(providers, C.GoString(name))
	}
	return providers
}

// pluginDevice is a device that a plugin provider offers.
type pluginDevice struct {
	provider string
	kind     C.int // hardware: 0 CPU, 1 GPU, 2 NPU
	handle   unsafe.Pointer
}

// devices returns the devices of every provider library that is registered, and of ONNX Runtime itself.
func (a api) devices() ([]pluginDevice, error) {
	var handles *unsafe.Pointer
	var n C.size_t
	if err := failed(C.get_devices(a.table, a.env, &handles, &n)); err != nil {
		return nil, err
	}
	var all []pluginDevice
	for _, handle := range unsafe.Slice(handles, n) {
		all = append(all, pluginDevice{C.GoString(C.device_name(a.table, handle)), C.device_kind(a.table, handle), handle})
	}
	return all, nil
}

// plugins holds the best device of each provider library that was registered, by its path. Guarded by loading.
var plugins = map[string]pluginDevice{}

// register loads a plugin provider's library, once, and returns the best of its devices: GPU, or else NPU, or else CPU.
func (a api) register(path string) (pluginDevice, error) {
	loading.Lock()
	defer loading.Unlock()
	path, err := filepath.Abs(path)
	if err != nil {
		return pluginDevice{}, err
	}
	if !exists(path) {
		return pluginDevice{}, fmt.Errorf("the provider library %s does not exist", path)
	}
	if device, ok := plugins[path]; ok {
		return device, nil
	}
	before, err := a.devices()
	if err != nil {
		return pluginDevice{}, err
	}
	if err := ort.RegisterExecutionProviderLibrary(path, path); err != nil {
		return pluginDevice{}, err
	}
	after, err := a.devices()
	if err != nil {
		return pluginDevice{}, err
	}
	offered := slices.DeleteFunc(after, func(d pluginDevice) bool {
		return slices.ContainsFunc(before, func(b pluginDevice) bool { return b.provider == d.provider })
	})
	for _, kind := range []C.int{1, 2, 0} {
		if i := slices.IndexFunc(offered, func(d pluginDevice) bool { return d.kind == kind }); i >= 0 {
			plugins[path] = offered[i]
			return offered[i], nil
		}
	}
	ort.UnregisterExecutionProviderLibrary(path)
	return pluginDevice{}, fmt.Errorf("the provider library %s finds no device on this machine", path)
}

// append lets a session run on the device. onnxruntime_go keeps the C pointer of its options to itself, as their only
// member.
func (a api) append(options *ort.SessionOptions, device pluginDevice) error {
	handle := reflect.ValueOf(options).Elem().Field(0).UnsafePointer()
	return failed(C.append_device(a.table, handle, a.env, device.handle))
}
