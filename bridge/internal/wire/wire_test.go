package wire

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/volume"
)

// memory is a caller's: the arrays that the JSON names by their addresses.
type memory struct {
	voxels, mm []float32
	grid       [18]float64
	matrix     [12]float64
	points     [2][6]float64
}

func newMemory() *memory {
	m := &memory{
		voxels: []float32{0, 1, 2, 3, 4, 5, 6, 7}, mm: make([]float32, 24),
		grid:   [18]float64{2, 2, 2, 1, 2, 4, -1, -2, -3, 1, 0, 0, 0, 1, 0, 0, 0, 1},
		matrix: [12]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
		points: [2][6]float64{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}},
	}
	m.mm[3] = 2 // of the second voxel along x, whose spacing is 1 mm
	held = append(held, m)
	return m
}

// held keeps the memory where it is: what only addresses lead to may be moved, or freed.
var held []*memory

// filled returns text with the addresses in place of the names.
func (m *memory) filled(text string) string {
	addresses := []string{}
	for name, at := range map[string]unsafe.Pointer{
		"VOXELS": unsafe.Pointer(&m.voxels[0]), "MM": unsafe.Pointer(&m.mm[0]), "GRID": unsafe.Pointer(&m.grid),
		"MATRIX": unsafe.Pointer(&m.matrix), "POINTS": unsafe.Pointer(&m.points),
	} {
		addresses = append(addresses, name, fmt.Sprint(uintptr(at)))
	}
	return strings.NewReplacer(addresses...).Replace(text)
}

const image = `{"voxels": VOXELS, "grid": GRID}`

