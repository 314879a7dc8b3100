package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/api"
)

// contract is what the operations take and return.
type contract struct {
	Operations []operation
	Records    []record // the structs that those hold, by name

	docs  comments
	types map[string]reflect.Type // of the records, by name
	err   error
}

type operation struct {
	Name, Comment     string
	Arguments         []field
	Attached          string // what the bytes behind the request's zero byte are
	Result            string // its type
	ResultHasBytesToo bool
}

type record struct {
	Name, Comment string
	Fields        []field
}

type field struct{ Name, Type, Comment string }

// written are types with a JSON of their own.
var written = map[string]string{
	"api.traceRef":    "integer | string", // a handle, or the content of a trace file in base64
	"runlog.Column":   "list of number | null",
	"json.RawMessage": "any",
}

func readContract(root string) (*contract, error) {
	docs, err := readComments(root)
	if err != nil {
		return nil, err
	}
	c := &contract{docs: docs, types: map[string]reflect.Type{}}
	for _, o := range api.Operations() {
		if docs[o.Function] == "" {
			c.fail("operation %s: %s needs a comment", o.Name, o.Function)
		}
		c.Operations = append(c.Operations, operation{
			Name: o.Name, Comment: docs[o.Function], Arguments: c.fields(o.Args),
			Attached: c.attached(o.Args),
			Result:   c.typeOf(o.Result), ResultHasBytesToo: o.Attaches,
		})
	}
	slices.SortFunc(c.Records, func(a, b record) int { return strings.Compare(a.Name, b.Name) })
	return c, c.err
}

func (c *contract) fail(format string, values ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, values...)
	}
}

// fields are those of a struct's JSON, described.
func (c *contract) fields(t reflect.Type) (fields []field) {
	for _, f := range jsonFields(t) {
		if f.name == "" {
			c.fail("%s needs a JSON name", f.path)
		}
		fields = append(fields, field{f.name, c.typeOf(f.Type), c.docs[f.path]})
	}
	return fields
}

// jsonField is a field of a struct's JSON, by its names there and in comments.
type jsonField struct {
	reflect.StructField
	name, path string
}

// jsonFields are those of a struct, embedded structs taken apart as encoding/json does.
func jsonFields(t reflect.Type) (all []jsonField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			all = append(all, jsonFields(f.Type)...)
		default:
			all = append(all, jsonField{f, name, path(t) + "." + f.Name})
		}
	}
	return all
}

// attached is the comment of the method that reads what is attached to the arguments, their own or
// of what they embed.
func (c *contract) attached(args reflect.Type) string {
	if doc := c.docs[path(args)+".attach"]; doc != "" {
		return doc
	}
	for i := range args.NumField() {
		if f := args.Field(i); f.Anonymous {
			if doc := c.attached(f.Type); doc != "" {
				return doc
			}
		}
	}
	return ""
}

// typeOf names a type in JSON: "list of number | null" is a list whose elements are numbers or
// null. Lists and objects without entries may be null.
func (c *contract) typeOf(t reflect.Type) string {
	if name, ok := written[t.String()]; ok {
		return name
	}
	switch kind := t.Kind(); {
	case t.Implements(reflect.TypeFor[json.Marshaler]()) ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		c.fail("%s writes its own JSON: tell of it in `written`", t)
	case kind == reflect.Bool:
		return "boolean"
	case kind >= reflect.Int && kind <= reflect.Uintptr:
		return "integer"
	case kind == reflect.Float32 || kind == reflect.Float64:
		return "number"
	case kind == reflect.String || t == reflect.TypeFor[[]byte](): // bytes in base64
		return "string"
	case kind == reflect.Interface:
		return "any"
	case kind == reflect.Pointer:
		return c.typeOf(t.Elem()) + " | null"
	case kind == reflect.Slice || kind == reflect.Array:
		return "list of " + c.typeOf(t.Elem())
	case kind == reflect.Map:
		return "object of " + c.typeOf(t.Elem())
	case kind == reflect.Struct:
		return c.record(t)
	default:
		c.fail("%s has no JSON", t)
	}
	return ""
}

func (c *contract) record(t reflect.Type) string {
	if t.NumField() == 0 {
		return "nothing"
	}
	if c.types[t.String()] == nil {
		c.types[t.String()] = t
		c.Records = append(c.Records, record{t.String(), c.docs[path(t)], c.fields(t)})
	}
	return t.String()
}
