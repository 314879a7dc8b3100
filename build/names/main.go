// Command names lists variables, parameters and results whose name does not say what they hold, and
// fails when they are more than one in a hundred.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// vague names fit any value: a count, a row and a path can all be found, known or left.
var vague = strings.Fields(`asked at by each found given held here how kept known least left met
	most now of rest said seen shown some taken told what whole why`)

// declared returns the names that a statement or a function's type declares.
func declared(node ast.Node) (names []ast.Expr) {
	switch n := node.(type) {
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			names = n.Lhs
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			names = []ast.Expr{n.Key, n.Value}
		}
	case *ast.FuncType:
		fields := n.Params.List
		if n.Results != nil {
			fields = append(slices.Clone(fields), n.Results.List...)
		}
		for _, field := range fields {
			for _, name := range field.Names {
				names = append(names, name)
			}
		}
	}
	return names
}

func main() {
	total, places, files := 0, []string{}, token.NewFileSet()
	read := func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			for _, e := range declared(node) {
				if name, ok := e.(*ast.Ident); ok && name.Name != "_" {
					total++
					if slices.Contains(vague, name.Name) {
						places = append(places,
							fmt.Sprint(files.Position(name.Pos()), ": ", name.Name))
					}
				}
			}
			return true
		})
		return nil
	}
	for _, root := range os.Args[1:] {
		if err := filepath.WalkDir(root, read); err != nil {
			log.Fatal(err)
		}
	}
	if 100*len(places) > total {
		fmt.Println(strings.Join(places, "\n"))
		log.Fatalf("%d of %d names do not say what they hold, over 1 %%", len(places), total)
	}
}
