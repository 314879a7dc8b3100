package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// stepParts are those of a step with their colours.
var stepParts = []struct{ name, colour string }{
	{"waiting", "#f28e2b"}, {"forward", "#4e79a7"}, {"backward", "#59a14f"},
	{"optimizer", "#b07aa1"}, {"other", otherColour},
}

func benchmark(r benchmarkRecord) Document {
	result := truncated{maxResultLines, r.result()}
	doc := Document{Title: r.headline(), Blocks: []Block{result},
		Brief: []Block{allFacts(r.headline()), result}}
	add := func(blocks ...Block) { doc.Blocks = append(doc.Blocks, blocks...) }
	add(allFacts(r.how()...))
	add(section{Title: "What holds the plan back", Body: r.heldBack()})
	add(r.bothSides()...)
	add(r.loaderAlone()...)
	add(r.changes()...)
	var files []string
	for _, path := range r.Profile {
		files = append(files, path+" (TensorBoard, ui.perfetto.dev)")
	}
	if files != nil {
		add(section{Title: "Profile", Body: []Block{allFacts(files...)}})
	}
	return doc
}

// factor is "3.00×".
func factor(gain float64) string { return fmt.Sprintf("%.2f×", gain) }

// gained is "1.20× (1.10 to 1.31)".
func gained(s spreadOf) string {
	if s.Low == s.High {
		return factor(s.Median)
	}
	return fmt.Sprintf("%s (%.2f to %.2f)", factor(s.Median), s.Low, s.High)
}

