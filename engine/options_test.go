package engine

import (
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/fault"
)

func TestDeviceOption(t *testing.T) {
	for value, ok := range map[string]bool{
		"auto": true, "cpu": true, "cuda": true, "tensorrt": true, "plugin:/opt/libprovider.so": true,
		"": false, "gpu": false, "plugin": false, "CUDA": false,
	} {
		_, err := ParseOptions(`{"device": "` + value + `"}`)
		if ok != (err == nil) {
			t.Errorf("device %q: %v", value, err)
		}
		if !ok && (fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "tensorrt, plugin:...")) {
			t.Errorf("device %q: the message is %v", value, err)
		}
	}
}

func TestOptionsOfAnotherType(t *testing.T) {
	for text, want := range map[string]string{
		`{"cache": false}`:        "cache is given as bool; it must be text",
		`{"threads": "two"}`:      "threads is given as string; it must be a whole number from 0 to 1024",
		`{"refine": 1.5}`:         "refine is given as number 1.5; it must be a whole number from -1 to 1000",
		`{"tau": [1]}`:            "tau is given as array; it must be a number",
		`{"search": 1}`:           "search is given as number; it must be one of auto, on, off",
		`{"similarity": true}`:    "similarity is given as bool; it must be one of auto, ncc, mse, mind",
		`{"refin": 20}`:           "unknown option \"refin\"",
		`{"search": true, "x":1}`: "unknown option \"x\"",
		`{"STEPS": 2}`:            "unknown option \"STEPS\"",
		`{"steps": 1}{"steps":2}`: "cannot be read as JSON",
		`{"steps": 1} x`:          "cannot be read as JSON",
		`[1]`:                     "cannot be read as JSON",
		`{"seed": -1}`:            "seed is given as number -1; it must be a whole number from 0",
	} {
		_, err := ParseOptions(text)
		if fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	o, err := ParseOptions(`{"search": false, "uncertainty": true, "threads": 2}`)
	if err != nil || o.Search != "off" || o.Uncertainty != "on" || o.Threads != 2 {
		t.Errorf("switches by true and false: %+v, %v", o, err)
	}
}
