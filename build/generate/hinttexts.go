package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// add takes the texts that an expression may be: a literal, a variable's values, a function's results.
func (r *hintReader) add(e ast.Expr, scope *ast.FuncDecl) {
	if text, ok := r.text(e); ok {
		if strings.Trim(text, "{} ") != "" && !strings.HasPrefix(text, ",") { // not the end of another one
			r.found[hint{r.file, text}] = true
		}
		return
	}
	switch x := e.(type) {
	case *ast.Ident:
		if scope != nil && !isHint(x.Name) {
			r.addVariable(x.Name, scope)
		}
	case *ast.CallExpr:
		for _, f := range r.funcs[r.dir+"."+lastName(x.Fun)] {
			r.readResults(f, []int{0})
		}
	}
}

func (r *hintReader) addVariable(name string, scope *ast.FuncDecl) {
	ast.Inspect(scope, func(node ast.Node) bool {
		if n, ok := node.(*ast.AssignStmt); ok && len(n.Lhs) == len(n.Rhs) {
			for i, left := range n.Lhs {
				if lastName(left) != name {
					continue
				}
				if text, ok := r.text(n.Rhs[i]); ok {
					r.found[hint{r.file, text}] = true
				}
			}
		}
		return true
	})
}

var verb = regexp.MustCompile(`%[-+# 0]*[\d.*]*[a-zA-Z]`)

// text is a text whose parts are known, with "{}" for the others; false where nothing of it is.
func (r *hintReader) text(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, err == nil && x.Kind == token.STRING
	case *ast.Ident:
		text, ok := r.consts[r.dir+"."+x.Name]
		return text, ok
	case *ast.SelectorExpr:
		text, ok := r.consts[lastName(x.X)+":"+x.Sel.Name]
		return text, ok
	case *ast.BinaryExpr:
		left, known := r.text(x.X)
		right, also := r.text(x.Y)
		if x.Op != token.ADD || !known && !also {
			return "", false
		}
		return or(left, known) + or(right, also), true
	case *ast.CallExpr:
		if lastName(x.Fun) == "Sprintf" {
			text, ok := r.text(x.Args[0])
			return strings.ReplaceAll(verb.ReplaceAllString(text, "{}"), "%%", "%"), ok
		}
	}
	return "", false
}

func or(text string, known bool) string {
	if known {
		return text
	}
	return "{}"
}

func lastName(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}
