// Package wire is the one description of a pair in which every caller of the engine hands it over: images, points and
// numbers that stay in the caller's memory. C fills a Pair from its structs, Python by one JSON text, and both hear of a
// fault in the same words.
package wire

import (
	"bytes"
	"encoding/json"
	"unsafe"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// Pair is an engine.Pair in the caller's memory. What may be missing is nil, or empty.
type Pair struct {
	Fixed        *Image          `json:"fixed"`
	Moving       *Image          `json:"moving"`
	FixedMask    *Image          `json:"fixed_mask"`
	MovingMask   *Image          `json:"moving_mask"`
	Rigid        *Image          `json:"rigid"`
	Initial      At[[12]float64] `json:"initial"`       // the row-major 3x4 matrix [M | t], fixed -> moving LPS mm
	InitialField *Image          `json:"initial_field"` // its voxels are displacements: LPS mm, x, y, z interleaved
	Channels     []Channel       `json:"channels"`
	Landmarks    Landmarks       `json:"landmarks"`
	Doubts       []string        `json:"doubts"`
}

// Channel is an engine.Channel in the caller's memory.
type Channel struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	Labels bool    `json:"labels"`
	Fixed  *Image  `json:"fixed"`
	Moving *Image  `json:"moving"`
}

// Landmarks are Count pairs of points: six numbers each, fixed x, y, z, then moving, LPS mm. Names are one a pair, or none.
type Landmarks struct {
	At    At[[6]float64] `json:"at"`
	Count int            `json:"count"`
	Names []string       `json:"names"`
}

// Image is voxels in the caller's memory and the grid that they lie on.
type Image struct {
	volume.Geometry
	Voxels At[float32]
}

// At points into the caller's memory, which Go's garbage collector does not own. In JSON it is an address, and 0 is nil.
type At[T any] struct{ To *T }

// UnmarshalJSON reads the address.
func (a *At[T]) UnmarshalJSON(text []byte) error {
	var address uint64
	if err := json.Unmarshal(text, &address); err != nil {
		return err
	}
	a.To = Address[T](address)
	return nil
}

// Address returns an address as a pointer.
func Address[T any](address uint64) *T { return *(**T)(unsafe.Pointer(&address)) }

// UnmarshalJSON reads the addresses of the voxels and of the grid, which is as GeometryOf wants it.
func (i *Image) UnmarshalJSON(text []byte) error {
	var at struct {
		Voxels At[float32]     `json:"voxels"`
		Grid   At[[18]float64] `json:"grid"`
	}
	if err := strict(text, &at); err != nil {
		return err
	}
	i.Voxels = at.Voxels
	if at.Grid.To != nil {
		i.Geometry = GeometryOf(at.Grid.To)
	}
	return nil
}

// GeometryOf reads size, spacing and origin along x, y, z, then the row-major direction, without checks.
func GeometryOf(v *[18]float64) volume.Geometry {
	return volume.Geometry{
		Size:      [3]int{int(v[0]), int(v[1]), int(v[2])},
		Spacing:   [3]float64(v[3:6]),
		Origin:    [3]float64(v[6:9]),
		Direction: [9]float64(v[9:18]),
	}
}

// Volume returns the image without copying its voxels: nil for nil. name says which input it is.
func (i *Image) Volume(name string) (*volume.Volume, error) {
	if i == nil {
		return nil, nil
	}
	if err := i.Check(name); err != nil {
		return nil, err
	}
	v := &volume.Volume{Geometry: i.Geometry}
	if i.Voxels.To != nil {
		v.Data = unsafe.Slice(i.Voxels.To, i.Geometry.Voxels())
	}
	return v, nil
}

// field returns the displacements that the voxels are: nil for nil.
func (i *Image) field(threads int) (*field.Field, error) {
	if i == nil {
		return nil, nil
	}
	if err := i.Check("initial field"); err != nil {
		return nil, err
	}
	if i.Voxels.To == nil {
		return nil, invalid("the initial field has no displacements; give three numbers a voxel, or no field")
	}
	return field.FromMM(i.Geometry, unsafe.Slice(i.Voxels.To, 3*i.Geometry.Voxels()), threads), nil
}

