package main

import (
	_ "embed"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

//go:embed dataclasses.py.tmpl
var dataclassesText string

const (
	pythonWidth = 120
	column      = "tuple[float | None, ...]"
	recordsFile = "python/asrconfig_go/%[1]s/%[1]s_records.py"
)

// dataclass is the Python class of a record.
type dataclass struct {
	Name, Comment string
	Fields        []attribute
	Mutable       bool // a setting of it can be assigned
}

type attribute struct{ Name, Hint, Comment, Default string }

// dataclasses are those of one package of Python, and what they import.
type dataclasses struct {
	Imports []string
	Classes []dataclass

	pkg      string
	contract *contract
	imported map[string][]string // names by module
	written  map[string]bool
}

// pythonFiles are the dataclasses of each package, by the path of their file.
func (c *contract) pythonFiles() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, pkg := range packages() {
		d := &dataclasses{pkg: pkg, contract: c, imported: map[string][]string{},
			written: map[string]bool{}}
		for _, r := range c.Records {
			if class := pythonClasses[r.Name]; class.Package == pkg && class.Module == "" {
				d.add(r.Name)
			}
		}
		d.importLines()
		text, err := fill(dataclassesText, d)
		if err != nil {
			return nil, err
		}
		files[fmt.Sprintf(recordsFile, pkg)] = text
	}
	for name := range pythonClasses {
		if c.types[name] == nil {
			c.fail("%s of pythonClasses is no record of any operation", name)
		}
	}
	return files, c.err
}

