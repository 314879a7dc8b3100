package view

import (
	"cmp"
	"fmt"

	estimates "github.com/asrconfig/asrconfig-go/core/memory"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// failure is what a training held by module when GPU memory ran out, and what was predicted for
// that moment; core/memory compares. Sizes are bytes.
type failure struct {
	estimates.Comparison
	Place    string   `json:"place"`
	Step     int      `json:"step"`
	Rank     int      `json:"rank"`
	Samples  *float64 `json:"samples"`
	Seconds  *float64 `json:"seconds"`
	Phase    string   `json:"phase"`
	Module   string   `json:"module"`
	Reserved float64  `json:"reserved"`
}

var partWords = map[string]string{peak.Others: "activations and others",
	"optimizer": "optimizer state", "…": "all others"}

// failures are a table for each error: the largest differences first, then the sum.
func failures(all []failure) section {
	var body []Block
	for _, f := range all {
		body = append(body, allFacts(f.words()...), f.table())
	}
	return section{Title: "When memory ran out", Body: body}
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
			short(profile.Or(f.Samples, 0)), short(profile.Or(f.Seconds, 0)), place, units.Size(*p)))
	} else {
		lines = append(lines, "nothing was predicted for it: manager.attach(trainer, "+
			"memory=True) predicts the steps of a training")
	}
	for _, r := range f.Rows {
		if r.Component == peak.Others && r.Module != peak.AllModules {
			return lines
		}
	}
	return append(lines, `activations by module: attach(oom_snapshot="history")`)
}

func (f failure) table() table {
	rows := [][]string{{"differs by", "held", "predicted", "what", "module"}}
	module := map[string]string{peak.AllModules: "all", "": "outside modules"}
	sum := peak.Row{Component: "sum", Module: peak.AllModules, Held: f.Held, Predicted: f.Predicted}
	for _, r := range append(f.Rows, sum) {
		rows = append(rows, []string{difference(r), sizeOrNone(r.Held),
			known(r.Predicted, sizeOrNone), cmp.Or(partWords[r.Component], r.Component),
			cmp.Or(module[r.Module], r.Module)})
	}
	return plain(rows)
}

func difference(r peak.Row) string {
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

func sizeOrNone(bytes uint64) string {
	if bytes == 0 {
		return "0"
	}
	return units.Size(bytes)
}
