package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/option"
	"github.com/morphseek/morphseek/engine/internal/testkit"
)

const root = "../../../.."

func TestFilesAreCurrent(t *testing.T) {
	stale := testkit.Must(generate(root, option.Table))(t)
	for path := range stale {
		t.Errorf("%s is stale: run go generate ./engine", path)
	}
}

// TestOneEditIsAnOption appends an option to the table in a scratch copy, and likewise a metric, generates, and looks for both in every
// front end.
func TestOneEditIsAnOption(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the engine in a scratch copy")
	}
	scratch := t.TempDir()
	for _, o := range outputs {
		copyFile(t, filepath.Join(root, o.path), filepath.Join(scratch, o.path))
	}
	for _, path := range []string{"go.mod", "go.sum"} {
		copyFile(t, filepath.Join(root, path), filepath.Join(scratch, path))
	}
	err := filepath.WalkDir(filepath.Join(root, "engine"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Name() == "testdata" {
			return filepath.SkipDir
		}
		if err == nil && !entry.IsDir() && !strings.HasSuffix(path, "_test.go") {
			relative, _ := filepath.Rel(root, path)
			copyFile(t, path, filepath.Join(scratch, relative))
		}
		return err
	})
	testkit.OK(t, err)

	table := filepath.Join(scratch, "engine/internal/option/table.go")
	text := testkit.Must(os.ReadFile(table))(t)
	end := strings.LastIndex(string(text), "}")
	edited := string(text[:end]) + "\t{Name: \"half_bar\", Label: \"Half bar\", Default: \"off\", Choices: []string{\"off\", \"on\"}, Since: \"9.9\", Help: \"Bars.\"},\n" +
		"\t{Name: \"half_baz\", Label: \"Half baz\", Default: 0, Unset: true, Since: \"9.9\", Help: \"Bazs.\"},\n" +
		"\t{Name: \"half_foo\", Label: \"Half foo\", Default: 7, Min: 3, Max: 9, Since: \"9.9\", Help: \"Foos, <halved>.\"},\n}\n"
	testkit.OK(t, os.WriteFile(table, []byte(edited), 0o600))
	metrics := filepath.Join(scratch, metricsFile)
	text, err = os.ReadFile(metrics)
	testkit.OK(t, err)
	edited = strings.Replace(string(text), "type Metrics struct {\n", "type Metrics struct {\n\tFooMM []float64 `json:\"foo_mm\"` // foos, \"bar\"\n", 1)
	testkit.OK(t, os.WriteFile(metrics, []byte(edited), 0o600))
	check := filepath.Join(scratch, "engine", "scratch_test.go")
	if err := os.WriteFile(check, []byte(`package engine

import "testing"

func TestScratch(t *testing.T) {
	specs := OptionSpecs()
	s := specs[len(specs)-1]
	if s.Name != "half_foo" || s.Label != "Half foo" || s.Default != 7 || *s.Min != 3 || *s.Max != 9 || s.Type != "int" {
		t.Errorf("specs end with %+v", s)
	}
	if o := DefaultOptions(); o.HalfFoo != 7 || o.Check() != nil {
		t.Errorf("defaults %+v", o)
	}
	if o, err := ParseOptions("{\"half_foo\": 8}"); err != nil || o.HalfFoo != 8 {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := ParseOptions("{\"half_foo\": 10}"); err == nil {
		t.Error("10 is taken")
	}
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = scratch
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	holds := func(path, want string) {
		t.Helper()
		got := testkit.Must(os.ReadFile(filepath.Join(scratch, path)))(t)
		if !strings.Contains(string(got), want) {
			t.Errorf("%s holds no %q", path, want)
		}
	}
	run("go", "generate", "./engine")
	run("go", "test", "-run", "TestScratch", "./engine")
	for path, want := range map[string]string{
		"engine/options_gen.go":                     "HalfFoo int `json:\"half_foo\"`",
		"bridge/capi/include/morphseek.h":           "  int32_t half_foo;\n  /* end of options */\n} ms_options;",
		"bridge/capi/test/layout.c":                 "  MEMBER(ms_options, half_foo);\n",
		"plugin/include/itkMorphSeekOptions.h":      "  X(HalfFoo, half_foo, int)\n",
		"plugin/cli/MorphSeekRegistration.xml":      "<longflag>half-foo</longflag>\n      <label>Half foo</label>\n      <description>Foos, &lt;halved&gt;.</description>\n      <default>7</default>",
		"python/src/morphseek/_engine/generated.py": "    half_bar: bool | None\n    \"\"\"Bars.\"\"\"\n    half_baz: int | None\n    \"\"\"Bazs.\"\"\"\n    half_foo: int | None\n    \"\"\"Foos, <halved>.\"\"\"\n",
		"python/docs/options.md":                    "| `half_foo` | Foos, &lt;halved&gt;. | a whole number from 3 to 9 | `7` |  | 9.9 |\n",
	} {
		holds(path, want)
	}
	holds("python/docs/options.md", "Bazs. | a whole number from 0 | `0`; in Python `None` |")
	holds("bridge/capi/include/morphseek.h", " *   \"foo_mm\": foos, \"bar\"\n")
	holds("python/src/morphseek/_engine/metrics.py", "    # foos, \"bar\"\n    foo_mm: list[float]\n")
	holds("python/docs/metrics.md", "| `foo_mm` | foos, \"bar\" |\n")
	if cc, err := exec.LookPath("cc"); err == nil {
		run(cc, "-fsyntax-only", "-Wall", "-Werror", "-Ibridge/capi/include", "bridge/capi/test/layout.c")
	}
}

func TestMarkersMustBeThere(t *testing.T) {
	write := part("# options", func(tables, string) string { return "x\n" })
	for now, want := range map[string]string{
		"a\n  # options: written by go generate from engine/internal/option/table.go\n  old\n  # end of options\nb\n": "a\n  # options: written by go generate from engine/internal/option/table.go\nx\n  # end of options\nb\n",
		"a\n# options: written by go generate from engine/internal/option/table.go\n":                                 "",
		"a\n# end of options\n": "",
	} {
		if got, err := write(tables{}, now); got != want || (err == nil) != (want != "") {
			t.Errorf("%q becomes %q, %v", now, got, err)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text := testkit.Must(os.ReadFile(from))(t)
	testkit.OK(t, os.MkdirAll(filepath.Dir(to), 0o700))
	testkit.OK(t, os.WriteFile(to, text, 0o600))
}
