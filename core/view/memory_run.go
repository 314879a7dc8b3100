package view

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// overOrders are a figure's median, 99th percentile and worst over the orders that were tried.
type overOrders struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Worst  float64 `json:"worst"`
}

// runMemoryRecord is the memory of a whole run over several orders of its clips.
type runMemoryRecord struct {
	Model         string        `json:"model"`
	Settings      string        `json:"settings_words"`
	Batch         int           `json:"batch"`
	RowKind       units.RowKind `json:"row_kind"`
	Clips         int           `json:"clips"`
	LongestS      float64       `json:"longest_s"`
	Steps         int           `json:"steps"`
	Order         string        `json:"order"`
	PeakAllocated overOrders    `json:"peak_allocated"`
	PeakReserved  overOrders    `json:"peak_reserved"`
	PeakDevice    *overOrders   `json:"peak_device"`
	OutOfMemory   float64       `json:"out_of_memory"` // share of the orders
	Alone         struct {
		PeakAllocated float64 `json:"peak_allocated"`
		PeakReserved  float64 `json:"peak_reserved"`
	} `json:"largest_batch_only"`
	Seeds []struct {
		PeakAllocated float64 `json:"peak_allocated"`
		PeakReserved  float64 `json:"peak_reserved"`
	} `json:"seeds"`
	Target target `json:"target"`
}

func runMemory(r runMemoryRecord) Document {
	rows := [][]string{{"peak", "median", "p99", "worst"}, r.PeakAllocated.row("allocated"), r.PeakReserved.row("reserved")}
	if r.PeakDevice != nil {
		rows = append(rows, r.PeakDevice.row("device"))
	}
	return Document{
		Title: fmt.Sprintf("%s, batch %d, %s up to %s %s, %s order, %s", name(or(r.Model, "model")), r.Batch, r.RowKind.Count(r.Clips), r.RowKind.Figure("%.1f", r.LongestS), r.RowKind.Unit(), r.Order, r.Settings),
		Blocks: []Block{
			r.verdict(), plain(rows),
			said(fmt.Sprintf("the longest %s' batch alone: allocated %s, reserved %s", r.RowKind.Nouns(), units.Size(r.Alone.PeakAllocated), units.Size(r.Alone.PeakReserved))),
			r.each(),
		},
	}
}

func (s overOrders) row(what string) []string {
	return []string{what, units.Size(s.Median), units.Size(s.P99), units.Size(s.Worst)}
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
		n.What += fmt.Sprintf("runs out of %s's %s in %.0f%% of them", name(r.Target.Name), known(r.Target.Available, units.Size), 100*r.OutOfMemory)
	}
	return n
}

// each is the peaks of every order as dots, against the limit.
func (r runMemoryRecord) each() curves {
	top := max(r.PeakReserved.Worst, orZero(r.Target.Limit))
	unit, unitName := binary(top)
	c := curves{Kind: "curves", Title: "Peak of each order", Unit: unitName, XUnit: "order of the " + r.RowKind.Nouns(), Top: 1.04 * top / unit,
		X: axis{Low: 0.5, High: float64(len(r.Seeds)) + 0.5}}
	reserved, allocated := Series{Name: "reserved", Dots: true}, Series{Name: "allocated", Colour: lineColours[0], Dots: true}
	for i, s := range r.Seeds {
		x := float64(i + 1)
		reserved.Pieces = append(reserved.Pieces, [][2]float64{{x, s.PeakReserved / unit}})
		allocated.Pieces = append(allocated.Pieces, [][2]float64{{x, s.PeakAllocated / unit}})
		if len(r.Seeds) <= 20 {
			c.X.Ticks = append(c.X.Ticks, tick{At: x, Text: fmt.Sprintf("%d", i+1)})
		}
	}
	c.Series = []Series{reserved, allocated}
	if l := r.Target.Limit; l != nil {
		c.Limit = &Limit{At: *l / unit, Name: "limit of " + name(r.Target.Name)}
	}
	return c
}
