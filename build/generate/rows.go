package main

import (
	_ "embed"

	"github.com/asrconfig/asrconfig-go/core/units"
)

//go:embed rows.py.tmpl
var rowsText string

// rowKind is a kind of rows by its name in JSON.
type rowKind struct {
	Name units.RowKind
	units.RowWords
}

func readRows() []rowKind {
	kinds := []units.RowKind{units.Clips, units.Texts}
	rows := make([]rowKind, len(kinds))
	for i, kind := range kinds {
		rows[i] = rowKind{kind, units.Words[kind]}
	}
	return rows
}
