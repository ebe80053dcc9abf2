package main

// #include "shim.h"
import "C"

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// Sizes of the structs in the first version of the library: less was never valid. They stay when members are added.
const (
	oldestConfig  = unsafe.Offsetof(C.ms_engine_config{}.model_dir) + unsafe.Sizeof(C.ms_engine_config{}.model_dir)
	oldestOptions = unsafe.Offsetof(C.ms_options{}.cache) + unsafe.Sizeof(C.ms_options{}.cache)
	oldestImage   = unsafe.Offsetof(C.ms_image{}.voxels) + unsafe.Sizeof(C.ms_image{}.voxels)
	oldestChannel = unsafe.Offsetof(C.ms_channel{}.labels) + unsafe.Sizeof(C.ms_channel{}.labels)
	oldestPair    = unsafe.Offsetof(C.ms_pair{}.initial) + unsafe.Sizeof(C.ms_pair{}.initial)

	largestStruct = 1 << 16 // a larger size is an error; the memory behind it is not read
)

func checkSize(size C.size_t, oldest uintptr, name string) error {
	if uintptr(size) < oldest || size > largestStruct {
		return invalid("%s: its size member is %d, where the struct has %d bytes; set it to sizeof", name, size, oldest)
	}
	return nil
}

// takeStruct reads the caller's struct at p over defaults, as the header's paragraph on structs promises.
func takeStruct[T any](p unsafe.Pointer, defaults T, oldest uintptr, name string) (T, error) {
	size := *(*C.size_t)(p)
	if err := checkSize(size, oldest, name); err != nil {
		return defaults, err
	}
	theirs := unsafe.Slice((*byte)(p), size)
	ours := unsafe.Slice((*byte)(unsafe.Pointer(&defaults)), unsafe.Sizeof(defaults))
	for _, b := range theirs[copy(ours, theirs):] {
		if b != 0 {
			return defaults, invalid("%s: it sets members that this library (%s) does not know; use a newer one", name, engine.Version)
		}
	}
	return defaults, nil
}

// putStruct writes v to the caller's struct of the given size at p: what it has room for, zeros beyond what v has, and size.
func putStruct[T any](p unsafe.Pointer, size C.size_t, v T, oldest uintptr, name string) error {
	if err := checkSize(size, oldest, name); err != nil {
		return err
	}
	theirs := unsafe.Slice((*byte)(p), size)
	clear(theirs[copy(theirs, unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))):])
	*(*C.size_t)(p) = size
	return nil
}

// ms_options has a member for every engine option, of the same name (a test holds them together).
var optionMembers = func() []reflect.StructField {
	t := reflect.TypeFor[C.ms_options]()
	members := make([]reflect.StructField, 0, t.NumField())
	for i := range t.NumField() {
		if f := t.Field(i); f.Name != "size" && f.Name != "_" {
			members = append(members, f)
		}
	}
	return members
}()

// optionField is the engine's option that a member of ms_options stands for.
func optionField(options reflect.Value, member string) reflect.Value {
	for i := range options.NumField() {
		if options.Type().Field(i).Tag.Get("json") == member {
			return options.Field(i)
		}
	}
	panic("ms_options has a member that is no option: " + member)
}

// defaultOptions is what ms_options_init writes. Its strings live as long as the process.
var defaultOptions = func() (c C.ms_options) {
	c.size = C.sizeof_ms_options
	defaults := reflect.ValueOf(engine.DefaultOptions())
	for _, m := range optionMembers {
		p, v := unsafe.Add(unsafe.Pointer(&c), m.Offset), optionField(defaults, m.Name)
		switch v.Kind() {
		case reflect.String:
			*(**C.char)(p) = C.CString(v.String())
		case reflect.Float64:
			*(*float64)(p) = v.Float()
		case reflect.Uint64:
			*(*uint64)(p) = v.Uint()
		default:
			*(*int32)(p) = int32(v.Int())
		}
	}
	return c
}()

// takeOptions reads the caller's options; NULL is the defaults, and so is a NULL string.
func takeOptions(p *C.ms_options) (engine.Options, error) {
	opt := engine.DefaultOptions()
	if p == nil {
		return opt, nil
	}
	c, err := takeStruct(unsafe.Pointer(p), defaultOptions, oldestOptions, "options")
	if err != nil {
		return opt, err
	}
	dst := reflect.ValueOf(&opt).Elem()
	for _, m := range optionMembers {
		p, v := unsafe.Add(unsafe.Pointer(&c), m.Offset), optionField(dst, m.Name)
		switch v.Kind() {
		case reflect.String:
			if s := *(**C.char)(p); s != nil {
				v.SetString(C.GoString(s))
			}
		case reflect.Float64:
			v.SetFloat(*(*float64)(p))
		case reflect.Uint64:
			v.SetUint(*(*uint64)(p))
		default:
			v.SetInt(int64(*(*int32)(p)))
		}
	}
	return opt, opt.Check()
}

