package view

import (
	"cmp"
	"fmt"

	estimates "github.com/asrconfig/asrconfig-go/core/memory"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// runMemoryRecord is the memory of a whole run over several orders of its clips.
type runMemoryRecord struct {
	estimates.RunEstimate
	Model    string        `json:"model"`
	Settings string        `json:"settings_words"`
	Batch    int           `json:"batch"`
	RowKind  units.RowKind `json:"row_kind"`
	Clips    int           `json:"clips"`
	LongestS float64       `json:"longest_s"`
	Steps    int           `json:"steps"`
	Order    string        `json:"order"`
	Target   target        `json:"target"`
}

func runMemory(r runMemoryRecord) Document {
	rows := [][]string{{"peak", "median", "p99", "worst"}, spreadRow("allocated", r.PeakAllocated),
		spreadRow("reserved", r.PeakReserved)}
	if r.PeakDevice != nil {
		rows = append(rows, spreadRow("device", *r.PeakDevice))
	}
	return Document{
		Title: fmt.Sprintf("%s, batch %d, %s up to %s %s, %s order, %s",
			name(cmp.Or(r.Model, "model")), r.Batch, r.RowKind.Count(r.Clips), r.RowKind.Figure("%.1f", r.LongestS),
			r.RowKind.Unit(), r.Order, r.Settings),
		Blocks: []Block{
			r.verdict(), plain(rows),
			allFacts(fmt.Sprintf("the longest %s' batch alone: allocated %s, reserved %s",
				r.RowKind.Nouns(), units.Size(r.Largest.PeakAllocated),
				units.Size(r.Largest.PeakReserved))),
			r.each(),
		},
	}
}

func spreadRow(title string, s estimates.Spread) []string {
	return []string{title, units.Size(s.Median), units.Size(s.P99), units.Size(s.Worst)}
}

func (r runMemoryRecord) verdict() notice {
	n := notice{Level: "note", What: fmt.Sprintf("%d steps in %d orders: ", r.Steps, len(r.Seeds))}
	switch {
	case r.Target.Limit == nil:
		n.What += "no GPU given"
	case r.OutOfMemory == 0:
		n.Level = "good"
		n.What += fmt.Sprintf("fits %s in every order", name(r.Target.Name))
	default:
		n.Level = "serious"
		n.What += fmt.Sprintf("runs out of %s's %s in %.0f%% of them", name(r.Target.Name),
			known(r.Target.Available, units.Size), 100*r.OutOfMemory)
	}
	return n
}

// each is the peaks of every order as dots, against the limit.
func (r runMemoryRecord) each() curves {
	top := max(r.PeakReserved.Worst, float64(profile.Or(r.Target.Limit, 0)))
	unit, unitName := binary(top)
	c := curves{Kind: "curves", Title: "Peak of each order", Unit: unitName,
		XUnit: "order of the " + r.RowKind.Nouns(), Top: 1.04 * top / unit,
		X: axis{Low: 0.5, High: float64(len(r.Seeds)) + 0.5}}
	reserved, allocated := Series{Name: "reserved", Dots: true},
		Series{Name: "allocated", Colour: lineColours[0], Dots: true}
	for i, s := range r.Seeds {
		x := float64(i + 1)
		reserved.Pieces = append(reserved.Pieces, [][2]float64{{x, float64(s.PeakReserved) / unit}})
		allocated.Pieces = append(allocated.Pieces,
			[][2]float64{{x, float64(s.PeakAllocated) / unit}})
		if len(r.Seeds) <= 20 {
			c.X.Ticks = append(c.X.Ticks, tick{At: x, Text: fmt.Sprintf("%d", i+1)})
		}
	}
	c.Series = []Series{reserved, allocated}
	if l := r.Target.Limit; l != nil {
		c.Limit = &Limit{At: float64(*l) / unit, Name: "limit of " + name(r.Target.Name)}
	}
	return c
}
