package engine

import (
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

func TestDeviceOption(t *testing.T) {
	for value, ok := range map[string]bool{
		"auto": true, "cpu": true, "cuda": true, "tensorrt": true, "plugin:/opt/libprovider.so": true,
		"": false, "gpu": false, "plugin": false, "CUDA": false,
	} {
		t.Run(value, func(t *testing.T) {
			_, err := ParseOptions(`{"device": "` + value + `"}`)
			if ok != (err == nil) {
				t.Errorf("device %q: %v", value, err)
			}
			if !ok && (fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "tensorrt, plugin:...")) {
				t.Errorf("device %q: the message is %v", value, err)
			}
		})
	}
}

func TestSmoothnessOption(t *testing.T) {
	const kinds = "it must be one of auto, low, high or a number of mm in [0.1, 100]"
	for _, c := range []struct {
		json, read string
		mm         float64
	}{
		{`{}`, "auto", 0},
		{`{"smoothness": null}`, "auto", 0},
		{`{"smoothness": "low"}`, "low", 0},
		{`{"smoothness": "high"}`, "high", 0},
		{`{"smoothness": "2.50"}`, "2.5", 2.5},
		{`{"smoothness": 2.50 }`, "2.5", 2.5},
		{`{"smoothness": 1e2}`, "100", 100},
		{`{"smoothness": "0.1"}`, "0.1", 0.1},
	} {
		o, err := ParseOptions(c.json)
		if mm := o.plan().Width(); err != nil || o.Smoothness != c.read || mm != c.mm {
			t.Errorf("%s: read as %q, %g mm, %v", c.json, o.Smoothness, mm, err)
		}
	}
	for json, want := range map[string]string{
		`{"smoothness": "foo"}`:  `smoothness is "foo"; ` + kinds,
		`{"smoothness": ""}`:     `smoothness is ""; ` + kinds,
		`{"smoothness": "2 mm"}`: `smoothness is "2 mm"; ` + kinds,
		`{"smoothness": "NaN"}`:  `smoothness is "NaN"; ` + kinds,
		`{"smoothness": "inf"}`:  `smoothness is "inf"; ` + kinds,
		`{"smoothness": 0}`:      `smoothness is "0"; ` + kinds,
		`{"smoothness": 100.01}`: `smoothness is "100.01"; ` + kinds,
		`{"smoothness": 1e999}`:  `smoothness is given as number; ` + kinds,
		`{"smoothness": true}`:   `smoothness is given as bool; ` + kinds,
		`{"smoothness": [2]}`:    `smoothness is given as array; ` + kinds,
	} {
		testkit.Refused(ParseOptions(json))(t, fault.InvalidArgument, want)
	}
	o := DefaultOptions()
	o.Smoothness = "0.05" // as C gives it
	testkit.Fails(t, o.Check(), fault.InvalidArgument, kinds)
}

func TestOptionsOfAnotherType(t *testing.T) {
	for text, want := range map[string]string{
		`{"cache": false}`:        "cache is given as bool; it must be text",
		`{"threads": "two"}`:      "threads is given as string; it must be a whole number from 0 to 1024",
		`{"refine": 1.5}`:         "refine is given as number 1.5; it must be a whole number from -1 to 1000",
		`{"tau": [1]}`:            "tau is given as array; it must be a number",
		`{"search": 1}`:           "search is given as number; it must be one of auto, on, off",
		`{"similarity": true}`:    "similarity is given as bool; it must be one of auto, ncc, ",
		`{"device": 1}`:           "device is given as number; it must be one of auto, cpu, cuda, tensorrt, plugin:...",
		`{"refin": 20}`:           "unknown option \"refin\"",
		`{"search": true, "x":1}`: "unknown option \"x\"",
		`{"STEPS": 2}`:            "unknown option \"STEPS\"",
		`{"steps": 1}{"steps":2}`: "cannot be read as JSON",
		`{"steps": 1} x`:          "cannot be read as JSON",
		`[1]`:                     "cannot be read as JSON",
		`{"seed": -1}`:            "seed is given as number -1; it must be a whole number from 0",
	} {
		_, err := ParseOptions(text)
		testkit.Fails(t, err, fault.InvalidArgument, want)
	}
	o, err := ParseOptions(`{"search": false, "uncertainty": true, "threads": 2}`)
	if err != nil || o.Search != "off" || o.Uncertainty != "on" || o.Threads != 2 {
		t.Errorf("switches by true and false: %+v, %v", o, err)
	}
}
