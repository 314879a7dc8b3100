package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/compare"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// comparisonRecord is one training on several GPUs, of a model whose counts may be made by hand.
type comparisonRecord struct {
	compare.Comparison
	Model modelRecord `json:"model"`
	Plans []gpuPlan   `json:"rows"`
}

type gpuPlan compare.Row

func comparison(r comparisonRecord) Document {
	title := r.Model.label() + ": " + workload(r.Workload)
	var others []Block
	var notes []string
	for _, plan := range r.Plans {
		if !plan.Fits {
			others = append(others, plan.unfit())
		}
		for _, note := range plan.Notes {
			notes = append(notes, "· "+plan.name()+": "+note)
		}
	}
	return Document{Title: title, Brief: r.brief(title, len(others)), Blocks: append(append(
		[]Block{rowsOf(r.Plans), allFacts(strings.Join(r.best(), "; "))}, others...),
		allFacts(notes...), fold{Summary: "assumptions", Body: []Block{allFacts(r.foot()...)}})}
}

// rowsOf is a table of the plans that fit.
func rowsOf(plans []gpuPlan) table {
	t := table{Head: []string{"GPU", "plan", "largest", "peak of memory", "hours a run", "cost, $",
		"kWh", "bound by"}}
	for _, plan := range plans {
		if plan.Fits {
			t.Rows = append(t.Rows, plan.row())
		}
	}
	return t
}

const shownRows = 8 // of a table in a short form

// brief shows the cheapest and the fastest machine, and the rows that fit; of many rows, the
// cheapest.
func (r comparisonRecord) brief(title string, unfit int) []Block {
	plans, others := slices.Clone(r.Plans), ""
	if len(plans) > shownRows {
		slices.SortStableFunc(plans, func(a, b gpuPlan) int {
			return cmp.Compare(a.expense(), b.expense())
		})
	}
	if unfit > 0 {
		others = fmt.Sprintf("… and %d on which it does not fit", unfit)
	}
	t := rowsOf(plans)
	t.Brief, t.Skip = shownRows, map[int]bool{2: true, 6: true}
	return []Block{allFacts(title, strings.Join(r.best(), "; ")), t, allFacts(others)}
}

// expense is the likely cost; an unknown cost sorts last.
func (p gpuPlan) expense() float64 {
	if p.Cost == nil {
		return math.Inf(1)
	}
	return p.Cost.Likely
}

// workload is "100 clips, 0.20 h, longest 8 s; effective batch 32, 3 epochs".
func workload(w compare.Workload) string {
	return fmt.Sprintf("%s, %s, longest %s; effective batch %d, %s", w.RowKind.Count(w.Clips),
		w.RowKind.Amount(w.Hours), w.RowKind.Length(w.LongestS), w.Target, epochs(w.Epochs))
}

func (r comparisonRecord) best() (lines []string) {
	for _, plan := range r.Plans {
		if plan.Cheapest {
			lines = append(lines, "cheapest: "+plan.name())
		}
		if plan.Fastest {
			lines = append(lines, "fastest: "+plan.name())
		}
	}
	return lines
}

func (p gpuPlan) name() string {
	if p.Count == 1 {
		return name(p.GPU)
	}
	return fmt.Sprintf("%d × %s", p.Count, name(p.GPU))
}

func (p gpuPlan) row() row {
	memory := max(float64(p.MemoryBytes), 1)
	used := float64(p.PeakBytes) / memory
	cells := cellsOf(p.name(), p.short(), fmt.Sprintf("%d", p.LargestBatch),
		fmt.Sprintf("%.1f of %s, %.0f%%", float64(p.PeakBytes)/units.GiB,
			units.InGiB(p.MemoryBytes), 100*used), around(p.RunHours), around(p.Cost),
		known(p.EnergyKWh, func(r profile.Range) string { return rough(r.Likely) }), p.bound())
	cells[3].Meter, cells[3].Limit = used, float64(p.BudgetBytes)/memory
	return row{Cells: cells}
}

// bound is what limits the speed, and whether that was measured.
func (p gpuPlan) bound() string {
	switch {
	case p.Calibrated:
		return p.Bound + ", calibrated"
	case p.Measured != "":
		return p.Bound + ", measured"
	}
	return p.Bound
}

