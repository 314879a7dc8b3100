package peak

import (
	"cmp"
	"slices"
)

// Holding is memory that a run holds at a moment.
type Holding struct {
	// parameters, gradients, optimizer, buffers; anything else counts as "others"
	Component string `json:"component"`
	Module    string `json:"module"` // "" outside any module
	Bytes     uint64 `json:"bytes"`  // of blocks
}

// Others are activations, temporaries, inputs, workspaces and outputs: a running training cannot
// distinguish them.
const Others = "others"

// AllModules is the module of a row about the whole model.
const AllModules = "*"

// Row is the bytes that one part of a model holds in a run, and what was predicted for that moment.
type Row struct {
	// "parameters", "gradients", "optimizer", "buffers", "others", or "…" for all that do not fit
	// into the table
	Component string `json:"component"`
	// a path; "*" for all of a component, "" outside any module
	Module    string  `json:"module"`
	Held      uint64  `json:"held"`
	Predicted *uint64 `json:"predicted"` // null without a prediction
}

// slight is a difference, in bytes, that makes no row of its own.
const slight = 1 << 20

// Compare returns rows by component and module, those with the largest difference first, at most so
// many. All of a component is one row where no part differs by 1 MiB, and so are others where the
// run does not know their modules. Predicted is nil where nothing is predicted: then the largest
// come first.
func Compare(measured, predicted []Holding, limit int) []Row {
	hasModules := slices.ContainsFunc(measured, func(h Holding) bool {
		return componentOf(h) == Others && h.Module != ""
	})
	var rows []Row
	for _, group := range []func(string) string{layerOf, func(path string) string {
		return stackOf(layerOf(path))
	}} {
		rows = folded(compared(measured, predicted, func(h Holding) string {
			if componentOf(h) == Others && !hasModules {
				return AllModules
			}
			return group(h.Module)
		}))
		if len(rows) <= limit {
			break
		}
	}
	rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Held == 0 && r.off() == 0 })
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.off(), a.off()), cmp.Compare(b.Held, a.Held),
			cmp.Compare(a.Component, b.Component), cmp.Compare(a.Module, b.Module))
	})
	if len(rows) > limit {
		others := Row{Component: otherModules, Module: AllModules}
		for _, r := range rows[limit-1:] {
			others.add(r)
		}
		rows = append(rows[:limit-1], others)
	}
	return rows
}

func componentOf(h Holding) string {
	switch h.Component {
	case "parameters", "gradients", "optimizer", "buffers":
		return h.Component
	}
	return Others
}

// compared sums up both sides by component and group of modules.
func compared(measured, predicted []Holding, group func(Holding) string) []Row {
	var rows []Row
	places := map[[2]string]int{}
	row := func(h Holding) *Row {
		key := [2]string{componentOf(h), group(h)}
		i, is := places[key]
		if !is {
			i, places[key] = len(rows), len(rows)
			rows = append(rows, Row{Component: key[0], Module: key[1]})
			if predicted != nil {
				rows[i].Predicted = new(uint64)
			}
		}
		return &rows[i]
	}
	for _, h := range measured {
		row(h).Held += h.Bytes
	}
	for _, h := range predicted {
		*row(h).Predicted += h.Bytes
	}
	return rows
}

// folded makes one row of each component that is as predicted.
func folded(rows []Row) []Row {
	differs := map[string]bool{}
	for _, r := range rows {
		differs[r.Component] = differs[r.Component] || r.off() >= slight || r.Predicted == nil
	}
	out, places := []Row{}, map[string]int{}
	for _, r := range rows {
		i, is := places[r.Component]
		switch {
		case differs[r.Component]:
			out = append(out, r)
		case is:
			out[i].add(r)
		default:
			places[r.Component] = len(out)
			out = append(out, Row{Component: r.Component, Module: AllModules, Held: r.Held,
				Predicted: r.Predicted})
		}
	}
	return out
}

func (r *Row) add(other Row) {
	r.Held += other.Held
	if other.Predicted != nil {
		sum := *other.Predicted
		if r.Predicted != nil {
			sum += *r.Predicted
		}
		r.Predicted = &sum
	}
}

// off is by how many bytes a row is not as predicted.
func (r Row) off() uint64 {
	if r.Predicted == nil {
		return 0
	}
	return max(r.Held, *r.Predicted) - min(r.Held, *r.Predicted)
}

// Sum is the number of bytes in all holdings.
func Sum(holdings []Holding) (sum uint64) {
	for _, h := range holdings {
		sum += h.Bytes
	}
	return sum
}
