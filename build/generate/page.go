package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

//go:embed operations.md.tmpl
var pageText string

// json is the contract for programs: the tests of the Python package hold its records against it.
func (c *contract) json() ([]byte, error) {
	type signature struct {
		Arguments map[string]string `json:"arguments"`
		Result    string            `json:"result"`
	}
	operations, records := map[string]signature{}, map[string]map[string]string{}
	for _, o := range c.Operations {
		operations[o.Name] = signature{types(o.Arguments), o.Result}
	}
	for _, r := range c.Records {
		records[r.Name] = types(r.Fields)
	}
	text, err := json.MarshalIndent(map[string]any{"operations": operations, "records": records},
		"", " ")
	return append(text, '\n'), err
}

func types(fields []field) map[string]string {
	byName := map[string]string{}
	for _, f := range fields {
		byName[f.Name] = f.Type
	}
	return byName
}

// Table has a row for each field; none without fields.
func (c *contract) Table(fields []field) string {
	if len(fields) == 0 {
		return ""
	}
	rows := []string{"", "| name | type | what |", "| --- | --- | --- |"}
	for _, f := range fields {
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", f.Name, c.Linked(f.Type),
			cell(f.Comment)))
	}
	return strings.Join(append(rows, ""), "\n")
}

var recordName = regexp.MustCompile(`\w+\.\w+`)

// Linked is a type for a table's cell, its record linked to the section of that on the same page.
func (c *contract) Linked(name string) string {
	return recordName.ReplaceAllStringFunc(strings.ReplaceAll(name, "|", "or"),
		func(record string) string {
			return "[" + record + "](#" + strings.ToLower(strings.ReplaceAll(record, ".", "")) + ")"
		})
}

// cell is text for a table's cell in Markdown, in which nothing is markup.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;", "[", `\[`, "`",
		"\\`").Replace(text)
}