// spanned is "66.7 (60.1 to 70)".
func (s spreadOf) spanned(text func(float64) string) string {
	if s.Low == s.High {
		return text(s.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", text(s.Median), text(s.Low), text(s.High))
}

func (r benchmarkRecord) sides() []side {
	if r.Original == nil {
		return []side{r.Plan}
	}
	return []side{*r.Original, r.Plan}
}

// tiles are an epoch of each side and the speed-up.
func (r benchmarkRecord) tiles() tiles {
	var figures tiles
	for _, s := range r.sides() {
		figures = append(figures, s.tile(r.Setting.EpochClips))
	}
	if s := r.Speedup; s != nil {
		figures = append(figures, tile{Name: "speedup", Value: factor(s.Median),
			Note: fmt.Sprintf("%.2f to %.2f", s.Low, s.High)})
	}
	if s := r.CPUSpeedup; s != nil {
		figures = append(figures, tile{Name: "speedup", Value: factor(s.Median),
			Note: "by processor time"})
	}
	return figures
}

func (s side) tile(clips int) tile {
	if s.ClipsPerS == nil {
		return tile{Name: s.Name, Value: cmp.Or(s.Problem, "not measured")}
	}
	return tile{Name: s.Name, Value: short(s.ClipsPerS.Median) + " /s", Note: s.epoch(clips) +
		" an epoch"}
}

// how is how it was measured.
func (r benchmarkRecord) how() []string {
	s := r.Setting
	var versions []string
	for program, number := range s.Versions {
		versions = append(versions, program+" "+number)
	}
	slices.Sort(versions)
	audio := ""
	if r.Plan.AudioS != nil {
		audio = ", " + r.held(*r.Plan.AudioS)
	}
	return []string{
		fmt.Sprintf("times are of an epoch, %s, steps alone; samples are %s",
			s.RowKind.Count(s.EpochClips), s.RowKind.Nouns()),
		fmt.Sprintf("%s; %s; %s UTC", s.Device, strings.Join(versions, ", "), s.Date),
		fmt.Sprintf("%s; %s a step on both sides", name(s.Model), s.RowKind.Count(s.Batch)),
		fmt.Sprintf("blocks of %d steps, the same %s in each%s, after %d for warm-up; both sides "+
			"in turns, %s; medians, lowest and highest",
			s.Steps, s.RowKind.Count(r.Plan.Clips), audio, s.WarmUp, count(s.Rounds, "round")),
	}
}

// held is "20 s of audio", "1000 tokens".
func (r benchmarkRecord) held(seconds float64) string {
	if r.Setting.RowKind.AreTexts() {
		return r.Setting.RowKind.Amount(seconds / 3600)
	}
	return units.Duration(seconds) + " of audio"
}

// rates are the names of how much is trained on or loaded a second, by number and by length.
func (r benchmarkRecord) rates() (rows, lengths string) {
	kind := r.Setting.RowKind
	if kind.AreTexts() {
		return kind.Nouns() + "/s", kind.Unit() + "/s"
	}
	return kind.Nouns() + "/s", "seconds of audio/s"
}

// lengths is a figure in seconds of audio, or in tokens.
func (r benchmarkRecord) lengths(seconds float64) string {
	return short(r.Setting.RowKind.In(seconds))
}

func (r benchmarkRecord) heldBack() []Block {
	var notices []Block
	if f := r.Bottleneck; f != nil {
		lines := advice(f.Evidence, "")
		if r.NextChange != "" {
			lines = append(lines, "→ next: "+r.NextChange)
		}
		notices = append(notices, notice{Level: levelOf(f.Severity), What: f.Title, Lines: lines})
	}
	for _, f := range r.Findings {
		notices = append(notices, notice{Level: levelOf(f.Severity), What: f.Title,
			Lines: advice(f.Evidence, "")})
	}
	return notices
}

func (r benchmarkRecord) bothSides() []Block {
	pace := bars{Kind: "bars", Title: "samples/s", Unit: "samples/s"}
	steps := bars{Kind: "bars", Title: "parts of a step", Unit: "%", Top: 1, Legend: true}
	for _, s := range r.sides() {
		if s.ClipsPerS != nil {
			pace.Rows = append(pace.Rows, s.ClipsPerS.bar(s.Name, short(s.ClipsPerS.Median)))
		}
		if len(s.Blocks) > 0 {
			steps.Rows = append(steps.Rows, s.parts())
		}
	}
	pace.Top = roomFor(pace.Rows)
	body := []Block{}
	if len(pace.Rows) > 0 {
		body = append(body, pace)
	}
	if len(steps.Rows) > 0 {
		body = append(body, steps)
	}
	title := "Both sides"
	if r.Original == nil {
		title = "The plan"
	}
	sections := []Block{section{Title: title, Body: append(body, plain(r.figures()))}}
	if rows := r.settings(); len(rows) > 1 {
		sections = append(sections, section{Title: "Settings that differ",
			Body: []Block{plain(rows)}})
	}
	return sections
}

func (s spreadOf) bar(label, text string) barRow {
	return barRow{Name: label, Text: text, Parts: []segment{{Value: s.Median}}, Low: &s.Low,
		High: &s.High}
}

// roomFor is what the width stands for, with some space behind the longest.
func roomFor(rows []barRow) float64 {
	top := 1e-9
	for _, r := range rows {
		top = max(top, *r.High)
	}
	return 1.04 * top
}

// parts are what a side's steps consist of, as shares of a step.
func (s side) parts() barRow {
	total, bar := 0.0, barRow{Name: s.Name}
	for _, part := range stepParts {
		total += s.Shares[part.name]
	}
	for _, part := range stepParts {
		if share := s.Shares[part.name]; share > 0 {
			bar.Parts = append(bar.Parts, segment{Name: part.name, Value: share / max(1, total),
				Colour: part.colour, Label: units.Percent(share), Text: units.Percent(share)})
		}
	}
	return bar
}

// figures are what was measured of both sides, a row each; what nobody knows is left out.
func (r benchmarkRecord) figures() [][]string {
	sides := r.sides()
	head := []string{""}
	for _, s := range sides {
		head = append(head, s.Name)
	}
	rows := [][]string{head}
	add := func(label string, figure func(side) string) {
		cells, measured := []string{label}, false
		for _, s := range sides {
			text := figure(s)
			cells, measured = append(cells, text), measured || text != unknown
		}
		if measured {
			rows = append(rows, cells)
		}
	}
	spanned := func(figure func(side) *spreadOf, text func(float64) string) func(side) string {
		return func(s side) string {
			return known(figure(s), func(x spreadOf) string {
				return x.spanned(text)
			})
		}
	}
	add("samples/s", spanned(func(s side) *spreadOf { return s.ClipsPerS }, short))
	_, lengths := r.rates()
	add(lengths, spanned(func(s side) *spreadOf { return s.AudioPerS }, r.lengths))
	add("an epoch", func(s side) string { return s.epoch(r.Setting.EpochClips) })
	add("a step", spanned(func(s side) *spreadOf { return s.StepS }, units.Duration))
	add("micro-batches a step", side.microBatches)
	add("padding", func(s side) string { return known(s.Padding, units.Percent) })
	add("GPU use", func(s side) string { return known(s.Readings.GPUUse, units.Percent) })
	add("GPU memory (driver)", func(s side) string { return known(s.Readings.GPUMemory, size) })
	add("peak of PyTorch", func(s side) string { return known(s.Peak, size) })
	add("CPU use", func(s side) string {
		return known(s.CPUUse, func(x spreadOf) string { return units.Percent(x.Median) })
	})
	add("RAM", func(s side) string { return known(s.Readings.RAM, size) })
	for _, part := range stepParts {
		add("of a step: "+part.name, func(s side) string {
			share, ok := s.Shares[part.name]
			if !ok {
				return unknown
			}
			return units.Percent(share)
		})
	}
	return rows
}

func (s side) microBatches() string {
	low, high := 0, 0
	for _, b := range s.Blocks {
		for _, step := range b.Steps {
			if low == 0 || step.MicroBatches < low {
				low = step.MicroBatches
			}
			high = max(high, step.MicroBatches)
		}
	}
	switch {
	case high == 0:
		return unknown
	case low == high:
		return fmt.Sprintf("%d", low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// settings are those that differ between the sides.
func (r benchmarkRecord) settings() [][]string {
	head, names := []string{""}, map[string]bool{}
	for _, s := range r.sides() {
		head = append(head, s.Name)
		for setting := range s.Settings {
			names[setting] = true
		}
	}
	rows := [][]string{head}
	for _, setting := range sortedKeys(names) {
		cells, differ := []string{setting}, false
		for _, s := range r.sides() {
			text := s.setting(setting)
			differ = differ || len(cells) > 1 && text != cells[1]
			cells = append(cells, text)
		}
		if differ {
			rows = append(rows, cells)
		}
	}
	return rows
}

func (r benchmarkRecord) loaderAlone() []Block {
	if len(r.Loader) == 0 {
		return nil
	}
	perSecond, lengths := r.rates()
	b := bars{Kind: "bars", Title: perSecond, Unit: perSecond}
	rows := [][]string{{"workers", "prefetch", perSecond, lengths, "first batch",
		"with persistent workers"}}
	for _, l := range r.Loader {
		prefetch := known(l.Prefetch, func(n int) string { return fmt.Sprintf("%d", n) })
		way := "no workers"
		if l.Workers > 0 {
			way = fmt.Sprintf("%d × prefetch %s", l.Workers, prefetch)
		}
		b.Rows = append(b.Rows, l.ClipsPerS.bar(way, short(l.ClipsPerS.Median)))
		audio := known(l.AudioPerS, func(s spreadOf) string { return s.spanned(r.lengths) })
		rows = append(rows, []string{fmt.Sprintf("%d", l.Workers), prefetch,
			l.ClipsPerS.spanned(short), audio, units.Duration(l.StartS), units.Duration(l.AgainS)})
	}
	b.Top = roomFor(b.Rows)
	return []Block{section{Title: "Loading data alone",
		Body: []Block{b, fold{Summary: "all figures", Body: []Block{plain(rows)}}}}}
}

// changes are the speed of each beside the plan's, which is the line; and what was not tried, and
// why.
func (r benchmarkRecord) changes() []Block {
	b := bars{Kind: "bars", Title: "speed relative to the plan", Unit: "times the plan's",
		Levels: []level{{Name: "the plan", At: 1, Limit: true}}, Legend: false}
	var rows [][]string
	var skipped []string
	byProcessor := slices.ContainsFunc(r.Options, func(o option) bool {
		return o.CPUGain != nil && o.WhyNot == ""
	})
	for _, o := range r.Options {
		if o.WhyNot != "" {
			skipped = append(skipped, fmt.Sprintf("%s: %s", strings.TrimSpace(o.Option+" "+o.Value),
				o.WhyNot))
			continue
		}
		if o.Gain != nil {
			bar := o.Gain.bar(o.Option+" "+o.Value, factor(o.Gain.Median))
			bar.Pale = !o.Better
			b.Rows = append(b.Rows, bar)
		}
		cells := []string{o.Option, o.Value, known(o.Gain, gained)}
		if byProcessor {
			cells = append(cells, known(o.CPUGain, gained))
		}
		rows = append(rows, append(cells, cmp.Or(o.Problem, o.Verdict)))
	}
	var body []Block
	if len(b.Rows) > 0 {
		b.Top = max(1.04, roomFor(b.Rows))
		body = append(body, b)
	}
	if len(rows) > 0 {
		head := []string{"change", "", "speed"}
		if byProcessor {
			head = append(head, "by processor time")
		}
		body = append(body, plain(append([][]string{append(head, "")}, rows...)))
	}
	if len(skipped) > 0 {
		body = append(body, fold{Summary: "not tried", Body: []Block{allFacts(skipped...)}})
	}
	if len(body) == 0 {
		return nil
	}
	return []Block{section{Title: "Single changes to the plan",
		Note: "one at a time, each between two blocks of the plan", Body: body}}
}
