package peak

import (
	"cmp"
	"slices"
	"strings"
)

// ModuleBytes is what a part of the model holds.
type ModuleBytes struct {
	// a path, with * for the number of a layer where all are one row; "" outside any module
	Module string `json:"module"`
	Bytes  uint64 `json:"bytes"`
}

// otherModules is the row for what does not fit into a table.
const otherModules = "…"

// deepest is how many steps of a path without a layer's number make a row of their own.
const deepest = 3

// Layers are the parts of the model that modules belong to, those of a stack being a layer each.
func Layers(modules []string) []string {
	layers := make([]string, len(modules))
	for i, path := range modules {
		layers[i] = layerOf(path)
	}
	return layers
}

// ModuleRows sums the bytes of modules, whose layers are given, up by part of the model, largest
// first, in at most so many rows: a layer each if they fit, else all layers of a stack in one row,
// and what is left in the last one.
func ModuleRows(layers []string, bytes []uint64, limit int) []ModuleBytes {
	rows := grouped(layers, bytes)
	if len(rows) > limit {
		rows = grouped(stacks(rows))
	}
	if len(rows) > limit {
		others := ModuleBytes{Module: otherModules}
		for _, r := range rows[limit-1:] {
			others.Bytes += r.Bytes
		}
		rows = append(rows[:limit-1], others)
	}
	return rows
}

func stacks(rows []ModuleBytes) (names []string, bytes []uint64) {
	for _, r := range rows {
		names, bytes = append(names, stackOf(r.Module)), append(bytes, r.Bytes)
	}
	return names, bytes
}

func grouped(names []string, bytes []uint64) []ModuleBytes {
	sums := map[string]uint64{}
	for i, n := range bytes {
		if n > 0 {
			sums[names[i]] += n
		}
	}
	rows := make([]ModuleBytes, 0, len(sums))
	for name, n := range sums {
		rows = append(rows, ModuleBytes{name, n})
	}
	slices.SortFunc(rows, func(a, b ModuleBytes) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Module, b.Module))
	})
	return rows
}

// layerOf cuts a path behind the first number: wav2vec2.encoder.layers.3 of
// wav2vec2.encoder.layers.3.attention.q_proj.
func layerOf(path string) string {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		if isNumber(step) {
			return strings.Join(steps[:i+1], ".")
		}
	}
	return strings.Join(steps[:min(len(steps), deepest)], ".")
}

// stackOf puts a * for the number at the end.
func stackOf(layer string) string {
	if dot := strings.LastIndexByte(layer, '.'); dot >= 0 && isNumber(layer[dot+1:]) {
		return layer[:dot+1] + "*"
	}
	return layer
}

func isNumber(step string) bool { return step != "" && strings.Trim(step, "0123456789") == "" }
