package view

import (
	"cmp"
	"encoding/csv"
	"strconv"
	"strings"
)

// formulaStarts are what a spreadsheet takes a text for a formula by.
const formulaStarts = "=+-@\t\r"

// Cell is a text in a table for spreadsheets, never a formula.
func Cell(text string) string {
	if text != "" && strings.ContainsRune(formulaStarts, rune(text[0])) {
		return "'" + text
	}
	return text
}

// spreadsheet writes a row for each object that a record has under some names, alone or in a list:
// the name, and every number and text in the object. Lists and settings are left out of rows.
func spreadsheet(names ...string) func(raw []byte) (string, error) {
	return read(func(record map[string]any) (string, error) {
		var rows []map[string]string
		columns := map[string]bool{}
		add := func(name string, object any) {
			cells := map[string]string{}
			flatten("", object, cells)
			if len(cells) == 0 {
				return
			}
			for column := range cells {
				columns[column] = true
			}
			cells["what"] = name
			rows = append(rows, cells)
		}
		for _, name := range names {
			if list, ok := record[name].([]any); ok {
				for _, object := range list {
					add(name, object)
				}
			} else {
				add(name, record[name])
			}
		}
		return written(columns, rows)
	})
}

// flatten writes what an object holds into cells, and joins the names of what lies deeper: a median
// has the name of its figure, and what was measured of an option the names of a side's figures.
func flatten(name string, value any, cells map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			switch key {
			case "settings":
			case "median":
				flatten(cmp.Or(name, key), v[key], cells)
			case "side":
				flatten(name, v[key], cells)
			default:
				flatten(strings.TrimPrefix(name+"_"+key, "_"), v[key], cells)
			}
		}
	case string:
		cells[name] = cmp.Or(cells[name], Cell(v)) // an option's own before its side's
	case float64:
		cells[name] = strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		cells[name] = strconv.FormatBool(v)
	}
}

func written(columns map[string]bool, rows []map[string]string) (string, error) {
	names := append([]string{"what"}, sortedKeys(columns)...)
	lines := [][]string{names}
	for _, cells := range rows {
		line := make([]string, len(names))
		for i, column := range names {
			line[i] = cells[column]
		}
		lines = append(lines, line)
	}
	var out strings.Builder
	err := csv.NewWriter(&out).WriteAll(lines)
	return out.String(), err
}
