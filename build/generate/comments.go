package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

const module = "github.com/asrconfig/asrconfig-go/"

// comments are those of types, functions, methods and fields, by the names that reflection has for
// them, as in "<path of the package>.Type.Field". Go's way to begin with the name is taken off:
// "Stats is the newest" is "The newest".
type comments map[string]string

func readComments(root string) (comments, error) {
	texts, files := comments{}, token.NewFileSet()
	return texts, filepath.WalkDir(filepath.Join(root, "core"),
		func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") ||
				strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil,
				parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			for _, declared := range file.Decls {
				texts.add(module+filepath.ToSlash(folder)+".", declared)
			}
			return nil
		})
}

func (c comments) add(in string, declared ast.Decl) {
	switch d := declared.(type) {
	case *ast.FuncDecl:
		c[in+receiver(d)+d.Name.Name] = sentence(d.Name.Name, d.Doc)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if t, is := spec.(*ast.TypeSpec); is {
				c[in+t.Name.Name] = sentence(t.Name.Name, t.Doc, d.Doc)
				c.addFields(in+t.Name.Name+".", t.Type)
			}
		}
	}
}

func (c comments) addFields(in string, typ ast.Expr) {
	structure, is := typ.(*ast.StructType)
	if !is {
		return
	}
	for _, f := range structure.Fields.List {
		for _, name := range f.Names {
			c[in+name.Name] = oneLine(name.Name, f.Comment, f.Doc)
		}
	}
}

// receiver is the type of a method with a point behind it.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if pointer, is := t.(*ast.StarExpr); is {
		t = pointer.X
	}
	if name, is := t.(*ast.Ident); is {
		return name.Name + "."
	}
	return "?." // of a generic type: no name of reflection is like it
}

func sentence(name string, groups ...*ast.CommentGroup) string {
	return capitalized(oneLine(name, groups...))
}

func capitalized(text string) string {
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// oneLine is the first comment that there is.
func oneLine(name string, groups ...*ast.CommentGroup) string {
	for _, group := range groups {
		if words := strings.Fields(group.Text()); len(words) > 0 {
			return strings.Join(without(words, name), " ")
		}
	}
	return ""
}

func without(words []string, name string) []string {
	if len(words) > 1 && words[0] == name {
		words = words[1:]
		if len(words) > 1 && (words[0] == "is" || words[0] == "are") {
			words = words[1:]
		}
	}
	return words
}