func packages() []string {
	names := map[string]bool{}
	for _, class := range pythonClasses {
		names[class.Package] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// add writes a record after those that it holds.
func (d *dataclasses) add(name string) {
	if d.written[pythonClasses[name].Name] { // two records of Go may be one class
		return
	}
	d.written[pythonClasses[name].Name] = true
	t, class := d.contract.types[name], pythonClasses[name]
	fields, names := d.attributes(t, class)
	d.Classes = append(d.Classes, dataclass{Name: class.Name, Mutable: class.Mutable,
		Comment: pythonSentence(d.contract.docs[path(t)], names), Fields: fields})
	if class.Reading != "" {
		d.Classes = append(d.Classes, reading(class, fields))
	}
}

// reading is the class of the newest values of series: one value for each column.
func reading(of pythonClass, series []attribute) dataclass {
	newest := dataclass{Name: of.Reading,
		Comment: fmt.Sprintf("The newest reading, in the units of ``%s``.", of.Name)}
	for _, f := range series {
		hint := strings.Replace(f.Hint, column, "float | None", 1)
		for _, class := range pythonClasses {
			if class.Reading != "" {
				hint = strings.Replace(hint, "["+class.Name+",", "["+class.Reading+",", 1)
			}
		}
		if f.Name == "times_s" {
			f = attribute{Name: "at_s", Comment: "None before the first."}
			hint = "float | None"
		}
		newest.Fields = append(newest.Fields, attribute{f.Name, hint, f.Comment, ""})
	}
	return newest
}

// attributes are the fields of a struct that its JSON always has, and the names of all in JSON.
func (d *dataclasses) attributes(t reflect.Type, class pythonClass) (all []attribute,
	names map[string]string) {
	names = map[string]string{}
	for _, f := range jsonFields(t) {
		names[f.Name] = f.name
	}
	for _, f := range jsonFields(t) {
		hint, chosen := class.Hints[f.name]
		switch {
		case chosen:
			choice := strings.TrimSuffix(hint, " | None")
			d.use(choiceModule(choice), choice)
		case strings.HasSuffix(f.Tag.Get("json"), ",omitempty"):
			continue
		default:
			hint = d.hint(f.Type)
		}
		all = append(all, attribute{f.name, hint,
			pythonSentence(d.contract.docs[f.path], names), class.Defaults[f.name]})
	}
	return all, names
}

// choiceModule has a Literal: one that Go declares, or one that Python alone knows.
func choiceModule(name string) string {
	if slices.ContainsFunc(readDeclared().Choices, func(c choice) bool { return c.Name == name }) {
		return "_core.declared"
	}
	return "_core.settings"
}

func (d *dataclasses) hint(t reflect.Type) string {
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[runlog.Column]():
		return column
	case t == reflect.TypeFor[units.RowKind]():
		return d.use("_core.declared", "RowKind")
	case kind == reflect.Bool:
		return "bool"
	case kind >= reflect.Int && kind <= reflect.Uintptr:
		return "int"
	case kind == reflect.Float32 || kind == reflect.Float64:
		return "float"
	case kind == reflect.String:
		return "str"
	case kind == reflect.Pointer:
		return d.hint(t.Elem()) + " | None"
	case kind == reflect.Slice || kind == reflect.Array:
		return "tuple[" + d.hint(t.Elem()) + ", ...]"
	case kind == reflect.Map:
		return "dict[str, " + d.hint(t.Elem()) + "]"
	}
	class, known := pythonClasses[t.String()]
	switch {
	case !known:
		d.contract.fail("%s needs a class in pythonClasses", t)
	case class.Module != "":
		d.use(class.Package+"."+class.Module, class.Name)
	case class.Package == d.pkg:
		d.add(t.String())
	default:
		d.use(class.Package+"."+class.Package+"_records", class.Name)
	}
	return class.Name
}

func (d *dataclasses) use(module, name string) string {
	if !slices.Contains(d.imported[module], name) {
		d.imported[module] = append(d.imported[module], name)
	}
	return name
}

// importLines are formatted and sorted as ruff does.
func (d *dataclasses) importLines() {
	for _, module := range slices.Sorted(maps.Keys(d.imported)) {
		names := d.imported[module]
		slices.SortFunc(names, func(a, b string) int {
			return strings.Compare(importOrder(a), importOrder(b))
		})
		line := fmt.Sprintf("from ..%s import %s", module, strings.Join(names, ", "))
		if len(line) > pythonWidth {
			line = fmt.Sprintf("from ..%s import (\n    %s,\n)", module,
				strings.Join(names, ",\n    "))
		}
		d.Imports = append(d.Imports, line)
	}
}

// importOrder has names in capitals first, as they are constants to isort.
func importOrder(name string) string {
	if strings.ToUpper(name) == name {
		return "0" + name
	}
	return "1" + strings.ToLower(name)
}

var (
	span   = regexp.MustCompile(`(\d)\.\.(\d)`)
	quoted = regexp.MustCompile(`"[^"\s]*"`)
	absent = regexp.MustCompile(`\b([Aa]bsent|nil|null)\b`)
	word   = regexp.MustCompile(`\b[A-Z]\w*[a-z]{2}\w*\b`) // not GPUs, which is a word of its own
)

// pythonSentence is a comment as Python has it: None for what is absent, fields by their names in
// JSON, values as code, and a full stop.
func pythonSentence(comment string, names map[string]string) string {
	if comment == "" {
		return ""
	}
	text := quoted.ReplaceAllString(span.ReplaceAllString(comment, "$1 to $2"), "``$0``")
	text = absent.ReplaceAllString(text, "None")
	text = word.ReplaceAllStringFunc(text, func(name string) string {
		if field := names[name]; field != "" && !strings.HasPrefix(text, name+" ") {
			return "``" + field + "``"
		}
		return name
	})
	text = capitalized(text)
	if !strings.ContainsAny(text[len(text)-1:], ".!?") && !strings.HasSuffix(text, "…") {
		text += "."
	}
	return text
}

// docstring is a text in triple quotes at an indentation, wrapped as the package's are: the first
// sentence alone where not all fits a line.
func docstring(text string) string {
	const indent, quotes = "    ", `"""`
	fitting := pythonWidth - len(indent) - 2*len(quotes)
	if utf8.RuneCountInString(text) <= fitting {
		return indent + quotes + text + quotes
	}
	first, others := text, ""
	if at := strings.Index(text, ". "); at > 0 && at+1 <= fitting {
		first, others = text[:at+1], text[at+2:]
	}
	lines := wrapped(quotes+first, pythonWidth-len(indent))
	if others != "" {
		lines = append(append(lines, ""), wrapped(others, pythonWidth-len(indent))...)
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(indent+line, " ")
	}
	return strings.Join(append(lines, indent+quotes), "\n")
}

func wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return append(lines, line)
}
