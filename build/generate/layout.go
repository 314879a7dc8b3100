package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/doc"
	"reflect"
	"strings"
	"text/template"

	"github.com/asrconfig/asrconfig-go/core/api"
)

//go:embed layout.h.tmpl
var headerText string

//go:embed layout.py.tmpl
var ctypesText string

// layout is what crosses the C boundary in memory.
type layout struct {
	Constants  []api.Constant
	StepKinds  []string
	Structures []structure
}

type structure struct {
	Name, CName, Comment string
	Size                 uintptr
	Fields               []cField
}

type cField struct {
	api.CField
	Comment string
}

func readLayout(docs comments) layout {
	out := layout{Constants: api.Constants, StepKinds: api.StepKinds}
	for _, t := range api.Structures {
		s := structure{Name: t.Name(), CName: api.CName(t), Size: t.Size(), Comment: docs[path(t)]}
		for i, f := range api.CFields(t) {
			s.Fields = append(s.Fields, cField{f, docs[path(t)+"."+t.Field(i).Name]})
		}
		out.Structures = append(out.Structures, s)
	}
	return out
}

// path is a type's name in comments.
func path(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// InPython is the field's type in ctypes.
func (f cField) InPython() string {
	names := map[string]string{"uint64_t": "c_uint64", "int64_t": "c_int64",
		"intptr_t": "c_ssize_t", "double": "c_double", "bool": "c_bool"}
	name := "ctypes." + names[f.Type]
	for _, t := range api.Structures {
		if f.Type == api.CName(t) {
			name = t.Name()
		}
	}
	if f.Count > 0 {
		name += fmt.Sprintf(" * %d", f.Count)
	}
	return name
}

func fill(text string, data any) ([]byte, error) {
	functions := template.FuncMap{"upper": strings.ToUpper, "synopsis": new(doc.Package).Synopsis,
		"cell": cell, "docstring": docstring}
	parsed, err := template.New("").Funcs(functions).Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, data)
	return out.Bytes(), err
}
