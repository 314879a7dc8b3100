package view

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/compare"
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
	cases := map[string]int{} // that an origin is of
	for _, c := range r.Cases {
		for _, line := range c.originLines() {
			cases[line]++
		}
	}
	var shared []string
	for i, c := range r.Cases {
		var own []string
		for _, line := range c.originLines() {
			if cases[line] < len(r.Cases) {
				own = append(own, line)
			} else if i == 0 {
				shared = append(shared, line)
			}
		}
		doc.Blocks = append(doc.Blocks, c.section(own))
	}
	doc.Blocks = append(doc.Blocks, section{Title: "where the figures are from",
		Body: []Block{allFacts(shared...)}})
	return doc
}

func (c handCase) originLines() (lines []string) {
	for _, o := range c.Origins {
		lines = append(lines, fmt.Sprintf("%s (%s): %s", o.Figure, o.Origin, o.Source))
	}
	return lines
}

func (c handCase) section(origins []string) section {
	taken := [][]string{{"settings", "batch", "peak", "samples/s", "a run takes"}}
	totals := [][]string{{"settings"}}
	for _, row := range c.Rows {
		taken = append(taken, c.taken(row))
		if len(row.Totals) > 0 {
			cells := []string{row.Name}
			totals[0] = totals[0][:1]
			for _, t := range row.Totals {
				runs := count(t.Runs, "run")
				totals[0] = append(totals[0], runs+", hours", runs+", $")
				cells = append(cells, around(&t.Hours), around(t.CostUSD))
			}
			totals = append(totals, cells)
		}
	}
	s := section{Title: c.title(), Body: []Block{
		allFacts(workload(c.Workload)), plain(taken), plain(totals)}}
	if len(c.Rows) == 0 || c.Rows[len(c.Rows)-1].Name != "plan" {
		s.Body = append(s.Body, notice{Level: "warning",
			What: "no plan fits; asrconfig compare without --by-hand says what would"})
	}
	s.Body = append(s.Body, allFacts(origins...))
	return s
}

// title is "L4, 22.5 GiB: facebook/wav2vec2-xls-r-1b".
func (c handCase) title() string {
	return fmt.Sprintf("%s, %s: %s", gpuPlan{GPU: c.GPU, Count: c.Count}.name(),
		units.InGiB(c.MemoryBytes), name(c.Model))
}

// taken is "aggressive | 8 × 4, checkpointing | 31.2 GiB, 139 % | out of memory".
func (c handCase) taken(h compare.HandRow) []string {
	rate, speed := "out of memory", ""
	if h.Fits {
		rate = around(h.SampleRate)
	}
	if h.PlanSpeed != nil && h.Name != "plan" {
		speed = fmt.Sprintf("%.2f× as long", *h.PlanSpeed)
	}
	peak := fmt.Sprintf("%.1f GiB, %s", float64(h.PeakBytes)/units.GiB,
		units.Percent(float64(h.PeakBytes)/max(float64(c.MemoryBytes), 1)))
	return []string{h.Name, c.short(h), peak, rate, speed}
}

// short is "8 × 4, bf16, checkpointing", with "split" where the guard splits steps.
func (c handCase) short(h compare.HandRow) string {
	split := ""
	if h.MicroBatching == "memory" {
		split = "split"
	}
	return joined(shortSettings(h.Settings), split)
}
