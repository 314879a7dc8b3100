package api

import (
	"maps"
	"reflect"
	"runtime"
	"slices"
)

// Operation is a row of the table, as the reference of the operations shows it.
type Operation struct {
	Name     string
	Function string       // whose comment says what it does: its package's path and its name
	Args     reflect.Type // a struct
	Result   reflect.Type
	Attaches bool // the answer has bytes behind its JSON
}

// Operations are all, by name.
func Operations() []Operation {
	var found []Operation
	for _, name := range slices.Sorted(maps.Keys(table)) {
		found = append(found, describe(name, reflect.ValueOf(table[name].function)))
	}
	return found
}

func describe(name string, function reflect.Value) Operation {
	f := function.Type()
	o := Operation{Name: name, Function: runtime.FuncForPC(function.Pointer()).Name(), Args: reflect.TypeFor[struct{}](), Result: f.Out(0)}
	if f.NumIn() > 0 {
		o.Args = f.In(f.NumIn() - 1)
	}
	if o.Attaches = o.Result.Implements(reflect.TypeFor[attached]()); o.Attaches {
		o.Result = o.Result.Field(0).Type
	}
	return o
}
