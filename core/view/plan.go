package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	planning "github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// planRecord is an explanation of a plan: the plan, what it was made from, and what to look out
// for.
type planRecord struct {
	planning.Explanation
	Hardware *profile.Hardware `json:"hardware"`
	Dataset  *profile.Dataset  `json:"dataset"`
	Model    *modelRecord      `json:"model"`
	Config   profile.Config    `json:"config"`
}

func plan(r planRecord) Document {
	var machine []string
	if r.Hardware != nil {
		machine = hardwareLines(*r.Hardware)
	}
	if r.Model != nil {
		machine = append(machine, modelLines(*r.Model)...)
	}
	title := settingsTitle
	if r.Model != nil && r.Model.Name != "" {
		title += " for " + name(r.Model.Name)
	}
	blocks := []Block{r.settings(), allFacts("policy " + r.Config.Policy + ", preset " +
		r.Config.Preset)}
	return Document{Title: title, Brief: r.brief(), BriefWidth: terminalWidth,
		Blocks: append(append(blocks, r.cautions(true)...),
			section{Title: "Hardware and model", Body: []Block{allFacts(machine...)}}, r.devices(),
			beside{{r.data()}, {r.memory(), r.times()}},
			section{Title: "Decisions", Body: decisionGroups(r.Decisions)}, r.alternatives(),
			section{Title: "Cautions", Body: r.cautions(false)})}
}

func (r planRecord) brief() []Block {
	var inputs, cautions []string
	if r.Hardware != nil {
		inputs = append(inputs, machineLine(*r.Hardware))
	}
	if r.Dataset != nil {
		inputs = append(inputs, datasetLine(*r.Dataset))
	}
	if r.Model != nil {
		inputs = append(inputs, modelLines(*r.Model)[0])
	}
	for _, c := range r.Cautions {
		if c.Level != "note" {
			cautions = append(cautions, strings.Join(append([]string{marks[c.Level], c.What},
				advice("", c.Remedy)...), " "))
		}
	}
	return []Block{allFacts(inputs...), section{Title: settingsTitle, Body: []Block{r.settings()}},
		facts{Items: cautions, Brief: 2}}
}

// decisionGroups are folds, in the order in which groups come; one with changes is open.
func decisionGroups(all []planning.DecisionRow) (folds []Block) {
	byGroup := func(d planning.DecisionRow) string { return d.Group }
	for _, decisions := range Grouped(all, byGroup) {
		group, changed := fold{Summary: decisions[0].Group}, 0
		for _, d := range decisions {
			group.Body = append(group.Body, decision(d))
			if d.Overridden {
				changed++
			}
		}
		if group.Open = changed > 0; group.Open {
			group.Summary += fmt.Sprintf(" (%d overridden)", changed)
		}
		folds = append(folds, group)
	}
	return folds
}

func decision(d planning.DecisionRow) notice {
	n := notice{What: d.Setting + " = " + cmp.Or(d.Value, unknown), Lines: advice(d.Reason, "")}
	if d.Overridden {
		n.What += fmt.Sprintf(" (overridden; planned: %s)", d.Planned)
	}
	switch {
	case d.Alternative != "" && d.Gain != "":
		n.Lines = append(n.Lines, fmt.Sprintf("instead of %s: %s", d.Alternative, d.Gain))
	case d.Alternative != "":
		n.Lines = append(n.Lines, "instead of "+d.Alternative)
	case d.Gain != "":
		n.Lines = append(n.Lines, d.Gain)
	}
	return n
}

// unequal is "22 + 10 = 32" where GPUs differ, and nobody has changed that.
func (r planRecord) unequal() string {
	total, same := 0, true
	var parts []string
	for _, d := range r.Config.Devices {
		parts = append(parts, fmt.Sprintf("%d", d.Samples))
		total += d.Samples
		same = same && d.Samples == r.Config.Devices[0].Samples
	}
	for _, d := range r.Decisions {
		if d.Overridden && (d.Setting == "per_device_train_batch_size" ||
			d.Setting == "gradient_accumulation_steps" || d.Setting == "device_count") {
			return ""
		}
	}
	if same {
		return ""
	}
	return fmt.Sprintf("%s = %d", strings.Join(parts, " + "), total)
}

// several is "NVIDIA L4 + 2 × Tesla T4": each name once, in the order of the first.
func several(names []string) string {
	var counts []string
	for _, same := range Grouped(names, name) {
		text := name(same[0])
		if len(same) > 1 {
			text = fmt.Sprintf("%d × %s", len(same), text)
		}
		counts = append(counts, text)
	}
	return strings.Join(counts, " + ")
}

// hours is "1.2 h (0.7–2.1)", short times in minutes or seconds.
func hours(r profile.Range) string {
	unit, scale := "h", 1.0
	switch {
	case r.Likely >= 0.95:
	case r.Likely*60 >= 0.95:
		unit, scale = "min", 60
	default:
		unit, scale = "s", 3600
	}
	return ranged(profile.Range{Low: r.Low * scale, Likely: r.Likely * scale, High: r.High * scale},
		" "+unit)
}

