package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// metricsFile declares the metrics: its structs are their table, the first one the whole.
const metricsFile = "engine/metrics.go"

// object is a struct of the metrics.
type object struct {
	name    string // in Go
	help    string
	members []member
}

// member is one of its fields.
type member struct {
	name, help string   // in JSON
	kind       ast.Expr // its type in Go
}

// readMetrics returns the structs of the metrics below root, the whole first.
func readMetrics(root string) ([]object, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, metricsFile), nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, d := range parsed.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		spec := g.Specs[0].(*ast.TypeSpec)
		o := object{name: spec.Name.Name, help: strings.Join(strings.Fields(g.Doc.Text()), " ")}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			tag, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				return nil, err
			}
			m := member{reflect.StructTag(tag).Get("json"), strings.TrimSpace(f.Comment.Text()), f.Type}
			if m.name == "" || m.help == "" {
				return nil, fmt.Errorf("%s: %s.%s has no name in JSON or no comment behind it", metricsFile, o.name, f.Names[0].Name)
			}
			o.members = append(o.members, m)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// inner returns the object that a type is or holds; nil where it is none.
func inner(objects []object, kind ast.Expr) *object {
	switch k := kind.(type) {
	case *ast.StarExpr:
		return inner(objects, k.X)
	case *ast.ArrayType:
		return inner(objects, k.Elt)
	case *ast.Ident:
		for i := range objects {
			if objects[i].name == k.Name {
				return &objects[i]
			}
		}
	}
	return nil
}

// cMetrics is the list of the members in the comment of ms_result_metrics.
func cMetrics(t tables, indent string) string {
	const width = 124
	var b strings.Builder
	var list func(o object, depth string)
	list = func(o object, depth string) {
		for _, m := range o.members {
			head := fmt.Sprintf("%s* %s%q: ", indent, depth, m.name)
			for _, line := range wrap(m.help, width-len(head)) {
				b.WriteString(head + line + "\n")
				head = fmt.Sprintf("%s* %s%s", indent, depth, strings.Repeat(" ", len(m.name)+4))
			}
			if in := inner(t.metrics, m.kind); in != nil {
				list(*in, depth+"  ")
			}
		}
	}
	list(t.metrics[0], "  ")
	return b.String()
}

// pythonMetrics is a module of TypedDicts.
func pythonMetrics(t tables, _ string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "\"\"\"The metrics as types. %s\"\"\"\n\nfrom __future__ import annotations\n\nfrom typing import TypedDict\n", noticeOf(metricsFile))
	for _, o := range t.metrics {
		fmt.Fprintf(&b, "\n\nclass %s(TypedDict):\n", o.name)
		docstring(&b, o.help)
		b.WriteString("\n")
		for _, m := range o.members {
			for _, line := range wrap(m.help, 94) {
				fmt.Fprintf(&b, "    # %s\n", line)
			}
			fmt.Fprintf(&b, "    %s: %s\n", m.name, pythonKind(m.kind))
		}
	}
	return b.String(), nil
}

// docstring writes the text that tells of a class or of an option.
func docstring(b *strings.Builder, text string) {
	lines := wrap(`"""`+text, 96)
	if len(lines) == 1 && utf8.RuneCountInString(lines[0]) <= 93 {
		fmt.Fprintf(b, "    %s\"\"\"\n", lines[0])
		return
	}
	for _, line := range lines {
		fmt.Fprintf(b, "    %s\n", line)
	}
	b.WriteString("    \"\"\"\n")
}

func pythonKind(kind ast.Expr) string {
	switch k := kind.(type) {
	case *ast.StarExpr:
		return pythonKind(k.X) + " | None"
	case *ast.ArrayType:
		return "list[" + pythonKind(k.Elt) + "]"
	case *ast.MapType:
		return "dict[" + pythonKind(k.Key) + ", " + pythonKind(k.Value) + "]"
	case *ast.Ident:
		if name, ok := map[string]string{"string": "str", "float64": "float", "bool": "bool", "int": "int", "int64": "int", "uint64": "int"}[k.Name]; ok {
			return name
		}
		return k.Name
	}
	panic(fmt.Sprintf("no type in Python for %T", kind))
}

// metricsPage is python/docs/metrics.md.
func metricsPage(t tables, _ string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Metrics\n\n<!-- %s -->\n\n", noticeOf(metricsFile))
	b.WriteString("What a registration says of itself: `result.metrics` in Python, report.json, `ms_result_metrics` in C, `GetMetrics` of the ITK filter. " +
		"Later versions add members. `a.b` is the member b of the object a, or of each object in the list a.\n\n| member | |\n|---|---|\n")
	var rows func(o object, name string)
	rows = func(o object, name string) {
		for _, m := range o.members {
			in := inner(t.metrics, m.kind)
			help := m.help
			if in != nil {
				help += ". " + strings.Replace(in.help, in.name, "It", 1)
			}
			fmt.Fprintf(&b, "| `%s%s` | %s |\n", name, m.name, cell(help))
			if in != nil {
				rows(*in, name+m.name+".")
			}
		}
	}
	rows(t.metrics[0], "")
	return b.String(), nil
}
