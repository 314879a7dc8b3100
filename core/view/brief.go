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

// briefLines are the most lines of a short form: a command adds one, what to do next, and a screen
// of 15 lines is full.
const briefLines = 14

// brief is a document's short form: what to do and what it gives, what matters most, what to look
// out for.
func (d Document) brief(width int) []string {
	if d.Brief == nil {
		return d.lines(width)
	}
	lines := linesOf(d.Brief, width)
	if surplus := len(lines) - briefLines + 1; surplus > 1 {
		lines = append(lines[:briefLines-1], fmt.Sprintf("… and %d more lines", surplus))
	}
	return lines
}

// oneLine are texts of a line each, cut where they are longer.
type oneLine []string

func (oneLine) templateName() string { return "facts" }

func (o oneLine) lines(width int) []string {
	lines := make([]string, len(o))
	for i, text := range o {
		lines[i] = clipped(text, width)
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

// deciding are the settings that make most of a plan's speed, where the reader has not changed
// others.
var deciding = []string{"gradient_checkpointing", "micro_batching", "length_handling",
	"per_device_train_batch_size", "fp16", "bf16"}

// shortDecisions are what was changed, what gains most, and the batch: three lines.
func (r planRecord) shortDecisions() oneLine {
	var lines []string
	take := func(matters func(decision) bool) {
		for _, setting := range deciding {
			for _, d := range r.Decisions {
				if line := d.short(); d.Setting == setting && matters(d) && len(lines) < 3 &&
					!slices.Contains(lines, line) {
					lines = append(lines, line)
				}
			}
		}
	}
	take(func(d decision) bool { return d.Overridden })
	take(func(d decision) bool { return d.Gain != "" })
	take(func(d decision) bool { return d.Value != "false" })
	return lines
}

// short is "gradient_checkpointing = false, 1.30× faster than on: 3 clips of 25 s fit with it off,
// 7 with it on".
func (d decision) short() string {
	text := fmt.Sprintf("  %s = %s", d.Setting, or(d.Value, unknown))
	switch {
	case d.Overridden:
		return text + fmt.Sprintf(", overridden; planned: %s", d.Planned)
	case d.Gain != "" && d.Alternative != "":
		text += fmt.Sprintf(", %s than %s", d.Gain, d.Alternative)
	}
	return text + ": " + d.Reason
}

// inputs are what the plan was made from, a line each.
func (r planRecord) inputs() (blocks []Block) {
	if r.Hardware != nil {
		blocks = append(blocks, oneLine{machineLine(*r.Hardware)})
	}
	if d := r.Dataset; d != nil {
		line := datasetFacts(*d)[0]
		if d.MeasuredCount > 0 {
			r := d.RowKind
			line = fmt.Sprintf("%s, %s, %s–%s %s, mean %s %s (%s)", r.Count(d.SampleCount),
				r.Amount(d.TotalHours), r.Figure("%.2f", d.MinS), r.Figure("%.2f", d.MaxS),
				r.Unit(),
				r.Figure("%.2f", d.MeanS), r.Unit(), d.Source)
		}
		blocks = append(blocks, oneLine{line})
	}
	if r.Model != nil {
		blocks = append(blocks, oneLine(modelLines(*r.Model)[:1]))
	}
	return blocks
}

// machineLine is "2 × Tesla T4, 15.0 GiB; CPU 2 cores, RAM 20.3 GiB available of 23.5 GiB".
func machineLine(h profile.Hardware) string {
	if len(h.GPUs) == 0 {
		return hardwareLines(h)[0] + "; " + hostLine(h)
	}
	var names []string
	for _, g := range h.GPUs {
		names = append(names, fmt.Sprintf("%s, %s", name(g.Name),
			inGiB(float64(g.MemoryTotalBytes))))
	}
	return several(names) + "; " + hostLine(h)
}

func (r planRecord) brief() []Block {
	gives := r.gives()
	if t := r.Config.Times; t != nil {
		gives += fmt.Sprintf("; %s in %s", epochs(r.Config.NumTrainEpochs), hours(t.RunHours))
		if t.CostUSD != nil {
			gives += fmt.Sprintf(", %s US$", rough(t.CostUSD.Likely))
		}
	}
	return append(r.inputs(), allFacts(r.what(), gives), r.shortDecisions(), r.shortCautions())
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
					inGiB(float64(plan.MemoryBytes))), Class: "tight"},
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
	blocks := []Block{oneLine{title}, oneLine{strings.Join(r.best(), "; ")}, t}
	if others != nil {
		blocks = append(blocks, oneLine{"… and " + strings.Join(others, ", ")})
	}
	return blocks
}

// brief is the verdict, the figures, and what holds the memory.
func (r memoryRecord) brief(title string) []Block {
	var holds []string
	for _, component := range ordered(r.AtPeak.Components) {
		bytes := r.AtPeak.Components[component]
		holds = append(holds, fmt.Sprintf("%s %s (%.0f%%)", strings.ReplaceAll(component, "_", " "),
			units.Size(bytes), 100*bytes/max(r.PeakAllocated, 1)))
	}
	blocks := []Block{allFacts(title), r.verdict(), allFacts(r.peaks())}
	if len(holds) > 0 {
		blocks = append(blocks, allFacts("held by "+strings.Join(holds, ", ")))
	}
	return append(blocks, few(r.remarks().Items, 4))
}

// briefDataset is how much there is, its lengths in a line, what padding costs, and what is wrong
// with it.
func briefDataset(d profile.Dataset, facts []string) []Block {
	blocks := []Block{oneLine(facts)}
	if drawable(d) {
		edges, r := d.Histogram.EdgesS, d.RowKind
		blocks = append(blocks, oneLine{fmt.Sprintf("%s: %s %s %s %s %s", byLength(r),
			r.Figure("%.3g", edges[0]), r.Unit(), heights(d.Histogram.Counts),
			r.Figure("%.3g", edges[len(edges)-1]), r.Unit())})
	}
	if d.MeasuredCount > 1 && len(d.Padding) > 0 {
		blocks = append(blocks, oneLine{paddingWords(d)})
	}
	var wrong []string
	for _, warning := range d.Warnings {
		wrong = append(wrong, marks["warning"]+" "+warning)
	}
	if d.BadCount > 0 {
		wrong = append(wrong, fmt.Sprintf("%s %s left out", marks["warning"],
			count(d.BadCount, badNoun(d))))
		for _, bad := range d.BadFiles[:min(len(d.BadFiles), 3)] {
			wrong = append(wrong, fmt.Sprintf("   %s: %s", bad.Path, bad.Error))
		}
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