// Engine returns the pair as the engine takes it. threads: 0 for every core.
func (p Pair) Engine(threads int) (pair engine.Pair, err error) {
	for k, sentence := range p.Doubts {
		if sentence == "" {
			return pair, invalid("doubt %d is empty; say it, or leave it out", k+1)
		}
	}
	pair.Doubts = p.Doubts
	for _, image := range []struct {
		dst  **volume.Volume
		src  *Image
		name string
	}{
		{&pair.Fixed, p.Fixed, "fixed"}, {&pair.FixedMask, p.FixedMask, "fixed mask"},
		{&pair.Moving, p.Moving, "moving"}, {&pair.MovingMask, p.MovingMask, "moving mask"},
		{&pair.Rigid, p.Rigid, "rigid regions"},
	} {
		if *image.dst, err = image.src.Volume(image.name); err != nil {
			return pair, err
		}
	}
	if m := p.Initial.To; m != nil {
		pair.Initial = &volume.Affine{T: [3]float64{m[3], m[7], m[11]}}
		for row := range 3 {
			copy(pair.Initial.M[3*row:], m[4*row:4*row+3])
		}
	}
	if pair.InitialField, err = p.InitialField.field(threads); err != nil {
		return pair, err
	}
	for k, c := range p.Channels {
		pair.Channels = append(pair.Channels, engine.Channel{Name: c.Name, Weight: c.Weight, Labels: c.Labels})
		channel, name := &pair.Channels[k], pair.ChannelName(k)
		channel.Name = name
		if channel.Fixed, err = c.Fixed.Volume(name + ", fixed"); err != nil {
			return pair, err
		}
		if channel.Moving, err = c.Moving.Volume(name + ", moving"); err != nil {
			return pair, err
		}
	}
	pair.Landmarks, err = p.Landmarks.engine()
	return pair, err
}

// mostLandmarks is more than any registration takes.
const mostLandmarks = 1 << 20

func (l Landmarks) engine() ([]engine.Landmark, error) {
	switch {
	case l.Count < 0 || l.Count > mostLandmarks:
		return nil, invalid("%d landmarks cannot be; give the number of pairs", l.Count)
	case l.At.To == nil && l.Count > 0:
		return nil, invalid("%d landmarks are announced and none given; give six numbers a pair", l.Count)
	case len(l.Names) > 0 && len(l.Names) != l.Count:
		return nil, invalid("%d names are given for %d landmarks; give one a pair, or none", len(l.Names), l.Count)
	}
	landmarks := make([]engine.Landmark, l.Count)
	for i, x := range unsafe.Slice(l.At.To, l.Count) {
		landmarks[i] = engine.Landmark{Fixed: [3]float64(x[:3]), Moving: [3]float64(x[3:])}
		if len(l.Names) > 0 {
			landmarks[i].Name = l.Names[i]
		}
	}
	return landmarks, nil
}

// Parse reads a call to register: the JSON object of a Pair with one more member, the object of the options.
func Parse(text string) (pair engine.Pair, options engine.Options, err error) {
	call := struct {
		Pair
		Options json.RawMessage `json:"options"`
	}{Options: []byte("{}")}
	if err := strict([]byte(text), &call); err != nil {
		return pair, options, fault.Wrap(fault.InvalidArgument, err, "the call to register cannot be read")
	}
	if options, err = engine.ParseOptions(string(call.Options)); err != nil {
		return pair, options, err
	}
	pair, err = call.Engine(options.Threads)
	return pair, options, err
}

// strict reads JSON and refuses members that v does not have.
func strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func invalid(format string, args ...any) error {
	return fault.New(fault.InvalidArgument, format, args...)
}
