package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/bridge/internal/wire"
	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
	"github.com/morphseek/morphseek/engine/field"
	"github.com/morphseek/morphseek/engine/volume"
)

// The header is written by hand but for two parts; these hold it to the tables of the engine.

func header(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("include/morphseek.h")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestHeaderListsEveryFault(t *testing.T) {
	want := []string{"MS_OK = 0"}
	for _, info := range fault.Table {
		want = append(want, fmt.Sprintf("MS_ERR_%s = %d", strings.ToUpper(info.Name), info.Code))
	}
	got := regexp.MustCompile(`MS_(OK|ERR_\w+) = \d+`).FindAllString(header(t), -1)
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("the header has\n%s\nand fault.Table\n%s", g, w)
	}
}

func TestOptionsStructMirrorsEngineOptions(t *testing.T) {
	types := map[string]string{"const char *": "string", "int32_t ": "int", "uint64_t ": "int", "double ": "float"}
	body := regexp.MustCompile(`(?s)typedef struct ms_options \{\n  size_t size;\n(.*?)\} ms_options;`).FindStringSubmatch(header(t))
	if body == nil {
		t.Fatal("no struct ms_options in the header")
	}
	var got, want []string
	for _, m := range regexp.MustCompile(`(?m)^  (const char \*|\w+ )(\w+);`).FindAllStringSubmatch(body[1], -1) {
		got = append(got, m[2]+" "+types[m[1]])
	}
	for _, s := range engine.OptionSpecs() {
		want = append(want, s.Name+" "+s.Type)
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("ms_options has\n%s\nand engine.Options\n%s", g, w)
	}
	if len(optionMembers) != len(want) {
		t.Errorf("cgo sees %d options, the engine has %d", len(optionMembers), len(want))
	}
}

// What ms_result_metrics writes is described there, down to the members of the verdict and the referee.
func TestHeaderDescribesTheMetrics(t *testing.T) {
	described := regexp.MustCompile(`(?s)Writes a JSON object of the metrics:.*?\*/`).FindString(header(t))
	for _, of := range []any{engine.Metrics{}, engine.Verdict{}, engine.RefereeMetrics{}, engine.PlanMetrics{}} {
		for i, members := 0, reflect.TypeOf(of); i < members.NumField(); i++ {
			if name := members.Field(i).Tag.Get("json"); !strings.Contains(described, `"`+name+`"`) {
				t.Errorf("the header says nothing of the member %q of %T", name, of)
			}
		}
	}
	for i, grade := range []string{engine.Good, engine.Check, engine.Failed} {
		t.Run(grade, func(t *testing.T) {
			if !strings.Contains(described, `"`+grade+`"`) {
				t.Errorf("the header says nothing of the grade %q", grade)
			}
			enumerator := fmt.Sprintf("MS_%s = %d", strings.ToUpper(grade), i+1)
			if !strings.Contains(header(t), enumerator) || int(grades[grade]) != i+1 {
				t.Errorf("the grade %q is %d, and %s must be in the header", grade, grades[grade], enumerator)
			}
		})
	}
}

func TestHeaderDeclaresWhatIsExported(t *testing.T) {
	exported := map[string]bool{}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^//export (\w+)$`).FindAllStringSubmatch(string(text), -1) {
			exported[m[1]] = true
		}
	}
	declared := regexp.MustCompile(`(?m)^(?:ms_status|const char \*|int)\s?(ms_\w+)\(`).FindAllStringSubmatch(header(t), -1)
	for _, m := range declared {
		if !exported[m[1]] {
			t.Errorf("%s is declared, and no Go function exports it", m[1])
		}
		delete(exported, m[1])
	}
	for name := range exported {
		t.Run(name, func(t *testing.T) {
			t.Errorf("%s is exported, and the header does not declare it", name)
		})
	}
}