// ranged is "1.3 US$ (0.8–2.1)".
func ranged(r profile.Range, unit string) string {
	return fmt.Sprintf("%s%s (%s–%s)", rough(r.Likely), unit, rough(r.Low), rough(r.High))
}

func (r planRecord) cautions(serious bool) []Block {
	var notices []Block
	for _, c := range r.Cautions {
		if (c.Level == "serious") == serious {
			notices = append(notices, notice{Level: c.Level, What: c.What,
				Lines: advice(c.Why, c.Remedy)})
		}
	}
	return notices
}

// devices is a row for each of several GPUs; meters show the peaks in their budgets.
func (r planRecord) devices() section {
	t := table{Head: []string{"GPU", "name", r.Config.RowKind.Nouns() + " a step", "micro-batch",
		"peak", "budget"}}
	for _, d := range r.Config.Devices {
		filled := float64(d.PeakBytes) / max(1, float64(d.BudgetBytes))
		cells := cellsOf(fmt.Sprintf("%d", d.Index), name(d.Name), fmt.Sprintf("%d", d.Samples),
			fmt.Sprintf("%d", d.MicroBatchSize), units.InGiB(d.PeakBytes),
			units.InGiB(d.BudgetBytes))
		cells[4].Meter = filled
		t.Rows = append(t.Rows, row{Cells: cells})
	}
	if len(t.Rows) == 1 {
		return section{}
	}
	return section{Title: "Devices", Body: []Block{t}}
}

// memory is one bar of the parts behind what was in use, against the worst order, the budget and
// the end of memory.
func (r planRecord) memory() section {
	m, others, peak := r.Memory, float64(r.Memory.OthersBytes), float64(r.Memory.PeakBytes)
	if peak <= 0 {
		return section{}
	}
	parts := []segment(nil)
	if others > 0 {
		parts = []segment{{Name: "in use already", Value: others, Text: units.Size(others),
			Colour: "before"}}
	}
	slices.SortStableFunc(m.Parts, func(a, b profile.Part) int {
		return byComponent(a.Name, b.Name)
	})
	for i, p := range m.Parts {
		parts = append(parts, component(i+1, p.Name, float64(p.Bytes),
			fmt.Sprintf("%.0f%%", 100*float64(p.Bytes)/peak)))
	}
	b := bars{Kind: "bars", Title: "memory of a device", Unit: "bytes",
		Rows: []barRow{{Parts: parts}}, Ticks: true, Legend: true}
	line := func(l level, bytes, before float64) {
		l.At, l.Text = before+bytes, units.Size(bytes)
		b.Top = max(b.Top, 1.02*l.At)
		b.Levels = append(b.Levels, l)
	}
	line(level{Name: "peak"}, peak, others)
	if high := m.HighBytes; high != nil && *high > m.PeakBytes {
		line(level{Name: "worst order", Class: "worst"}, float64(*high), others)
	}
	if m.BudgetBytes != nil {
		line(level{Name: "budget", Limit: true}, float64(*m.BudgetBytes), others)
	}
	if m.TotalBytes != nil {
		line(level{Name: "total", Class: "end"}, float64(*m.TotalBytes), 0)
	}
	return section{Title: "Memory of a device",
		Note: "predicted, " + cmp.Or(name(r.Config.GPUName), "RAM"), Body: []Block{b}}
}

func (r planRecord) times() section {
	t := r.Config.Times
	if t == nil {
		return section{}
	}
	pace, unit := t.AudioRate, " s/s"
	if kind := r.Config.RowKind; kind.AreTexts() {
		pace, unit = pace.Times(kind.In(1)), " /s"
	}
	figures := pairs{{"step", ranged(t.StepS, " s")},
		{r.Config.RowKind.Content(), ranged(pace, unit)}, {"bound by", t.Bound}}
	if t.EnergyKWh != nil {
		figures = append(figures, [2]string{"energy of run", ranged(*t.EnergyKWh, " kWh")})
	}
	note := "estimate with its range"
	if t.Calibrated {
		note = "by measured steps"
	} else if t.Measured != "" {
		note = "by kernels measured on " + t.Measured + ", with its range"
	}
	return section{Title: "Times", Note: note + runShares(t.RunParts), Body: []Block{figures}}
}

// runShares says what a run's time goes to; nothing of a plan that does not say.
func runShares(p profile.RunParts) string {
	total := p.Training.Likely + p.Evaluation.Likely + p.Checkpoints.Likely + p.StartUp.Likely
	if !(total > 0) {
		return ""
	}
	share := func(r profile.Range) string { return fmt.Sprintf("%.2g %%", 100*r.Likely/total) }
	return fmt.Sprintf(", run: %s training, %s evaluation, %s checkpoints, %s start",
		share(p.Training), share(p.Evaluation), share(p.Checkpoints), share(p.StartUp))
}
