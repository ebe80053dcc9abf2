package engine

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine/internal/testkit"
)

// layers are the packages of the engine and its bridges from the bottom up: a package imports those of lower layers
// alone. No stage imports another, nor the referee that judges them, and it none of them.
var layers = [][]string{
	{"engine/fault", "engine/internal/cpu", "engine/internal/parallel", "engine/internal/option"},
	{
		"engine/volume", "engine/internal/filter", "engine/internal/interp", "engine/internal/memory",
		"engine/internal/option/generate",
	},
	{"engine/internal/bias", "engine/internal/mind", "engine/internal/moments"},
	{"engine/epi", "engine/field", "engine/metric", "engine/internal/network", "engine/internal/landmark"},
	{"engine/internal/snapshot", "engine/internal/aligned", "engine/internal/bodies"},
	{"engine/internal/blocks"},
	{"engine/internal/search", "engine/internal/refine", "engine/internal/align", "engine/internal/referee"},
	{"engine/internal/plan"},
	{"engine"},
	{"bridge/internal/wire"},
	{"bridge/capi", "bridge/gopy"},
}

// helpers are for tests alone.
var helpers = []string{"engine/internal/guard", "engine/internal/testkit"}

func TestImports(t *testing.T) {
	const module = "github.com/morphseek/morphseek/"
	const each = `{{.ImportPath}} {{join .Imports " "}}`
	listed := testkit.Must(exec.Command("go", "list", "-f", each, "../engine/...", "../bridge/...").Output())(t)
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
			if ours && layer(to) >= layer(from) {
				t.Errorf("%s imports %s, which is of no lower layer", from, to)
			}
			if ours && slices.Contains(helpers, to) {
				t.Errorf("%s imports %s, which is for tests", from, to)
			}
		}
	}
}

// The files of this package use each other in one direction: none is part of a circle but the face, engine.go and
// register.go.
func TestFilesFormNoCircle(t *testing.T) {
	long(t)
	t.Parallel()
	files := token.NewFileSet()
	names := testkit.Must(filepath.Glob("*.go"))(t)
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := testkit.Must(parser.ParseFile(files, name, nil, 0))(t)
		parsed = append(parsed, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	out := testkit.Must(exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".").Output())(t)
	compiled := map[string]string{} // which is quicker to read than the sources
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		compiled[name] = file
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
	check := types.Config{Importer: importer.ForCompiler(files, "gc", open), Error: func(error) {}} // of other platforms' twins
	pkg, _ := check.Check("engine", files, parsed, info)
	uses := map[string]map[string]bool{}
	for id, o := range info.Uses {
		f, isFunc := o.(*types.Func)
		if o.Pkg() != pkg || o.Parent() != pkg.Scope() && (!isFunc || f.Signature().Recv() == nil) {
			continue
		}
		from, to := files.Position(id.Pos()).Filename, files.Position(o.Pos()).Filename
		if from == "register.go" && to == "engine.go" {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]bool{}
		}
		uses[from][to] = from != to
	}
	if len(uses) < 20 {
		t.Errorf("%d files use another", len(uses))
	}
	for len(uses) > 0 { // each round takes away what uses nothing that is left
		before := len(uses)
		for file, others := range uses {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(others)), func(to string) bool { return others[to] && uses[to] != nil }) {
				delete(uses, file)
			}
		}
		if len(uses) == before {
			t.Fatalf("files in a circle, or that use one: %v", slices.Sorted(maps.Keys(uses)))
		}
	}
}

// What decides reads the facts of a state, never what was noted for the report: outside notes.go, and finish.go which makes the report, the
// notes' metrics are written alone.
func TestNotesAreNotRead(t *testing.T) {
	written := regexp.MustCompile(`^\s*(e\.notes|n|run\.notes)\.metrics\.\w+(\.\w+)* = `)
	names := testkit.Must(filepath.Glob("*.go"))(t)
	lines := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "notes.go" || name == "finish.go" || name == "register.go" {
			continue
		}
		text := testkit.Must(os.ReadFile(name))(t)
		for line := range strings.Lines(string(text)) {
			if !regexp.MustCompile(`(notes|\bn)\.metrics\b`).MatchString(line) {
				continue
			}
			if lines++; !written.MatchString(line) {
				t.Errorf("%s reads the notes: %s", name, line)
			}
		}
	}
	if lines == 0 {
		t.Error("no file writes the notes' metrics: is this test looking for another name?")
	}
}

// Whoever shows progress knows every stage's name.
func TestStagesAreListed(t *testing.T) {
	names := []string{"reverse", "uncertainty", "finish"}
	for _, s := range stages {
		names = append(names, s.name)
	}
	for _, path := range []string{"result.go", "../bridge/capi/include/morphseek.h", "../slicer/MorphSeek/MorphSeekLib/request.py"} {
		text := testkit.Must(os.ReadFile(path))(t)
		for _, name := range names {
			if !strings.Contains(string(text), strconv.Quote(name)) {
				t.Errorf("%s does not name the stage %q", path, name)
			}
		}
	}
}
