package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// briefLines are the most lines of a short form. Usual ones have half as many, those of plans 15 to
// 22: with what to do next a terminal of 24 lines is full.
const briefLines = 30

// brief is a document's short form: what to do and what it gives, what matters most, what to look
// out for.
func (d Document) brief(width int) []string {
	if d.Brief == nil {
		return d.lines(width)
	}
	lines := linesOf(d.Brief, width)
	if len(lines) > 0 && lines[0] == "" { // before the title of a section
		lines = lines[1:]
	}
	if surplus := len(lines) - briefLines + 1; surplus > 1 {
		lines = append(lines[:briefLines-1], fmt.Sprintf("… and %d more lines", surplus))
	}
	return lines
}

// few are the first so many of some lines, whole, so that a hint can be run, and how many are left.
func few(lines []string, limit int) facts {
	return facts{Items: lines, Brief: limit}
}

// shortCautions are the most serious cautions, each with its remedy.
func (r planRecord) shortCautions() facts {
	var lines []string
	for _, level := range []string{"serious", "warning"} {
		for _, c := range r.Cautions {
			if c.Level == level {
				lines = append(lines, strings.Join(append([]string{marks[level] + " " + c.What},
					advice("", c.Remedy)...), " "))
			}
		}
	}
	return few(lines, 2)
}

// inputs are what the plan was made from, a line each.
func (r planRecord) inputs() facts {
	var lines []string
	if r.Hardware != nil {
		lines = append(lines, machineLine(*r.Hardware))
	}
	if r.Dataset != nil {
		lines = append(lines, datasetLine(*r.Dataset))
	}
	if r.Model != nil {
		lines = append(lines, modelLines(*r.Model)[0])
	}
	return allFacts(lines...)
}

// machineLine is "2 × Tesla T4, 15.0 GiB; CPU 2 cores, RAM 20.3 GiB available of 23.5 GiB".
func machineLine(h profile.Hardware) string {
	if len(h.GPUs) == 0 {
		return hardwareLines(h)[0] + "; " + hostLine(h)
	}
	var names []string
	for _, g := range h.GPUs {
		names = append(names, fmt.Sprintf("%s, %s", name(g.Name),
			units.InGiB(g.MemoryTotalBytes)))
	}
	return several(names) + "; " + hostLine(h)
}

func (r planRecord) brief() []Block {
	return []Block{r.inputs(), section{Title: settingsTitle, Body: []Block{r.settings()}},
		r.shortCautions()}
}

const shownRows = 8 // of a table in a short form

// expense is the likely cost, and behind all that are known one that is not.
func (p gpuPlan) expense() float64 {
	if p.Cost == nil {
		return math.Inf(1)
	}
	return p.Cost.Likely
}

// brief is the cheapest and the fastest machine, and the rows that fit: of many the cheapest.
func (r comparisonRecord) brief(title string) []Block {
	t := table{Head: []string{"GPU", "plan", "peak of memory", "hours a run", "cost, $",
		"bound by"}, Brief: shownRows}
	plans := r.plans()
	if len(plans) > shownRows {
		plans = slices.SortedStableFunc(slices.Values(plans), func(a, b gpuPlan) int {
			return cmp.Compare(a.expense(), b.expense())
		})
	}
	for _, plan := range plans {
		if plan.Fits {
			t.Rows = append(t.Rows, row{Cells: []cell{{Text: plan.name(), Class: "tight"},
				{Text: plan.short()},
				{Text: fmt.Sprintf("%.1f of %s", float64(plan.PeakBytes)/units.GiB,
					units.InGiB(plan.MemoryBytes)), Class: "tight"},
				{Text: around(plan.RunHours), Class: "tight"},
				{Text: known(plan.Cost, func(c profile.Range) string {
					return number(c.Likely)
				}), Class: "tight"}, {Text: plan.bound()}}})
		}
	}
	var others []string
	if more := len(t.Rows) - shownRows; more > 0 {
		others = append(others, fmt.Sprintf("%d more that fit", more))
	}
	if unfit := len(r.Rows) - len(t.Rows); unfit > 0 {
		others = append(others, fmt.Sprintf("%d on which it does not fit", unfit))
	}
	blocks := []Block{allFacts(title, strings.Join(r.best(), "; ")), t}
	if others != nil {
		blocks = append(blocks, allFacts("… and "+strings.Join(others, ", ")))
	}
	return blocks
}

// brief is the verdict, the figures, and what holds the memory.
func (r memoryRecord) brief(title string) []Block {
	var holds []string
	for _, component := range ordered(r.AtPeak.Components) {
		holds = append(holds, fmt.Sprintf("%s %s (%s)", strings.ReplaceAll(component, "_", " "),
			units.Size(r.AtPeak.Components[component]), r.shareOfPeak(component)))
	}
	blocks := []Block{allFacts(title), r.verdict(), allFacts(r.peaks())}
	if len(holds) > 0 {
		blocks = append(blocks, allFacts("held by "+strings.Join(holds, ", ")))
	}
	return append(blocks, few(r.remarks().Items, 4))
}

// briefDataset is how much there is, its lengths in a line, what padding costs, and what is wrong
// with it.
func briefDataset(d profile.Dataset) []Block {
	blocks := []Block{allFacts(append([]string{datasetLine(d)}, datasetFacts(d)...)...)}
	if drawable(d) {
		edges, r := d.Histogram.EdgesS, d.RowKind
		blocks = append(blocks, allFacts(fmt.Sprintf("%s: %s %s %s %s %s", byLength(r),
			r.Figure("%.3g", edges[0]), r.Unit(), heights(d.Histogram.Counts),
			r.Figure("%.3g", edges[len(edges)-1]), r.Unit())))
	}
	if d.MeasuredCount > 1 && len(d.Padding) > 0 {
		blocks = append(blocks, allFacts(paddingWords(d)))
	}
	var wrong []string
	for _, warning := range d.Warnings {
		wrong = append(wrong, marks["warning"]+" "+warning)
	}
	for _, bad := range d.BadFiles[:min(len(d.BadFiles), 3)] {
		wrong = append(wrong, fmt.Sprintf("%s %s: %s", marks["warning"], bad.Path, bad.Error))
	}
	return append(blocks, few(wrong, 7))
}

// heights are counts as blocks of a height, the highest for the most; nothing for none.
func heights(counts []int) string {
	tallest := max(1, slices.Max(counts))
	drawn := make([]rune, len(counts))
	for i, n := range counts {
		drawn[i] = blocks[(n*(len(blocks)-1)+tallest-1)/tallest]
	}
	return string(drawn)
}
