package cpu

import (
	"fmt"
	"runtime"
	"testing"
)

func TestDisable(t *testing.T) {
	before := has
	restore := Disable()
	if AVX() || AVX2() {
		t.Error("a feature is still in use")
	}
	if restore(); has != before {
		t.Errorf("restored %+v, want %+v", has, before)
	}
}

func TestFeatures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		if found := Features(); len(found) != 0 {
			t.Errorf("%v on %s", found, runtime.GOARCH)
		}
		return
	}
	want := map[string]func() bool{"AVX": AVX, "AVX2": AVX2}
	for _, hidden := range []bool{false, true} {
		t.Run(fmt.Sprintf("hidden %v", hidden), func(t *testing.T) {
			if hidden {
				defer Disable()()
			}
			found := Features()
			if len(found) != len(want) {
				t.Errorf("%d features, want %d", len(found), len(want))
			}
			for _, f := range found {
				if used := want[f.Name]; used == nil || f.Used != used() {
					t.Errorf("%+v, hidden: %v", f, hidden)
				}
			}
		})
	}
}
