package view

import (
	"cmp"
	"fmt"

	estimates "github.com/asrconfig/asrconfig-go/core/memory"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// failure is what a training held by module when GPU memory ran out, and what was predicted for
// that moment; core/memory compares. Sizes are bytes.
type failure struct {
	Place     string            `json:"place"`
	Step      int               `json:"step"`
	Rank      int               `json:"rank"`
	Samples   *float64          `json:"samples"`
	Seconds   *float64          `json:"seconds"`
	Phase     string            `json:"phase"`
	Module    string            `json:"module"`
	Reserved  float64           `json:"reserved"`
	Held      float64           `json:"held"`
	Predicted *float64          `json:"predicted"`
	Moment    *estimates.Moment `json:"moment"`
	Rows      []failureRow      `json:"rows"`
}

type failureRow struct {
	Component string   `json:"component"`
	Module    string   `json:"module"`
	Held      float64  `json:"held"`
	Predicted *float64 `json:"predicted"`
}

const (
	allModules = "*"
	unnamed    = "others" // what a running training cannot tell apart
)

var partWords = map[string]string{unnamed: "activations and others", "optimizer": "optimizer state",
	"…": "all others"}

// failures are a table for each error: the largest differences first, then the sum.
func failures(all []failure) []Block {
	var body []Block
	for _, f := range all {
		body = append(body, allFacts(f.words()...), f.table())
	}
	return []Block{section{Title: "When memory ran out", Body: body}}
}

func (f failure) words() []string {
	where := fmt.Sprintf("%s, step %d", f.Place, f.Step)
	if f.Rank > 0 {
		where += fmt.Sprintf(", rank %d", f.Rank)
	}
	if f.Phase != "" && f.Place != "optimizer" {
		where += ", " + f.Phase
	}
	if f.Module != "" {
		where += " in " + f.Module
	}
	lines := []string{fmt.Sprintf("%s: %s held of %s reserved", where, units.Size(f.Held),
		units.Size(f.Reserved))}
	if p, m := f.Predicted, f.Moment; p != nil && m != nil {
		place := fmt.Sprintf("step %d, %s, %s in %s", m.Step, m.Phase, m.Op,
			cmp.Or(m.Module, noModule))
		lines = append(lines, fmt.Sprintf("predicted of %s × %s s at that moment (%s): %s",
			short(orZero(f.Samples)), short(orZero(f.Seconds)), place, units.Size(*p)))
	} else {
		lines = append(lines, "nothing was predicted for it: manager.attach(trainer, "+
			"memory=True) predicts the steps of a training")
	}
	for _, r := range f.Rows {
		if r.Component == unnamed && r.Module != allModules {
			return lines
		}
	}
	return append(lines, `activations by module: attach(oom_snapshot="history")`)
}

func (f failure) table() table {
	t := table{Head: []string{"differs by", "held", "predicted", "what", "module"}}
	for _, r := range append(f.Rows, failureRow{"sum", allModules, f.Held, f.Predicted}) {
		t.Rows = append(t.Rows, row{Cells: r.cells()})
	}
	return t
}

func (r failureRow) cells() []cell {
	module := map[string]string{allModules: "all", "": "outside modules"}
	texts := []string{r.difference(), sizeOrNone(r.Held), known(r.Predicted, sizeOrNone),
		cmp.Or(partWords[r.Component], r.Component), cmp.Or(module[r.Module], r.Module)}
	var cells []cell
	for i, text := range texts {
		c := cell{Text: text}
		if i < 3 {
			c.Class = "tight"
		}
		cells = append(cells, c)
	}
	return cells
}

func (r failureRow) difference() string {
	switch p := r.Predicted; {
	case p == nil:
		return unknown
	case r.Held > *p:
		return "+" + units.Size(r.Held-*p)
	case r.Held < *p:
		return "−" + units.Size(*p-r.Held)
	}
	return "0"
}

func sizeOrNone(bytes float64) string {
	if bytes == 0 {
		return "0"
	}
	return units.Size(bytes)
}
