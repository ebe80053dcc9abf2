package main

// #include "shim.h"
import "C"

import (
	"cmp"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/morphseek/morphseek/bridge/internal/wire"
	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/volume"
)

// Sizes of the structs in the first version of the library: less was never valid. They stay when members are added.
const (
	oldestConfig  = unsafe.Offsetof(C.ms_engine_config{}.model_dir) + unsafe.Sizeof(C.ms_engine_config{}.model_dir)
	oldestOptions = unsafe.Offsetof(C.ms_options{}.cache) + unsafe.Sizeof(C.ms_options{}.cache)
	oldestImage   = unsafe.Offsetof(C.ms_image{}.voxels) + unsafe.Sizeof(C.ms_image{}.voxels)
	oldestChannel = unsafe.Offsetof(C.ms_channel{}.labels) + unsafe.Sizeof(C.ms_channel{}.labels)
	oldestPair    = unsafe.Offsetof(C.ms_pair{}.initial) + unsafe.Sizeof(C.ms_pair{}.initial)
	oldestVerdict = unsafe.Offsetof(C.ms_verdict{}.njd_percent) + unsafe.Sizeof(C.ms_verdict{}.njd_percent)

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

// optionField returns the engine's option that a member of ms_options stands for.
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

// takeImage reads the caller's image, whose voxels stay where they are: nil for NULL. name says which it is.
func takeImage(p *C.ms_image, name string) (*wire.Image, error) {
	if p == nil {
		return nil, nil
	}
	c, err := takeStruct(unsafe.Pointer(p), C.ms_image{}, oldestImage, name+" image")
	if err != nil {
		return nil, err
	}
	i := &wire.Image{Voxels: wire.At[float32]{To: (*float32)(unsafe.Pointer(c.voxels))}}
	for a := range 3 {
		i.Size[a] = int(c.dims[a])
		i.Spacing[a] = float64(c.spacing[a])
		i.Origin[a] = float64(c.origin[a])
	}
	for k := range 9 {
		i.Direction[k] = float64(c.direction[k])
	}
	return i, nil
}

// takePair reads the caller's structs. What they hold is checked by wire, and what it means by the engine.
func takePair(c C.ms_pair) (p wire.Pair, err error) {
	for _, image := range []struct {
		dst  **wire.Image
		src  *C.ms_image
		name string
	}{
		{&p.Fixed, c.fixed, "fixed"}, {&p.FixedMask, c.fixed_mask, "fixed mask"},
		{&p.Moving, c.moving, "moving"}, {&p.MovingMask, c.moving_mask, "moving mask"},
		{&p.Rigid, c.rigid, "rigid regions"}, {&p.InitialField, c.initial_field, "initial field"},
	} {
		if *image.dst, err = takeImage(image.src, image.name); err != nil {
			return p, err
		}
	}
	p.Initial.To = (*[12]float64)(unsafe.Pointer(c.initial))
	channels, err := array(c.channels, c.channel_count, "channel")
	if err != nil {
		return p, err
	}
	for k, pointer := range channels {
		channel, err := takeChannel(pointer, fmt.Sprintf("channel %d", k+2))
		if err != nil {
			return p, err
		}
		p.Channels = append(p.Channels, channel)
	}
	p.Landmarks = wire.Landmarks{Count: int(c.landmark_count)}
	p.Landmarks.At.To = (*[6]float64)(unsafe.Pointer(c.landmarks))
	if c.landmark_names != nil {
		if p.Landmarks.Names, err = texts(c.landmark_names, c.landmark_count, "landmark"); err != nil {
			return p, err
		}
	}
	p.Doubts, err = texts(c.doubts, c.doubt_count, "doubt")
	return p, err
}

// takeChannel reads the caller's channel, which is called name where it has no name.
func takeChannel(p *C.ms_channel, name string) (channel wire.Channel, err error) {
	if p == nil {
		return channel, invalid("%s is NULL", name)
	}
	c, err := takeStruct(unsafe.Pointer(p), C.ms_channel{}, oldestChannel, name)
	if err != nil {
		return channel, err
	}
	name = cmp.Or(C.GoString(c.name), name)
	channel = wire.Channel{Name: name, Weight: float64(c.weight), Labels: c.labels != 0}
	if channel.Fixed, err = takeImage(c.fixed, name+", fixed"); err != nil {
		return channel, err
	}
	channel.Moving, err = takeImage(c.moving, name+", moving")
	return channel, err
}

// array returns the caller's count elements at p, each a what. A count beyond any call's need is one that was not set.
func array[T any](p *T, count C.size_t, what string) ([]T, error) {
	const most = 1 << 20
	if count > most || p == nil && count > 0 {
		return nil, invalid("%s_count is %d; set it to how many %ss there are, and %ss to where", what, count, what, what)
	}
	return unsafe.Slice(p, count), nil
}

// texts copies the caller's count strings at p, each a what; a NULL string is "".
func texts(p **C.char, count C.size_t, what string) (copies []string, err error) {
	pointers, err := array(p, count, what)
	for _, text := range pointers {
		copies = append(copies, C.GoString(text))
	}
	return copies, err
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
