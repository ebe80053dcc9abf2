package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/morphseek/morphseek/engine"
	"github.com/morphseek/morphseek/engine/fault"
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
	for _, grade := range []string{engine.Good, engine.Check, engine.Failed} {
		if !strings.Contains(described, `"`+grade+`"`) {
			t.Errorf("the header says nothing of the grade %q", grade)
		}
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
	declared := regexp.MustCompile(`(?m)^(?:ms_status|const char \*)\s?(ms_\w+)\(`).FindAllStringSubmatch(header(t), -1)
	for _, m := range declared {
		if !exported[m[1]] {
			t.Errorf("%s is declared, and no Go function exports it", m[1])
		}
		delete(exported, m[1])
	}
	for name := range exported {
		t.Errorf("%s is exported, and the header does not declare it", name)
	}
}
