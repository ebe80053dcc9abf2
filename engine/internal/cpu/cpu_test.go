package cpu

import "testing"

func TestDisable(t *testing.T) {
	before := has
	restore := Disable()
	if AVX() || AVX2() || AVX512Popcount() {
		t.Error("a feature is still in use")
	}
	if restore(); has != before {
		t.Errorf("restored %+v, want %+v", has, before)
	}
}
