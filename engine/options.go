package engine

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/option"
	"github.com/morphseek/morphseek/engine/internal/plan"
)

//go:generate go run ./internal/option/generate ..

// OptionSpec describes one option to other programs, as JSON.
type OptionSpec = option.Spec

// OptionSpecs lists the options in their order.
func OptionSpecs() []OptionSpec { return option.Specs(option.Table) }

// specs are OptionSpecs, shared: read only.
var specs = OptionSpecs()

// DefaultOptions returns every option at its default.
func DefaultOptions() (o Options) {
	for i, field := range o.fields() {
		set(field, option.Table[i].Default)
	}
	return o
}

// set writes a value of the table's to the option that field points to.
func set(field, value any) { reflect.ValueOf(field).Elem().Set(reflect.ValueOf(value)) }

// get reads the option that field points to.
func get(field any) any { return reflect.ValueOf(field).Elem().Interface() }

// ParseOptions reads a JSON object of options over the defaults; true and false stand for "on" and "off" where an
// option has these choices, and a number stands for its text where an option takes both. Unknown names are errors: a
// misspelt option never passes silently.
func ParseOptions(text string) (Options, error) {
	o := DefaultOptions()
	if strings.TrimSpace(text) == "" {
		return o, nil
	}
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
				given[name] = json.RawMessage(strconv.Quote(option.Number(value))) // 2.50 is 2.5, as text too
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
			return o, fault.New(fault.InvalidArgument, "%s is given as %s; it must be %s", wrong.Field, wrong.Value, specs[i].Kind())
		}
	}
	if err != nil {
		return o, fault.Wrap(fault.InvalidArgument, err, "options cannot be read (known: %s)", known)
	}
	return o, o.Check()
}

// Check reports the first option outside its range.
func (o Options) Check() error {
	for i, field := range o.fields() {
		s := specs[i]
		v := get(field)
		if text, ok := v.(string); ok {
			if !s.Takes(text) {
				return fault.New(fault.InvalidArgument, "%s is %q; it must be %s", s.Name, text, s.Kind())
			}
			continue
		}
		x := reflect.ValueOf(v).Convert(reflect.TypeFor[float64]()).Float()
		if x != x || (s.Min != nil && x < *s.Min) || (s.Max != nil && x > *s.Max) {
			return fault.New(fault.InvalidArgument, "%s is %v; it must lie in %s", s.Name, v, s.Span())
		}
	}
	return nil
}

// plan returns what the plan reads.
func (o Options) plan() plan.Options {
	return plan.Options{Preset: o.Preset, Similarity: o.Similarity, Smoothness: o.Smoothness, Refine: o.Refine}
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
