package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/option"
	"github.com/morphseek/morphseek/engine/internal/plan"
)

//go:generate go run ./internal/option/generate ..

// OptionSpec describes one option to other programs, as JSON.
type OptionSpec struct {
	Name    string   `json:"name"`
	Label   string   `json:"label"`
	Type    string   `json:"type"` // "string", "int", "float"
	Default any      `json:"default"`
	Choices []string `json:"choices,omitempty"`
	Prefix  string   `json:"prefix,omitempty"` // with choices: what begins with it is taken, too
	Number  string   `json:"number,omitempty"` // with choices: a number of this unit, from Min to Max, is taken, too, as text or as JSON's
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	Stage   string   `json:"stage,omitempty"` // that reads it; empty: several do
	Unset   bool     `json:"unset,omitempty"` // the default stands for no value
	Help    string   `json:"help"`
}

// OptionSpecs lists the options in their order.
func OptionSpecs() []OptionSpec { return slices.Clone(specs()) }

// specs are OptionSpecs, shared: read only.
var specs = sync.OnceValue(func() []OptionSpec {
	specs := make([]OptionSpec, len(option.Table))
	for i, o := range option.Table {
		s := OptionSpec{
			Name: o.Name, Label: o.Label, Type: o.Type(), Default: o.Default, Choices: o.Choices, Prefix: o.Prefix, Number: o.Number,
			Stage: o.Stage, Unset: o.Unset, Help: o.Help,
		}
		if o.Numeric() {
			s.Min = &o.Min
			if o.Max != 0 {
				s.Max = &o.Max
			}
		}
		specs[i] = s
	}
	return specs
})

// DefaultOptions returns every option at its default.
func DefaultOptions() (o Options) {
	for i, field := range o.fields() {
		set(field, option.Table[i].Default)
	}
	return o
}

// set writes a value of the table's to the option that field points to.
func set(field, value any) {
	switch f := field.(type) {
	case *string:
		*f = value.(string)
	case *int:
		*f = value.(int)
	case *uint64:
		*f = value.(uint64)
	case *float64:
		*f = value.(float64)
	}
}

// get reads the option that field points to.
func get(field any) any {
	switch f := field.(type) {
	case *string:
		return *f
	case *int:
		return *f
	case *uint64:
		return *f
	default:
		return *field.(*float64)
	}
}

// ParseOptions reads a JSON object of options over the defaults; true and false stand for "on" and "off" where an
// option has these choices, and a number stands for its text where an option takes both. Unknown names are errors: a
// misspelt option never passes silently.
func ParseOptions(text string) (Options, error) {
	o := DefaultOptions()
	if strings.TrimSpace(text) == "" {
		return o, nil
	}
	specs := specs()
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
		lowest := int64(*s.Min) // every whole number has a minimum
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
	for i, field := range o.fields() {
		s := specs()[i]
		var x float64
		switch v := get(field).(type) {
		case string:
			if !s.takes(v) {
				return fault.New(fault.InvalidArgument, "%s is %q; it must be %s", s.Name, v, s.kind())
			}
			continue
		case int:
			x = float64(v)
		case uint64:
			x = float64(v)
		case float64:
			x = v
		}
		if x != x || (s.Min != nil && x < *s.Min) || (s.Max != nil && x > *s.Max) {
			return fault.New(fault.InvalidArgument, "%s is %v; it must lie in %s", s.Name, get(field), s.span())
		}
	}
	return nil
}

// takes says whether a text is a value of the option.
func (s OptionSpec) takes(text string) bool {
	if s.Choices == nil || slices.Contains(s.Choices, text) || s.Prefix != "" && strings.HasPrefix(text, s.Prefix) {
		return true
	}
	x, err := strconv.ParseFloat(text, 64)
	return s.Number != "" && err == nil && x >= *s.Min && x <= *s.Max // NaN does not
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

// plan returns what the plan reads.
func (o Options) plan() plan.Options {
	return plan.Options{Preset: o.Preset, Similarity: o.Similarity, Smoothness: o.Smoothness, Refine: o.Refine}
}

// smoothness returns the word of the option smoothness or, with an empty word, its number of mm.
func (o Options) smoothness() (word string, mm float64) {
	if mm, err := strconv.ParseFloat(o.Smoothness, 64); err == nil {
		return "", mm
	}
	return o.Smoothness, 0
}

// optionsOf returns the names of the options that one stage alone reads.
func optionsOf(stage string) (names []string) {
	for _, o := range option.Table {
		if o.Stage == stage {
			names = append(names, o.Name)
		}
	}
	return names
}

// changed returns those of the named options that are not at their default.
func (o Options) changed(names ...string) (changed []string) {
	for i, field := range o.fields() {
		if d := option.Table[i]; slices.Contains(names, d.Name) && get(field) != d.Default {
			changed = append(changed, d.Name)
		}
	}
	return changed
}

// ofResult returns the options with those at their defaults that do not change the result.
func (o Options) ofResult() Options {
	for i, field := range o.fields() {
		if d := option.Table[i]; !d.Result {
			set(field, d.Default)
		}
	}
	return o
}

// locked returns the axes of a grid with the fixed image's axes, in their order in the file, that the option along
// locks.
func (o Options) locked() (locked [3]bool) {
	for a, axis := range []string{"i", "j", "k"} {
		locked[a] = o.Along != "all" && !strings.Contains(o.Along, axis)
	}
	return locked
}