// What is listed above a function is what it returns: every code of the lists is brought about, here or in test/failures.c, and no
// case here ends in another.
func TestHeaderListsTheFailuresOfAFunction(t *testing.T) {
	text := header(t)
	elsewhere, err := os.ReadFile("test/failures.c")
	if err != nil {
		t.Fatal(err)
	}
	listed := func(function string) (codes []string) {
		end := strings.Index(text, "ms_status "+function+"(")
		if end < 0 {
			t.Fatalf("the header does not declare %s", function)
		}
		above := text[strings.LastIndex(text[:end], "/*"):end]
		for _, line := range regexp.MustCompile(`(?m)^ \*   MS_ERR_.*$`).FindAllString(above, -1) {
			for _, code := range regexp.MustCompile(`MS_ERR_[A-Z_]+\*?`).FindAllString(line, -1) {
				if family, all := strings.CutSuffix(code, "*"); all {
					codes = append(codes, regexp.MustCompile(family+"[A-Z_]+").FindAllString(text, -1)...)
					continue
				}
				codes = append(codes, code)
			}
		}
		return codes
	}
	returned := map[string][]string{}
	for _, c := range failures(t) {
		t.Run(c.function+"/"+c.name, func(t *testing.T) {
			err := c.call()
			code := "MS_ERR_" + strings.ToUpper(fault.CodeOf(err).String())
			if err == nil {
				t.Fatal("does not fail")
			}
			returned[c.function] = append(returned[c.function], code)
			allowed := listed(c.function)
			if c.function == "ms_register_pair" {
				allowed = append(allowed, listed("ms_register")...)
			}
			if !slices.Contains(allowed, code) {
				t.Errorf("%s is not listed above %s: %v", code, c.function, err)
			}
		})
	}
	for function, codes := range returned {
		t.Run(function, func(t *testing.T) {
			for _, code := range listed(function) {
				if code == "MS_ERR_RUNTIME_FAILED" { // takes a damaged ONNX Runtime
					continue
				}
				if !slices.Contains(codes, code) && !strings.Contains(string(elsewhere), code) {
					t.Errorf("%s is listed above %s, and nothing brings it about", code, function)
				}
			}
		})
	}
}

// failure is a call as a function of the header makes it, which fails.
type failure struct {
	function, name string
	call           func() error
}

