// Package option is the one table of what a registration can be told. Package engine reads it at run time; what other languages need
// at compile time is written from it by `go generate ./engine`. To add an option, append it to Table.
package option

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Option declares one option.
type Option struct {
	Name    string   // snake_case: the JSON key, ms_options' member, the command line's flag
	Label   string   // its name for people
	Help    string   // sentences
	Default any      // string, int, uint64 or float64: fixes the type
	Choices []string // of a string; nil: any text
	Prefix  string   // with choices: what begins with it is taken, too
	Number  string   // with choices: a number of this unit, from Min to Max, is taken, too, as text or as JSON's
	Path    bool     // the text may be a path
	Min     float64  // of a number
	Max     float64  // of a number; 0: none
	Stage   string   // that reads it; "": several do
	Since   string   // the version that brought it
	Unset   bool     // the default stands for no value: None in Python, an option left out in the command
	Result  bool     // it may change the result
}

// Type returns the type of the default in the engine's JSON: "string", "int" or "float".
func (o Option) Type() string {
	switch o.Default.(type) {
	case string:
		return "string"
	case float64:
		return "float"
	}
	return "int"
}

// Switch says whether "on" and "off" are among its choices: True and False in Python.
func (o Option) Switch() bool {
	return slices.Contains(o.Choices, "on") && slices.Contains(o.Choices, "off")
}

// Spec describes an option to other programs, as JSON.
type Spec struct {
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

// Specs describes options in their order.
func Specs(options []Option) []Spec {
	specs := make([]Spec, len(options))
	for i, o := range options {
		specs[i] = Spec{
			Name: o.Name, Label: o.Label, Type: o.Type(), Default: o.Default, Choices: o.Choices, Prefix: o.Prefix, Number: o.Number,
			Stage: o.Stage, Unset: o.Unset, Help: o.Help,
		}
		if o.Type() != "string" || o.Number != "" {
			specs[i].Min = &o.Min
			if o.Max != 0 {
				specs[i].Max = &o.Max
			}
		}
	}
	return specs
}

// Kind says in words what values the option takes.
func (s Spec) Kind() string {
	switch {
	case s.Choices != nil:
		choices := strings.Join(s.Choices, ", ")
		if s.Prefix != "" {
			choices += ", " + s.Prefix + "..."
		}
		if s.Number != "" {
			choices += " or a number of " + s.Number + " in " + s.Span()
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

// Takes says whether a text is a value of the option.
func (s Spec) Takes(text string) bool {
	if s.Choices == nil || slices.Contains(s.Choices, text) || s.Prefix != "" && strings.HasPrefix(text, s.Prefix) {
		return true
	}
	x, err := strconv.ParseFloat(text, 64)
	return s.Number != "" && err == nil && x >= *s.Min && x <= *s.Max // NaN does not
}

// Span says in words from where to where its number lies.
func (s Spec) Span() string {
	lo, hi := "-inf", "inf"
	if s.Min != nil {
		lo = Number(*s.Min)
	}
	if s.Max != nil {
		hi = Number(*s.Max)
	}
	return "[" + lo + ", " + hi + "]"
}

// Number returns the shortest text of a number.
func Number(x float64) string {
	return strconv.FormatFloat(x, 'g', -1, 64)
}