// short is "8 × 4, bf16", with what else the plan needs.
func (p gpuPlan) short() string {
	lora := ""
	if p.LoRARank > 0 {
		lora = fmt.Sprintf("LoRA %d", p.LoRARank)
	}
	return joined(shortSettings(p.Settings), lora)
}

// around is "2.7 (1.5–4.7)".
func around(r *profile.Range) string {
	return known(r, func(r profile.Range) string {
		return fmt.Sprintf("%s (%s–%s)", short(r.Likely), rough(r.Low), rough(r.High))
	})
}

func (p gpuPlan) unfit() notice {
	n := notice{Level: "warning", What: fmt.Sprintf("%s (%s of %s to use): does not fit", p.name(),
		units.InGiB(p.BudgetBytes), units.InGiB(p.MemoryBytes))}
	for _, w := range p.Remedies {
		sign := "✗"
		if w.Fits {
			sign = "→"
		}
		n.Lines = append(n.Lines, fmt.Sprintf("%s %s: %s", sign, w.What,
			units.InGiB(w.PeakBytes)))
	}
	return n
}

// foot lists prices with their sources, and what the figures are based on.
func (r comparisonRecord) foot() []string {
	cards, order := map[string][]string{}, []string(nil)
	for _, plan := range r.Plans {
		if plan.Price == nil {
			continue
		}
		where := joined(plan.Price.Provider, plan.Price.Date, plan.Price.Source)
		if cards[where] == nil {
			order = append(order, where)
		}
		card := fmt.Sprintf("%s %.2f", plan.Price.GPU, plan.Price.Hour)
		if !slices.Contains(cards[where], card) {
			cards[where] = append(cards[where], card)
		}
	}
	for i, where := range order {
		order[i] = fmt.Sprintf("%s (%s)", strings.Join(cards[where], ", "), where)
	}
	var lines []string
	if len(order) > 0 {
		lines = append(lines, "dollars per hour and GPU: "+strings.Join(order, "; "))
	}
	if slices.ContainsFunc(r.Plans, func(p gpuPlan) bool { return p.Fits && p.Unverified }) {
		lines = append(lines, "some published figures of these cards were not checked against a "+
			"source")
	}
	return append(lines, r.Assumptions...)
}

// joined joins the texts that are not empty with commas.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool {
		return text == ""
	}), ", ")
}

// largestRecord are the known models on one GPU, the largest first.
type largestRecord struct {
	GPU     string  `json:"gpu"`
	Budget  float64 `json:"budget_bytes"`
	Seconds float64 `json:"seconds"`
	Models  []struct {
		Name       string          `json:"name"`
		Parameters float64         `json:"parameters"`
		Full       estimate.Remedy `json:"full"`
		EightBit   estimate.Remedy `json:"eight_bit"`
		Lora       estimate.Remedy `json:"lora"`
	} `json:"models"`
}

func largest(r largestRecord) Document {
	changes := []string{"fully", "fully, 8-bit optimizer", "LoRA"}
	best := []string{"none", "none", "none"}
	t := table{Head: append([]string{"model", "parameters"}, changes...)}
	for _, m := range r.Models {
		cells := row{Cells: cellsOf(name(m.Name), parameters(m.Parameters))}
		for i, w := range []estimate.Remedy{m.Full, m.EightBit, m.Lora} {
			if w.Fits && best[i] == "none" {
				best[i] = name(m.Name)
			}
			c := fitting(w.Fits)
			c.Text = strings.Fields(c.Text)[0] + " " + units.InGiB(w.PeakBytes)
			cells.Cells = append(cells.Cells, c)
		}
		t.Rows = append(t.Rows, cells)
	}
	var first []string
	for i, words := range changes {
		first = append(first, fmt.Sprintf("largest, %s: %s", words, best[i]))
	}
	title := fmt.Sprintf("%s, %s to use, clips up to %.6g s, gradient checkpointing", name(r.GPU),
		units.InGiB(r.Budget), r.Seconds)
	short := t
	short.Brief = shownRows
	return Document{Title: title, Blocks: []Block{allFacts(first...), t},
		Brief: []Block{allFacts(append([]string{title}, first...)...), short}}
}
