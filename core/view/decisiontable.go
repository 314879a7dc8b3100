package view

import (
	"cmp"
	"fmt"
	"strings"

	planning "github.com/asrconfig/asrconfig-go/core/plan"
)

const digested = 4 // settings that a closed fold shows

// decisions are the rows of a group: as text a line for each setting, its reason under it.
type decisions []planning.DecisionRow

func (decisions) templateName() string { return "decisions" }

// Told reports whether a row has an alternative or a gain.
func (d decisions) Told() bool {
	for _, decision := range d {
		if decision.Alternative != "" || decision.Gain != "" {
			return true
		}
	}
	return false
}

func (d decisions) lines(width int) []string {
	var lines []string
	for _, decision := range d {
		changed := ""
		if decision.Overridden {
			changed = fmt.Sprintf(" (overridden; planned: %s)", decision.Planned)
		}
		lines = append(lines, wrap(fmt.Sprintf("%s = %s%s", decision.Setting,
			cmp.Or(decision.Value, unknown), changed), width, "  ")...)
		for _, line := range under(decision) {
			lines = append(lines, indented(wrap(line, width-4, "  "), "    ")...)
		}
	}
	return lines
}

func under(d planning.DecisionRow) []string {
	var lines []string
	if d.Reason != "" {
		lines = append(lines, d.Reason)
	}
	switch {
	case d.Alternative != "" && d.Gain != "":
		lines = append(lines, fmt.Sprintf("instead of %s: %s", d.Alternative, d.Gain))
	case d.Alternative != "":
		lines = append(lines, "instead of "+d.Alternative)
	case d.Gain != "":
		lines = append(lines, d.Gain)
	}
	return lines
}

// decisionGroups are folds, in the order in which groups come; one with changes is open.
func decisionGroups(all []planning.DecisionRow) []Block {
	groups := map[string]decisions{}
	var order []string
	for _, d := range all {
		if groups[d.Group] == nil {
			order = append(order, d.Group)
		}
		groups[d.Group] = append(groups[d.Group], d)
	}
	var folds []Block
	for _, group := range order {
		folds = append(folds, decisionGroup(group, groups[group]))
	}
	return folds
}

func decisionGroup(group string, rows decisions) fold {
	f := fold{Summary: group, Body: []Block{rows}}
	var digest []string
	changed := 0
	for i, d := range rows {
		if i < digested {
			digest = append(digest, d.Setting+" "+cmp.Or(d.Value, unknown))
		}
		if d.Overridden {
			changed++
		}
	}
	f.Digest = strings.Join(digest, " · ")
	if changed > 0 {
		f.Open, f.Changed = true, fmt.Sprintf("%d overridden", changed)
	}
	return f
}
