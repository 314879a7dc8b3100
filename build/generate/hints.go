package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// hintNames are the parameters, fields, variables and results that hold what a person is told to do.
var hintNames = []string{"hint", "advice", "change", "remedy", "advise"}

func isHint(name string) bool { return slices.Contains(hintNames, strings.ToLower(name)) }

// hint is one text that says what to do next; "{}" stands for what is filled in.
type hint struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// readHints finds the texts that core hands out as hints, by the names of parameters, fields, variables and results.
func readHints(root string) ([]byte, error) {
	r := &hintReader{params: map[string][]int{}, consts: map[string]string{}, funcs: map[string][]*ast.FuncDecl{}, found: map[hint]bool{}}
	files := map[string]*ast.File{}
	err := filepath.WalkDir(filepath.Join(root, "core"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		files[filepath.ToSlash(strings.TrimPrefix(path, filepath.Clean(root)+"/"))] = file
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the hints below %s: %w", filepath.Join(root, "core"), err)
	}
	for path, file := range files {
		r.index(filepath.Dir(path), file)
	}
	for path, file := range files {
		r.file, r.dir = path, filepath.Dir(path)
		r.read(file)
	}
	found := make([]hint, 0, len(r.found))
	for each := range r.found {
		found = append(found, each)
	}
	slices.SortFunc(found, func(a, b hint) int { return strings.Compare(a.File+"\x00"+a.Text, b.File+"\x00"+b.Text) })
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	lines.SetIndent("", " ")
	err = lines.Encode(found)
	return out.Bytes(), err
}

type hintReader struct {
	params    map[string][]int // where functions and types take hints, by name
	consts    map[string]string
	funcs     map[string][]*ast.FuncDecl
	found     map[hint]bool
	file, dir string
}

// index notes parameters and constants before anything is read.
func (r *hintReader) index(dir string, file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			r.indexLocals(dir, d)
			r.funcs[dir+"."+d.Name.Name] = append(r.funcs[dir+"."+d.Name.Name], d)
			r.params[d.Name.Name] = append(r.params[d.Name.Name], places(d.Type.Params)...)
			if d.Name.Name == "warn" { // warnings may say what to do, too
				r.params["warn"] = []int{0}
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				r.indexSpec(dir, spec)
			}
		}
	}
}

// indexLocals notes function values: wrong := func(hint, format string, …).
func (r *hintReader) indexLocals(dir string, f *ast.FuncDecl) {
	ast.Inspect(f, func(node ast.Node) bool {
		if n, ok := node.(*ast.AssignStmt); ok && len(n.Lhs) == len(n.Rhs) {
			for i, value := range n.Rhs {
				if literal, ok := value.(*ast.FuncLit); ok {
					name := dir + "." + lastName(n.Lhs[i])
					r.params[name] = append(r.params[name], places(literal.Type.Params)...)
				}
			}
		}
		return true
	})
}

func (r *hintReader) indexSpec(dir string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for i, value := range s.Values {
			if text, ok := r.text(value); ok {
				r.consts[dir+"."+s.Names[i].Name] = text
				r.consts[filepath.Base(dir)+":"+s.Names[i].Name] = text
			}
		}
	case *ast.TypeSpec:
		if fields, ok := s.Type.(*ast.StructType); ok {
			r.params["type "+s.Name.Name] = places(fields.Fields)
		}
	}
}

// places are the positions of fields that hold hints.
func places(fields *ast.FieldList) (found []int) {
	i := 0
	for _, field := range fields.List {
		for _, name := range field.Names {
			if isHint(name.Name) {
				found = append(found, i)
			}
			i++
		}
		if len(field.Names) == 0 {
			i++
		}
	}
	return found
}

func (r *hintReader) read(file *ast.File) {
	for _, decl := range file.Decls {
		scope, _ := decl.(*ast.FuncDecl)
		ast.Inspect(decl, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CallExpr:
				for _, i := range append(r.params[lastName(n.Fun)], r.params[r.dir+"."+lastName(n.Fun)]...) {
					if i < len(n.Args) {
						r.add(n.Args[i], scope)
					}
				}
			case *ast.KeyValueExpr:
				if isHint(lastName(n.Key)) {
					r.add(n.Value, scope)
				}
			case *ast.AssignStmt:
				r.readAssigned(n, scope)
			case *ast.ValueSpec:
				r.readDeclared(n, scope)
			case *ast.CompositeLit:
				r.readRows(n, scope)
			}
			return true
		})
		if scope != nil && scope.Type.Results != nil {
			r.readResults(scope, places(scope.Type.Results))
		}
	}
}

func (r *hintReader) readDeclared(n *ast.ValueSpec, scope *ast.FuncDecl) {
	for i, value := range n.Values {
		if !isHint(n.Names[i].Name) {
			continue
		}
		r.add(value, scope)
		if table, ok := value.(*ast.CompositeLit); ok {
			for _, row := range table.Elts {
				if pair, ok := row.(*ast.KeyValueExpr); ok {
					r.add(pair.Value, scope)
				}
			}
		}
	}
}

func (r *hintReader) readAssigned(n *ast.AssignStmt, scope *ast.FuncDecl) {
	for i, left := range n.Lhs {
		if isHint(lastName(left)) && len(n.Rhs) == len(n.Lhs) {
			r.add(n.Rhs[i], scope)
		}
	}
}

// readRows reads literals whose fields have no names: of a struct, or the rows of a table.
func (r *hintReader) readRows(n *ast.CompositeLit, scope *ast.FuncDecl) {
	var of []int
	rows := []ast.Expr{n}
	element := n.Type
	switch t := n.Type.(type) {
	case *ast.ArrayType:
		rows, element = n.Elts, t.Elt
	case *ast.MapType:
		rows, element = n.Elts, t.Value
	}
	switch t := element.(type) {
	case *ast.StructType:
		of = places(t.Fields)
	case *ast.Ident:
		of = r.params["type "+t.Name]
	}
	for _, row := range rows {
		if pair, ok := row.(*ast.KeyValueExpr); ok {
			row = pair.Value
		}
		if values, ok := row.(*ast.CompositeLit); ok {
			for _, i := range of {
				if i < len(values.Elts) {
					r.add(values.Elts[i], scope)
				}
			}
		}
	}
}

func (r *hintReader) readResults(f *ast.FuncDecl, results []int) {
	ast.Inspect(f, func(node ast.Node) bool {
		if n, ok := node.(*ast.ReturnStmt); ok {
			for _, i := range results {
				if i < len(n.Results) {
					r.add(n.Results[i], f)
				}
			}
		}
		_, inner := node.(*ast.FuncLit)
		return !inner
	})
}
