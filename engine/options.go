package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
)

// Options says how to register one pair. The struct tags are the only place where names, defaults, ranges and help texts
// live: DefaultOptions, Check and OptionSpecs read them, and through those every skin does.
type Options struct {
	Preset       string  `json:"preset" default:"default" choices:"fast|default|best" help:"How much work to spend: fast, default or best. Options set explicitly override it."`
	Model        string  `json:"model" default:"default" help:"Model bundle: a built-in name, a path to a .onnx bundle, 'default' (chosen by the library) or 'none' (no network)."`
	Initial      string  `json:"initial" default:"affine" choices:"none|com|rigid|affine" help:"Initial alignment found before the deformable stages; an initial transform that is given is where rigid and affine start, and stays as it is with none and com."`
	Search       string  `json:"search" default:"auto" choices:"auto|on|off" help:"Discrete search for large displacements after the initial alignment; auto searches where no network runs and a smooth fit does not find the match."`
	Steps        int     `json:"steps" default:"0" min:"0" max:"16" help:"Network steps T; 0 takes the number that the model was trained with."`
	Trajectories int     `json:"trajectories" default:"1" min:"1" max:"64" help:"Latent trajectories J per step; the best by the label-free reward is kept, the mean always among them."`
	Tau          float64 `json:"tau" default:"1" min:"0" max:"100" help:"Temperature of the latent samples when trajectories > 1."`
	Refine       int     `json:"refine" default:"-1" min:"-1" max:"1000" help:"Gradient iterations on the pair at hand at the finest resolution, twice as many at each coarser one; 0 switches them off, -1 leaves it to the preset (off after a network)."`
	Similarity   string  `json:"similarity" default:"auto" choices:"auto|ncc|mse|mind" help:"Similarity for the refinement; auto takes ncc for one modality and mind for two, by the joint histogram and by how the contrast between the images varies from place to place. With mind the search compares no intensities."`
	Device       string  `json:"device" default:"auto" choices:"auto|cpu|cuda|tensorrt" prefix:"plugin:" help:"Where networks run; auto takes cuda where it is to be had, else the CPU, and says so. plugin:PATH runs them on an ONNX Runtime plugin provider's library."`
	Threads      int     `json:"threads" default:"0" min:"0" max:"1024" help:"CPU threads; 0 uses every core."`
	Seed         uint64  `json:"seed" default:"0" min:"0" help:"Seed of every random draw."`
	Cache        string  `json:"cache" default:"" help:"Folder that keeps finished results: the same inputs and options are not computed twice; empty computes always."`
	Uncertainty  string  `json:"uncertainty" default:"off" choices:"off|on" help:"Also give the standard deviation of the displacement at every voxel, mm: over trajectories of the network's policy (16, or as many as the option says) or, where no network runs, from the search's costs of other displacements, whether or not it ran. Takes about as long as that stage, the network's once a trajectory."`
	Smoothness   string  `json:"smoothness" default:"auto" choices:"auto|low|high" number:"mm" min:"0.1" max:"100" help:"Over which distance tissue moves together, in the search and the refinement: low follows fine detail, as between two people; high keeps tissue together, as within one; auto chooses from the images; or a number of mm."`
}

// OptionSpec describes one option to a skin.
type OptionSpec struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"` // "string", "int", "float"
	Default any      `json:"default"`
	Choices []string `json:"choices,omitempty"`
	Prefix  string   `json:"prefix,omitempty"` // with choices: what begins with it is taken, too
	Number  string   `json:"number,omitempty"` // with choices: a number of this unit, from Min to Max, is taken, too, as text or as JSON's
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	Help    string   `json:"help"`
}

// OptionSpecs lists the options in their order, from the struct tags.
func OptionSpecs() []OptionSpec {
	t := reflect.TypeFor[Options]()
	specs := make([]OptionSpec, t.NumField())
	for i := range specs {
		f := t.Field(i)
		s := OptionSpec{Name: f.Tag.Get("json"), Prefix: f.Tag.Get("prefix"), Number: f.Tag.Get("number"), Help: f.Tag.Get("help")}
		if c := f.Tag.Get("choices"); c != "" {
			s.Choices = strings.Split(c, "|")
		}
		def := f.Tag.Get("default")
		switch f.Type.Kind() {
		case reflect.String:
			s.Type, s.Default = "string", def
		case reflect.Float64:
			s.Type, s.Default = "float", mustFloat(def)
		default:
			s.Type, s.Default = "int", int64(mustFloat(def))
		}
		if m, ok := f.Tag.Lookup("min"); ok {
			v := mustFloat(m)
			s.Min = &v
		}
		if m, ok := f.Tag.Lookup("max"); ok {
			v := mustFloat(m)
			s.Max = &v
		}
		specs[i] = s
	}
	return specs
}

func mustFloat(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("engine: bad option tag " + s)
	}
	return v
}

