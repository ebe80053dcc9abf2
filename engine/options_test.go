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
