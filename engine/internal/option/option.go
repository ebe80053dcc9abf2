// Package option is the one table of what a registration can be told. Package engine reads it at run time; what other languages need
// at compile time is written from it by `go generate ./engine`. To add an option, append it to Table.
package option

import "slices"

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

// Type is that of the default in the engine's JSON: "string", "int" or "float".
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

// Numeric says whether Min and Max hold for it.
func (o Option) Numeric() bool { return o.Type() != "string" || o.Number != "" }