// failures are the ways to fail that need nothing around the program.
func failures(t *testing.T) []failure {
	grid := volume.Geometry{Size: [3]int{12, 12, 12}, Spacing: [3]float64{1, 1, 1}, Direction: volume.Identity}
	with := func(g volume.Geometry, value func(i int) float32) *wire.Image {
		data := make([]float32, 3*12*12*12) // the displacements of a field, too
		for i := range data {
			data[i] = value(i)
		}
		return &wire.Image{Geometry: g, Voxels: wire.At[float32]{To: &data[0]}}
	}
	image := func(g volume.Geometry) *wire.Image { return with(g, func(i int) float32 { return float32(i % 7) }) }
	labels := func(first float32) *wire.Image {
		return with(grid, func(i int) float32 {
			if i == 0 {
				return first
			}
			return 0
		})
	}
	same := func(value float32) *wire.Image { return with(grid, func(int) float32 { return value }) }
	nan := float32(math.NaN())
	flat, away, still, singular := grid, grid, grid, grid
	flat.Size[2], away.Origin[0], still.Spacing[1], singular.Direction = 1, 500, 0, [9]float64{}
	matrix := func(scale, x float64) wire.At[[12]float64] {
		return wire.At[[12]float64]{To: &[12]float64{scale, 0, 0, x, 0, 1, 0, 0, 0, 0, 1, 0}}
	}
	points := wire.Landmarks{At: wire.At[[6]float64]{To: &[6]float64{3: 900}}, Count: 1}

	register := func(config engine.Config, set func(*wire.Pair, *engine.Options), progress engine.ProgressFunc) error {
		e, err := engine.Open(config)
		if err != nil {
			return err
		}
		defer e.Close()
		given, o := wire.Pair{Fixed: image(grid), Moving: image(grid)}, engine.DefaultOptions()
		o.Initial, o.Search, o.Refine, o.LandmarkError, o.Model = "none", "off", 0, 1, "none"
		set(&given, &o)
		pair, err := given.Engine(1)
		if err != nil {
			return err
		}
		_, err = e.Register(t.Context(), pair, o, progress)
		return err
	}
	var all []failure
	pair := func(function, name string, set func(*wire.Pair)) {
		all = append(all, failure{function, name, func() error {
			return register(engine.Config{}, func(p *wire.Pair, _ *engine.Options) { set(p) }, nil)
		}})
	}
	for _, c := range []struct {
		name   string
		moving *wire.Image
	}{
		{"missing", nil}, {"without voxels", &wire.Image{Geometry: grid}}, {"no numbers", same(nan)}, {"constant", same(7)},
		{"a slice beside a volume", image(flat)}, {"no spacing", image(still)}, {"no direction", image(singular)}, {"elsewhere", image(away)},
	} {
		pair("ms_register", c.name, func(p *wire.Pair) { p.Moving = c.moving })
	}
	for _, c := range []struct {
		name string
		set  func(*wire.Pair)
	}{
		{"a mask of nothing", func(p *wire.Pair) { p.FixedMask = same(0) }},
		{"a mask elsewhere", func(p *wire.Pair) { p.MovingMask = image(away) }},
		{"a singular transform", func(p *wire.Pair) { p.Initial = matrix(0, 0) }},
		{"a transform that leads away", func(p *wire.Pair) { p.Initial = matrix(1, 500) }},
		{"a field elsewhere", func(p *wire.Pair) { p.InitialField = with(away, func(int) float32 { return 0 }) }},
		{"a field of no numbers", func(p *wire.Pair) { p.InitialField = same(nan) }},
		{"a field without displacements", func(p *wire.Pair) { p.InitialField = &wire.Image{Geometry: grid} }},
		{"rigid regions without a label", func(p *wire.Pair) { p.Rigid = labels(0) }},
		{"rigid regions that are no labels", func(p *wire.Pair) { p.Rigid = labels(0.5) }},
		{"rigid regions elsewhere", func(p *wire.Pair) { p.Rigid = image(away) }},
		{"a channel elsewhere", func(p *wire.Pair) { p.Channels = []wire.Channel{{Fixed: image(away), Moving: image(grid)}} }},
		{"a channel's weight", func(p *wire.Pair) { p.Channels = []wire.Channel{{Fixed: image(grid), Moving: image(grid), Weight: -1}} }},
		{"a channel of one side", func(p *wire.Pair) { p.Channels = []wire.Channel{{Fixed: image(grid)}} }},
		{"label maps without a label in common", func(p *wire.Pair) {
			p.Channels = []wire.Channel{{Fixed: labels(1), Moving: labels(2), Labels: true}}
		}},
		{"a landmark far outside", func(p *wire.Pair) { p.Landmarks = points }},
		{"landmarks that are not there", func(p *wire.Pair) { p.Landmarks.Count = 3 }},
		{"an empty doubt", func(p *wire.Pair) { p.Doubts = []string{"fixed: two places.", ""} }},
	} {
		pair("ms_register_pair", c.name, c.set)
	}

	broken := filepath.Join(t.TempDir(), "broken.onnx")
	if err := os.WriteFile(broken, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	const bundles = "../../engine/internal/network/testdata/"
	e, err := engine.Open(engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"/no/such.onnx", broken, bundles + "external.onnx"} {
		name := filepath.Base(model)
		all = append(all, failure{"ms_model_verify", name, func() error { _, err := e.VerifyModel(model); return err }})
		all = append(all, failure{"ms_register", name, func() error {
			return register(engine.Config{}, func(_ *wire.Pair, o *engine.Options) { o.Model = model }, nil)
		}})
	}
	identity := &engine.Transform{Field: field.New(grid), Initial: volume.IdentityAffine(), Moving: grid}
	mirror := *identity
	mirror.Initial.M[0] = -1
	result := &engine.Result{Transform: *identity, Warped: volume.Zeros(grid)}
	all = append(all,
		failure{"ms_register", "cancelled", func() error {
			return register(engine.Config{}, func(*wire.Pair, *engine.Options) {}, func(engine.Progress) bool { return false })
		}},
		failure{"ms_register", "no ONNX Runtime", func() error {
			return register(engine.Config{RuntimeLibrary: "/no/such.so"}, func(_ *wire.Pair, o *engine.Options) { o.Model = bundles + "tiny.onnx" }, nil)
		}},
		failure{"ms_result_halfway", "a mirror", func() error { _, _, err := mirror.Halfway(); return err }},
		failure{"ms_result_save", "no folder", func() error { return result.Save("/no/such/folder/result") }},
		failure{"ms_result_load", "no file", func() error { _, err := engine.LoadResult("/no/such"); return err }},
		failure{"ms_result_load", "another file", func() error { _, err := engine.LoadResult(broken); return err }},
	)
	for name, input := range map[string]*wire.Image{
		"nothing": nil, "a line": {Geometry: volume.Geometry{Size: [3]int{1, 1, 9}}}, "no spacing": image(still), "no direction": image(singular),
	} {
		all = append(all, failure{"ms_result_apply", name, func() error {
			v, err := input.Volume("input")
			if err != nil {
				return err
			}
			_, err = identity.Warp(v, volume.Linear, 0)
			return err
		}})
	}
	return all
}