// takeGrid reads and checks the geometry of the caller's image. name says which it is.
func takeGrid(p *C.ms_image, name string) (volume.Geometry, *float32, error) {
	var g volume.Geometry
	c, err := takeStruct(unsafe.Pointer(p), C.ms_image{}, oldestImage, name+" image")
	if err != nil {
		return g, nil, err
	}
	for a := range 3 {
		g.Size[a] = int(c.dims[a])
		g.Spacing[a] = float64(c.spacing[a])
		g.Origin[a] = float64(c.origin[a])
	}
	for i := range 9 {
		g.Direction[i] = float64(c.direction[i])
	}
	return g, (*float32)(unsafe.Pointer(c.voxels)), g.Check(name)
}

// takeImage wraps the caller's image without copying its voxels: nil for NULL.
func takeImage(p *C.ms_image, name string) (*volume.Volume, error) {
	if p == nil {
		return nil, nil
	}
	g, voxels, err := takeGrid(p, name)
	if err != nil {
		return nil, err
	}
	v := &volume.Volume{Geometry: g}
	if voxels != nil {
		v.Data = unsafe.Slice(voxels, g.Voxels())
	}
	return v, nil
}

// takeChannels reads the caller's channels.
func takeChannels(p C.ms_pair) (channels []engine.Channel, err error) {
	if p.channel_count == 0 {
		return nil, nil
	}
	const most = 1 << 10 // a larger count is an error
	if p.channel_count > most {
		return nil, invalid("channel_count is %d; the engine takes 16 at most", p.channel_count)
	}
	if p.channels == nil {
		return nil, invalid("channels is NULL, where channel_count is %d", p.channel_count)
	}
	for k, pointer := range unsafe.Slice(p.channels, p.channel_count) {
		name := fmt.Sprintf("channel %d", k+2)
		if pointer == nil {
			return nil, invalid("%s is NULL", name)
		}
		c, err := takeStruct(unsafe.Pointer(pointer), C.ms_channel{}, oldestChannel, name)
		if err != nil {
			return nil, err
		}
		if c.name != nil {
			name = C.GoString(c.name)
		}
		channel := engine.Channel{Name: name, Weight: float64(c.weight), Labels: c.labels != 0}
		if channel.Fixed, err = takeImage(c.fixed, name+", fixed"); err != nil {
			return nil, err
		}
		if channel.Moving, err = takeImage(c.moving, name+", moving"); err != nil {
			return nil, err
		}
		channels = append(channels, channel)
	}
	return channels, nil
}

// takeField reads the displacements of the caller's image, LPS mm: nil for NULL.
func takeField(p *C.ms_image) (*field.Field, error) {
	if p == nil {
		return nil, nil
	}
	g, mm, err := takeGrid(p, "initial field")
	if err != nil {
		return nil, err
	}
	if mm == nil {
		return nil, invalid("initial_field: its voxels are NULL")
	}
	return field.FromMM(g, unsafe.Slice(mm, 3*g.Voxels()), 0), nil
}

// mostLandmarks is more than any registration takes. A larger count is an error.
const mostLandmarks = 1 << 20

// takeLandmarks copies the caller's landmarks: none for NULL.
func takeLandmarks(p *C.double, names **C.char, count C.size_t) ([]engine.Landmark, error) {
	if p == nil || count == 0 {
		if p == nil && count > 0 {
			return nil, invalid("landmarks is NULL, and landmark_count %d", count)
		}
		return nil, nil
	}
	if count > mostLandmarks {
		return nil, invalid("landmark_count is %d; set it to the number of pairs", count)
	}
	called := make([]string, 0, count)
	if names != nil {
		for _, name := range unsafe.Slice(names, count) {
			if name == nil {
				called = append(called, "")
				continue
			}
			called = append(called, C.GoString(name))
		}
	}
	return engine.LandmarksOf(unsafe.Slice((*[6]float64)(unsafe.Pointer(p)), count), called), nil
}

// putGrid writes a geometry into the caller's image struct.
func putGrid(p *C.ms_image, g volume.Geometry) error {
	var c C.ms_image
	for a := range 3 {
		c.dims[a] = C.int64_t(g.Size[a])
		c.spacing[a] = C.double(g.Spacing[a])
		c.origin[a] = C.double(g.Origin[a])
	}
	for i := range 9 {
		c.direction[i] = C.double(g.Direction[i])
	}
	return putStruct(unsafe.Pointer(p), p.size, c, oldestImage, "grid")
}

// takeAffine reads a row-major 3x4 matrix: nil for NULL.
func takeAffine(p *C.double) *volume.Affine {
	if p == nil {
		return nil
	}
	var a volume.Affine
	for i, v := range unsafe.Slice((*float64)(unsafe.Pointer(p)), 12) {
		if row, col := i/4, i%4; col < 3 {
			a.M[3*row+col] = v
		} else {
			a.T[row] = v
		}
	}
	return &a
}
