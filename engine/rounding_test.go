package engine

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNothingIsFused compiles the engine for a processor on which Go fuses products with the sums that they go into.
func TestNothingIsFused(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the engine for another processor")
	}
	const module = "github.com/morphseek/morphseek/..."
	build := exec.Command("go", "build", "-gcflags="+module+"=-S", ".")
	build.Env = append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=")
	listing, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n...%s", err, listing[max(0, len(listing)-2000):]) // the compiler's words come last
	}
	if !strings.Contains(string(listing), "interp.Trilinear") {
		t.Fatal("the listing does not hold the engine")
	}
	fused := regexp.MustCompile(`engine/([^():]+\.go:\d+)\)\tFN?M(?:ADD|SUB)[SD]\t`)
	lines := map[string]bool{}
	for _, m := range fused.FindAllStringSubmatch(string(listing), -1) {
		lines[m[1]] = true
	}
	if len(lines) > 0 {
		t.Errorf("a product is added without being rounded first; write float32(x*y) + z, or float64(x*y) + z, in\n%s",
			strings.Join(slices.Sorted(maps.Keys(lines)), "\n"))
	}
}