func TestParseReadsACall(t *testing.T) {
	m := newMemory()
	pair, options, err := Parse(m.filled(`{"fixed": ` + image + `, "moving": ` + image + `, "fixed_mask": null, "moving_mask": ` + image +
		`, "rigid": ` + image + `, "initial": MATRIX, "initial_field": {"voxels": MM, "grid": GRID},
		"channels": [{"name": "FLAIR", "weight": 0.5, "fixed": ` + image + `, "moving": ` + image + `}, {"labels": true}],
		"landmarks": {"at": POINTS, "count": 2}, "doubts": ["fixed: two places."], "options": {"threads": 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := volume.Geometry{
		Size: [3]int{2, 2, 2}, Spacing: [3]float64{1, 2, 4}, Origin: [3]float64{-1, -2, -3}, Direction: volume.Identity,
	}
	for name, v := range map[string]*volume.Volume{
		"fixed": pair.Fixed, "moving": pair.Moving, "moving mask": pair.MovingMask, "rigid": pair.Rigid,
		"channel, fixed": pair.Channels[0].Fixed, "channel, moving": pair.Channels[0].Moving,
	} {
		if v.Geometry != want || &v.Data[0] != &m.voxels[0] || len(v.Data) != 8 {
			t.Errorf("%s is %v, not the caller's voxels on their grid", name, v)
		}
	}
	if pair.FixedMask != nil || pair.Channels[1].Fixed != nil {
		t.Error("an image that was not given is there")
	}
	if got := *pair.Initial; got.M != [9]float64{1, 2, 3, 5, 6, 7, 9, 10, 11} || got.T != [3]float64{4, 8, 12} {
		t.Errorf("the matrix is %v", got)
	}
	if f := pair.InitialField; f.Geometry != want || f.X[1] != 2 || f.X[0] != 0 {
		t.Errorf("the field is %v", f)
	}
	if c := pair.Channels; c[0].Name != "FLAIR" || c[0].Weight != 0.5 || c[1].Name != "channel 3" || c[0].Labels || !c[1].Labels {
		t.Errorf("the channels are %+v", c)
	}
	if l := pair.Landmarks; len(l) != 2 || l[1].Fixed != [3]float64{7, 8, 9} || l[1].Moving != [3]float64{10, 11, 12} || l[1].Name != "" {
		t.Errorf("the landmarks are %+v", l)
	}
	if options.Threads != 3 || len(pair.Doubts) != 1 {
		t.Errorf("%d threads, doubts %q", options.Threads, pair.Doubts)
	}
}

func TestParseNamesTheFault(t *testing.T) {
	for _, c := range []struct {
		name, text string
		code       fault.Code
		words      string
	}{
		{"no JSON", `{"fixed": NaN}`, fault.InvalidArgument, "call to register cannot be read"},
		{"another member", `{"fixd": ` + image + `}`, fault.InvalidArgument, `"fixd"`},
		{"another member of an image", `{"fixed": {"pixels": VOXELS}}`, fault.InvalidArgument, `"pixels"`},
		{"an address below 0", `{"initial": -1}`, fault.InvalidArgument, "call to register cannot be read"},
		{"an unknown option", `{"options": {"refien": 1}}`, fault.InvalidArgument, `"refien"`},
		{"no grid", `{"fixed": {"voxels": VOXELS}}`, fault.EmptyVolume, "fixed volume"},
		{"no grid of a channel", `{"channels": [{"moving": {"voxels": VOXELS}}]}`, fault.EmptyVolume, "channel 2, moving volume"},
		{"no displacements", `{"initial_field": {"grid": GRID}}`, fault.InvalidArgument, "initial field"},
		{"fewer than no landmarks", `{"landmarks": {"at": POINTS, "count": -1}}`, fault.InvalidArgument, "-1 landmarks"},
		{"too many landmarks", `{"landmarks": {"at": POINTS, "count": 1048577}}`, fault.InvalidArgument, "1048577 landmarks"},
		{"no points", `{"landmarks": {"count": 2, "names": ["a", "b"]}}`, fault.InvalidArgument, "2 landmarks"},
		{"a name too few", `{"landmarks": {"at": POINTS, "count": 2, "names": ["a"]}}`, fault.InvalidArgument, "1 names are given for 2"},
		{"names alone", `{"landmarks": {"names": ["a"]}}`, fault.InvalidArgument, "1 names are given for 0"},
		{"an empty doubt", `{"doubts": ["fixed: two places.", ""]}`, fault.InvalidArgument, "doubt 2 is empty"},
	} {
		_, _, err := Parse(newMemory().filled(c.text))
		if fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v is %v, not %v with %q", c.name, err, fault.CodeOf(err), c.code, c.words)
		}
	}
}

// Whatever the text of a call, it is a pair or an error with a code. Texts with digits could be addresses, and are left
// out; the words stand for memory larger than any member reads, 0 but for the grid.
func FuzzParse(f *testing.F) {
	words := []string{"VOXELS", "MM", "GRID", "MATRIX", "POINTS"}
	const room = 32 // numbers
	arena := make([]float64, len(words)*room)
	copy(arena[2*room:], newMemory().grid[:])
	fill := []string{"COUNT", " 2 "} // spaces, for two words are no number
	for k, word := range words {
		fill = append(fill, word, fmt.Sprintf(" %d ", uintptr(unsafe.Pointer(&arena[k*room]))))
	}
	filler := strings.NewReplacer(fill...)
	for _, seed := range []string{
		`{"fixed": ` + image + `, "moving": ` + image + `, "initial": MATRIX, "initial_field": {"voxels": MM, "grid": GRID}}`,
		`{"channels": [{"name": "FLAIR", "weight": COUNT, "fixed": ` + image + `}, {"labels": true}], "doubts": ["said"]}`,
		`{"landmarks": {"at": POINTS, "count": COUNT, "names": ["a", "b"]}, "options": {"refine": COUNT, "search": "off"}}`,
		`{"fixed": {"voxels": GRID, "grid": VOXELS}, "initial": null}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "0123456789") {
			t.Skip("an address of the fuzzer's")
		}
		pair, options, err := Parse(filler.Replace(text))
		if err != nil {
			if code := fault.CodeOf(err); code == fault.OK || code == fault.Internal {
				t.Errorf("an error of the code %v: %v", code, err)
			}
			return
		}
		if err := options.Check(); err != nil {
			t.Errorf("options that were taken: %v", err)
		}
		for _, v := range []*volume.Volume{pair.Fixed, pair.Moving, pair.FixedMask, pair.MovingMask, pair.Rigid} {
			if v != nil && v.Data != nil && len(v.Data) != v.Voxels() {
				t.Errorf("%d values for %d voxels", len(v.Data), v.Voxels())
			}
		}
		if n := len(pair.Landmarks); n != 0 && n != 2 {
			t.Errorf("%d landmarks of 2", n)
		}
	})
	runtime.KeepAlive(arena)
}