// DefaultOptions returns every option at its default.
func DefaultOptions() Options {
	var o Options
	v := reflect.ValueOf(&o).Elem()
	for i, s := range OptionSpecs() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(s.Default.(string))
		case reflect.Float64:
			f.SetFloat(s.Default.(float64))
		case reflect.Uint64:
			f.SetUint(uint64(s.Default.(int64)))
		default:
			f.SetInt(s.Default.(int64))
		}
	}
	return o
}

// ParseOptions reads a JSON object of options over the defaults; true and false stand for "on" and "off" where an option has these
// choices, and a number stands for its text where an option takes both. Unknown names are errors: a misspelt option never passes silently.
func ParseOptions(text string) (Options, error) {
	o := DefaultOptions()
	if strings.TrimSpace(text) == "" {
		return o, nil
	}
	specs := OptionSpecs()
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	known := strings.Join(names, ", ")
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return o, fault.Wrap(fault.InvalidArgument, err, "options cannot be read as JSON (known: %s)", known)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.Index(names, name) // encoding/json would take another case for the same
		if i < 0 {
			return o, fault.New(fault.InvalidArgument, "unknown option %q (known: %s)", name, known)
		}
		value, isSwitch := map[string]string{"true": "on", "false": "off"}[string(given[name])]
		if isSwitch && slices.Contains(specs[i].Choices, value) {
			given[name] = json.RawMessage(strconv.Quote(value))
		}
		if text := strings.TrimSpace(string(given[name])); specs[i].Number != "" && text != "null" {
			if value, err := strconv.ParseFloat(strings.Trim(text, `"`), 64); err == nil && !math.IsInf(value, 0) && !math.IsNaN(value) {
				given[name] = json.RawMessage(strconv.Quote(plainNumber(value))) // 2.50 is 2.5, as text too
			}
		}
	}
	checked, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(checked, &o)
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if i := slices.Index(names, wrong.Field); i >= 0 {
			return o, fault.New(fault.InvalidArgument, "%s is given as %s; it must be %s", wrong.Field, wrong.Value, specs[i].kind())
		}
	}
	if err != nil {
		return o, fault.Wrap(fault.InvalidArgument, err, "options cannot be read (known: %s)", known)
	}
	return o, o.Check()
}

// kind says in words what values the option takes.
func (s OptionSpec) kind() string {
	switch {
	case s.Choices != nil:
		choices := strings.Join(s.Choices, ", ")
		if s.Prefix != "" {
			choices += ", " + s.Prefix + "..."
		}
		if s.Number != "" {
			choices += " or a number of " + s.Number + " in " + s.span()
		}
		return "one of " + choices
	case s.Type == "int":
		lowest := int64(*s.Min) // every whole number has one
		if s.Max == nil {
			return fmt.Sprintf("a whole number from %d", lowest)
		}
		return fmt.Sprintf("a whole number from %d to %d", lowest, int64(*s.Max))
	case s.Type == "float":
		return "a number"
	}
	return "text"
}

// Check reports the first option outside its range.
func (o Options) Check() error {
	v := reflect.ValueOf(o)
	for i, s := range OptionSpecs() {
		f := v.Field(i)
		if f.Kind() == reflect.String {
			text := f.String()
			known := s.Choices == nil || slices.Contains(s.Choices, text) || s.Prefix != "" && strings.HasPrefix(text, s.Prefix)
			if !known && s.Number != "" {
				x, err := strconv.ParseFloat(text, 64)
				known = err == nil && x >= *s.Min && x <= *s.Max // NaN does not
			}
			if !known {
				return fault.New(fault.InvalidArgument, "%s is %q; it must be %s", s.Name, text, s.kind())
			}
			continue
		}
		x, _ := strconv.ParseFloat(fmt.Sprint(f.Interface()), 64)
		if x != x || (s.Min != nil && x < *s.Min) || (s.Max != nil && x > *s.Max) {
			return fault.New(fault.InvalidArgument, "%s is %v; it must lie in %s", s.Name, f.Interface(), s.span())
		}
	}
	return nil
}

func (s OptionSpec) span() string {
	lo, hi := "-inf", "inf"
	if s.Min != nil {
		lo = plainNumber(*s.Min)
	}
	if s.Max != nil {
		hi = plainNumber(*s.Max)
	}
	return "[" + lo + ", " + hi + "]"
}

// plainNumber is the shortest text of a number.
func plainNumber(x float64) string {
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// smoothness returns the word of the option smoothness or, with an empty word, its number of mm.
func (o Options) smoothness() (word string, mm float64) {
	if mm, err := strconv.ParseFloat(o.Smoothness, 64); err == nil {
		return "", mm
	}
	return o.Smoothness, 0
}

// changed returns those of the named options that are not at their default.
func (o Options) changed(names ...string) (changed []string) {
	v, d := reflect.ValueOf(o), reflect.ValueOf(DefaultOptions())
	for i, s := range OptionSpecs() {
		if slices.Contains(names, s.Name) && !v.Field(i).Equal(d.Field(i)) {
			changed = append(changed, s.Name)
		}
	}
	return changed
}
