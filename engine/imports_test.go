package engine

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers are the packages of the engine and its bridges from the bottom up: a package imports those of lower layers alone. No stage
// imports another, nor the referee that judges them, and it none of them.
var layers = [][]string{
	{"engine/fault", "engine/internal/box", "engine/internal/cpu", "engine/internal/parallel", "engine/internal/option", "engine/internal/policy"},
	{"engine/volume", "engine/internal/filter", "engine/internal/interp", "engine/internal/option/generate"},
	{"engine/field", "engine/metric", "engine/internal/network", "engine/internal/landmark"},
	{"engine/internal/snapshot", "engine/internal/aligned", "engine/internal/bodies"},
	{"engine/internal/search", "engine/internal/refine", "engine/internal/align", "engine/internal/referee", "engine/internal/epi"},
	{"engine"},
	{"bridge/capi", "bridge/gopy"},
}

// sideways are imports within a layer that are still there.
var sideways = map[string]string{"engine/internal/align": "engine/internal/search"} // for the block matches that its consensus is of

// helpers are for tests alone.
var helpers = []string{"engine/internal/golden", "engine/internal/guard", "engine/internal/testort", "engine/internal/testpair"}

func TestImports(t *testing.T) {
	const module = "github.com/morphseek/morphseek/"
	listed, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "../engine/...", "../bridge/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	layer := func(name string) int {
		return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, name) })
	}
	for line := range strings.Lines(string(listed)) {
		paths := strings.Fields(line)
		from := strings.TrimPrefix(paths[0], module)
		if slices.Contains(helpers, from) {
			continue
		}
		if layer(from) < 0 {
			t.Errorf("%s belongs to no layer", from)
		}
		for _, path := range paths[1:] {
			to, ours := strings.CutPrefix(path, module)
			if ours && layer(to) >= layer(from) && sideways[from] != to {
				t.Errorf("%s imports %s, which is of no lower layer", from, to)
			}
			if ours && slices.Contains(helpers, to) {
				t.Errorf("%s imports %s, which is for tests", from, to)
			}
		}
	}
}
