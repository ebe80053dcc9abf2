package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/cpu"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// A registration gives the same bits on a processor without vectors.
func TestResultByVectorsMatchesLoops(t *testing.T) {
	if !cpu.AVX() {
		t.Skip("no vectors on this processor")
	}
	for _, otherContrast := range []bool{false, true} {
		t.Run(fmt.Sprintf("another contrast %v", otherContrast), func(t *testing.T) {
			fixed, moving, _ := testkit.Phantom(28, 2, otherContrast)
			got, want := cpu.Both(func() *Result {
				return register(t, open(t, Config{}), Pair{Fixed: fixed, Moving: moving}, with(func(o *Options) {
					o.Initial, o.Search, o.Refine = "affine", "on", 10
				}))
			})
			if got.Initial != want.Initial || !slices.Equal(got.Field.Data, want.Field.Data) || !slices.Equal(got.Warped.Data, want.Warped.Data) {
				t.Errorf("other contrast %v: results differ", otherContrast)
			}
		})
	}
}
