package view

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/compare"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

type handCase compare.HandCase

// handRecord is trainings with settings by hand.
type handRecord struct {
	Cases []handCase `json:"cases"`
}

// handComparison shows settings by hand beside the plan's: what each takes, and what runs cost.
func handComparison(r handRecord) Document {
	doc := Document{Title: "settings by hand, and the plan's"}
	shared := r.sharedOrigins()
	for _, c := range r.Cases {
		doc.Blocks = append(doc.Blocks, c.section(shared))
	}
	if len(shared) > 0 {
		doc.Blocks = append(doc.Blocks, section{Title: "where the figures are from",
			Body: []Block{allFacts(shared...)}})
	}
	return doc
}

// sharedOrigins are those of all cases, shown once.
func (r handRecord) sharedOrigins() (shared []string) {
	if len(r.Cases) == 0 {
		return nil
	}
	for _, line := range r.Cases[0].originLines() {
		missing := func(c handCase) bool { return !slices.Contains(c.originLines(), line) }
		if !slices.ContainsFunc(r.Cases, missing) {
			shared = append(shared, line)
		}
	}
	return shared
}

func (c handCase) originLines() (lines []string) {
	for _, o := range c.Origins {
		lines = append(lines, fmt.Sprintf("%s (%s): %s", o.Figure, o.Origin, o.Source))
	}
	return lines
}

// section is what each of the settings takes, what runs cost, and origins that others do not share.
func (c handCase) section(shared []string) section {
	taken := table{Head: []string{"settings", "batch", "peak", "samples/s", "plan is"}}
	totals := table{Head: []string{"settings"}}
	for _, row := range c.Rows {
		taken.Rows = append(taken.Rows, c.taken(row))
		if len(row.Totals) > 0 {
			totals.Head = append(totals.Head[:1], totalsHead(row.Totals)...)
			totals.Rows = append(totals.Rows, handTotals(row))
		}
	}
	s := section{Title: c.title(), Body: []Block{
		allFacts(joined(workload(c.Workload), c.precision())), taken}}
	if len(totals.Rows) > 0 {
		s.Body = append(s.Body, totals)
	}
	if len(c.Rows) == 0 || c.Rows[len(c.Rows)-1].Name != "plan" {
		s.Body = append(s.Body, notice{Level: "warning",
			What: "no plan fits; asrconfig compare without --by-hand says what would"})
	}
	own := slices.DeleteFunc(c.originLines(), func(line string) bool {
		return slices.Contains(shared, line)
	})
	return section{Title: s.Title, Body: append(s.Body, allFacts(own...))}
}

// title is "L4, 22.5 GiB: facebook/wav2vec2-xls-r-1b".
func (c handCase) title() string {
	return fmt.Sprintf("%s, %s: %s", gpuPlan{GPU: c.GPU, Count: c.Count}.name(),
		units.InGiB(c.MemoryBytes), name(c.Model))
}

// precision is that of all settings; "" where they differ.
func (c handCase) precision() string {
	for _, row := range c.Rows {
		if row.Precision != c.Rows[0].Precision {
			return ""
		}
	}
	if len(c.Rows) == 0 {
		return ""
	}
	return c.Rows[0].Precision
}

// taken is "aggressive | 8 × 4, checkpointing | 31.2 GiB, 139 % | out of memory".
func (c handCase) taken(h compare.HandRow) row {
	rate, speed := "out of memory", ""
	if h.Fits {
		rate = shortRange(h.SampleRate)
	}
	if h.PlanSpeed != nil && h.Name != "plan" {
		speed = fmt.Sprintf("%.2f×", *h.PlanSpeed)
	}
	peak := fmt.Sprintf("%.1f GiB, %d %%", float64(h.PeakBytes)/units.GiB,
		int(100*float64(h.PeakBytes)/max(float64(c.MemoryBytes), 1)))
	return row{Cells: []cell{{Text: h.Name, Class: "tight"}, {Text: c.short(h)},
		{Text: peak, Class: "tight"}, {Text: rate, Class: "tight"}, {Text: speed, Class: "tight"}}}
}

// short is "8 × 4, checkpointing", with the precision where settings differ in it, and "split"
// where the guard splits steps.
func (c handCase) short(h compare.HandRow) string {
	precision, checkpointing, split, optimizer := "", "", "", ""
	if c.precision() == "" {
		precision = h.Precision
	}
	if h.Checkpointing {
		checkpointing = profile.CheckpointingOf(true, h.EveryNLayers, h.Offload).Name()
	}
	if h.MicroBatching == "memory" {
		split = "split"
	}
	if h.Optimizer != c.Rows[0].Optimizer {
		optimizer = h.Optimizer
	}
	return joined(fmt.Sprintf("%d × %d", h.Batch, h.Accumulation), precision, checkpointing,
		optimizer, split)
}

func totalsHead(totals []compare.HandTotal) (heads []string) {
	for _, t := range totals {
		runs := count(t.Runs, "run")
		heads = append(heads, runs+", hours", runs+", $")
	}
	return heads
}

func handTotals(h compare.HandRow) row {
	cells := []cell{{Text: h.Name, Class: "tight"}}
	for _, t := range h.Totals {
		cells = append(cells, cell{Text: shortRange(&t.Hours), Class: "tight"},
			cell{Text: shortRange(t.CostUSD), Class: "tight"})
	}
	return row{Cells: cells}
}

// shortRange is "9.56 (7.0–12)".
func shortRange(r *profile.Range) string {
	return known(r, func(r profile.Range) string {
		return fmt.Sprintf("%s (%s–%s)", number(r.Likely), shortNumber(r.Low), shortNumber(r.High))
	})
}

// shortNumber has two digits that count, or all of a whole number.
func shortNumber(x float64) string {
	switch {
	case x >= 9.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 0.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2g", x)
}
