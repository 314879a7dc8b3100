package view

import (
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
	doc := Document{Title: r.title(), Blocks: []Block{r.settings(),
		allFacts("policy " + r.Config.Policy + ", preset " + r.Config.Preset)}, Brief: r.brief(),
		BriefWidth: terminalWidth}
	add := func(blocks ...Block) { doc.Blocks = append(doc.Blocks, blocks...) }
	add(r.cautions(true)...)
	var machine []string
	if r.Hardware != nil {
		machine = hardwareLines(*r.Hardware)
	}
	if r.Model != nil {
		machine = append(machine, modelLines(*r.Model)...)
	}
	if machine != nil {
		add(section{Title: "Hardware and model", Body: []Block{allFacts(machine...)}})
	}
	add(r.devices()...)
	add(beside{r.data(), append(r.memory(), r.times()...)},
		section{Title: "Decisions", Body: decisionGroups(r.Decisions)})
	add(r.alternatives()...)
	add(section{Title: "Cautions", Body: r.cautions(false)})
	return doc
}

// title is "Optimized Settings for facebook/wav2vec2-xls-r-300m".
func (r planRecord) title() string {
	if r.Model == nil || r.Model.Name == "" {
		return settingsTitle
	}
	return settingsTitle + " for " + name(r.Model.Name)
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
	counts := map[string]int{}
	var order []string
	for _, gpu := range names {
		if counts[gpu] == 0 {
			order = append(order, gpu)
		}
		counts[gpu]++
	}
	for i, gpu := range order {
		order[i] = name(gpu)
		if n := counts[gpu]; n > 1 {
			order[i] = fmt.Sprintf("%d × %s", n, name(gpu))
		}
	}
	return strings.Join(order, " + ")
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
func (r planRecord) devices() []Block {
	if len(r.Config.Devices) < 2 {
		return nil
	}
	t := table{Head: []string{"GPU", "name", r.Config.RowKind.Nouns() + " a step", "micro-batch",
		"peak", "budget"}}
	for _, d := range r.Config.Devices {
		filled := float64(d.PeakBytes) / max(1, float64(d.BudgetBytes))
		t.Rows = append(t.Rows, row{Cells: []cell{
			{Text: fmt.Sprintf("%d", d.Index)}, {Text: name(d.Name)},
			{Text: fmt.Sprintf("%d", d.Samples)}, {Text: fmt.Sprintf("%d", d.MicroBatchSize)},
			{Text: units.InGiB(d.PeakBytes), Class: "tight", Meter: filled},
			{Text: units.InGiB(d.BudgetBytes), Class: "tight"},
		}})
	}
	return []Block{section{Title: "Devices", Body: []Block{t}}}
}

// memory is one bar of the parts behind what was in use, against the worst order, the budget and
// the end of memory.
func (r planRecord) memory() []Block {
	m, others, peak := r.Memory, float64(r.Memory.OthersBytes), float64(r.Memory.PeakBytes)
	if peak <= 0 {
		return nil
	}
	most := max(m.PeakBytes, profile.Or(m.HighBytes, 0), profile.Or(m.BudgetBytes, 0))
	extent := max(others+float64(most), float64(profile.Or(m.TotalBytes, 1)))
	b := bars{Kind: "bars", Title: "memory of a device", Unit: "bytes", Top: 1.02 * extent,
		Rows: []barRow{{}}, Ticks: true, Legend: true}
	if others > 0 {
		b.Rows[0].Parts = append(b.Rows[0].Parts, segment{Name: "in use already", Value: others,
			Text: units.Size(others), Colour: "before"})
	}
	slices.SortStableFunc(m.Parts, func(a, b profile.Part) int {
		return byComponent(a.Name, b.Name)
	})
	for i, p := range m.Parts {
		share := fmt.Sprintf("%.0f%%", 100*float64(p.Bytes)/peak)
		b.Rows[0].Parts = append(b.Rows[0].Parts,
			component(i+1, p.Name, float64(p.Bytes), share))
	}
	b.Levels = append(b.Levels, level{Name: "peak", At: others + peak,
		Text: units.Size(peak)})
	if high := m.HighBytes; high != nil && *high > m.PeakBytes {
		b.Levels = append(b.Levels, level{Name: "worst order", At: others + float64(*high),
			Text: units.Size(*high), Class: "worst"})
	}
	if budget := m.BudgetBytes; budget != nil {
		b.Levels = append(b.Levels, level{Name: "budget", At: others + float64(*budget),
			Text: units.Size(*budget), Limit: true})
	}
	if total := m.TotalBytes; total != nil {
		b.Levels = append(b.Levels, level{Name: "total", At: float64(*total),
			Text: units.Size(*total), Class: "end"})
	}
	where := r.Config.GPUName
	if where == "" {
		where = "RAM"
	}
	return []Block{section{Title: "Memory of a device", Note: "predicted, " + name(where),
		Body: []Block{b}}}
}

// times are tiles of what training takes.
func (r planRecord) times() []Block {
	t := r.Config.Times
	if t == nil {
		return nil
	}
	figures := tiles{spread("step", ranged(t.StepS, " s")), pace(r.Config.RowKind, t.AudioRate),
		spread("bound by", t.Bound)}
	if t.EnergyKWh != nil {
		figures = append(figures, spread("energy of run", ranged(*t.EnergyKWh, " kWh")))
	}
	note := "estimate with its range"
	if t.Calibrated {
		note = "by measured steps"
	} else if t.Measured != "" {
		note = "by kernels measured on " + t.Measured + ", with its range"
	}
	note += runShares(t.RunParts)
	return []Block{section{Title: "Times", Note: note, Body: []Block{figures}}}
}

// pace is a tile of how much is trained on a second: seconds of audio, or tokens.
func pace(kind units.RowKind, r profile.Range) tile {
	if kind.AreTexts() {
		return spread(kind.Unit(), ranged(profile.Range{Low: kind.In(r.Low),
			Likely: kind.In(r.Likely), High: kind.In(r.High)}, " /s"))
	}
	return spread(kind.Content(), ranged(r, " s/s"))
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

// spread is a tile of "1.2 h (0.7–2.1)", its range below.
func spread(title, text string) tile {
	value, around, _ := strings.Cut(text, " (")
	return tile{Name: title, Value: value, Note: strings.TrimSuffix(around, ")")}
}
