package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// stepParts are those of a step with their colours.
var stepParts = []struct{ name, colour string }{
	{"waiting", "#f28e2b"}, {"forward", "#4e79a7"}, {"backward", "#59a14f"},
	{"optimizer", "#b07aa1"}, {"other", otherColour},
}

const briefRows = 3 // of figures, of settings and of warnings in the short form

func benchmark(r benchmarkRecord) Document {
	title, result, warnings := r.headline(), allFacts(r.advice(), r.speeds()), r.warnings()
	figures, settings := r.figures(), r.settings()
	body := []Block{r.pace(), r.steps(), r.besides(figures)}
	doc := Document{Title: title, Blocks: slices.Concat([]Block{result}, warnings, []Block{
		allFacts(r.how()...), section{Title: "What holds the plan back", Body: r.heldBack()},
		section{Title: "Measured", Body: body},
		section{Title: "Settings that differ", Body: []Block{r.besides(settings)}},
		r.loaderAlone(), r.changes(), section{Title: "Profile (TensorBoard, ui.perfetto.dev)",
			Body: []Block{allFacts(r.Profile...)}}})}
	doc.Brief = slices.Concat([]Block{allFacts(title), result}, first(briefRows, warnings),
		[]Block{allFacts(more(len(warnings) - briefRows)...)})
	if r.Original != nil {
		doc.Brief = append(doc.Brief, r.besides(slices.Concat(first(briefRows, differing(figures)),
			first(briefRows, settings))))
	}
	doc.Brief = append(doc.Brief, allFacts(r.bottleneckLine()))
	return doc
}

func first[T any](n int, all []T) []T { return all[:min(n, len(all))] }

// headline returns the speed-up over the original settings, what those are, and the model and
// device. When the original did not train, its problem takes the place of the speed-up.
func (r benchmarkRecord) headline() string {
	where := fmt.Sprintf("%s on %s", name(r.Setting.Model), name(r.Setting.Device))
	switch {
	case r.Speedup != nil && r.Original != nil:
		return fmt.Sprintf("%s %s: %s; %s", factor(r.Speedup.Median), r.Original.Name,
			r.Original.shape(), where)
	case r.Original != nil && r.Original.Problem != "":
		return fmt.Sprintf("%s with %s: %s; the plan trains; %s", r.Original.Problem,
			r.Original.Name, r.Original.shape(), where)
	}
	return fmt.Sprintf("%s samples/s with the plan; %s", known(r.Plan.ClipsPerS, spreadOf.middle),
		where)
}

// advice returns which settings to train with, by the verdict.
func (r benchmarkRecord) advice() string {
	plan := r.Plan.shape()
	if r.Plan.setting("micro_batching") == "memory" {
		plan += ", micro-batches sized by memory"
	}
	switch r.Verdict {
	case "slower":
		return "Keep " + r.Original.Name + ": the plan (" + plan + ") is slower here"
	case "undecided":
		return "It is not clear that the plan is faster: " + plan
	}
	return "Train with the plan: " + plan
}

// speeds returns the rates of both sides and the range of the speed-up; of a plan alone, its rate
// and how long an epoch takes.
func (r benchmarkRecord) speeds() string {
	if r.Speedup == nil || r.Original == nil || r.Original.ClipsPerS == nil {
		rate := known(r.Plan.ClipsPerS, func(s spreadOf) string { return s.spanned(short) })
		return fmt.Sprintf("%s samples/s, an epoch of %s in %s", rate,
			r.Setting.RowKind.Count(r.Setting.EpochClips), r.epoch(r.Plan))
	}
	text := fmt.Sprintf("%s samples/s instead of %s; %.2f to %s in %s",
		known(r.Plan.ClipsPerS, spreadOf.middle),
		r.Original.ClipsPerS.middle(), r.Speedup.Low, factor(r.Speedup.High),
		count(r.Speedup.Count, "round"))
	if r.CPUSpeedup != nil {
		text += ", by processor time " + factor(r.CPUSpeedup.Median)
	}
	return text
}

// warnings returns notices of what makes the figures doubtful or partial, and of what was not
// measured as requested.
func (r benchmarkRecord) warnings() []Block {
	var notices []Block
	add := func(level, text string) { notices = append(notices, notice{Level: level, What: text}) }
	if r.TooFew {
		rounds := 0
		if r.Plan.ClipsPerS != nil {
			rounds = r.Plan.ClipsPerS.Count
		}
		add("warning", fmt.Sprintf(
			"too few rounds: %s of at least 5; chance alone can explain such figures",
			count(rounds, "measured round")))
	}
	if len(r.Unfinished) > 0 {
		ended := "stopped by Ctrl-C"
		if !r.Stopped {
			ended = fmt.Sprintf("ended after %s (--minutes)",
				units.Duration(60*profile.Or(r.Setting.Minutes, 0)))
		}
		add("warning", ended+"; unfinished: "+strings.Join(r.Unfinished, ", "))
	}
	if r.Original != nil && r.Original.Adapted != "" {
		add("warning", fmt.Sprintf("%s: %s; measured with %s", r.Original.Name, r.Original.Adapted,
			r.Original.batch()))
	}
	for _, note := range r.Notes {
		add("note", note)
	}
	return notices
}

// bottleneckLine returns the change that helps, or else the bottleneck; "" when nothing holds the
// plan back.
func (r benchmarkRecord) bottleneckLine() string {
	if slices.ContainsFunc(r.Options, func(o option) bool { return o.Better }) {
		return "→ " + r.NextChange
	}
	if r.Bottleneck == nil || r.Bottleneck.Severity == "info" {
		return ""
	}
	return "held back: " + r.Bottleneck.Title
}

func (r benchmarkRecord) how() []string {
	s := r.Setting
	var versions []string
	for _, program := range sortedKeys(s.Versions) {
		versions = append(versions, program+" "+s.Versions[program])
	}
	audio := ""
	if seconds := r.Plan.AudioS; seconds != nil && s.RowKind.AreTexts() {
		audio = ", " + s.RowKind.Amount(*seconds/3600)
	} else if seconds != nil {
		audio = ", " + units.Duration(*seconds) + " of audio"
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

func (r benchmarkRecord) heldBack() []Block {
	var notices []Block
	if r.Bottleneck != nil {
		next := ""
		if r.NextChange != "" {
			next = "next: " + r.NextChange
		}
		notices = append(notices, finding(*r.Bottleneck, next))
	}
	for _, f := range r.Findings {
		notices = append(notices, finding(f, ""))
	}
	return notices
}

func (r benchmarkRecord) sides() []side {
	if r.Original == nil {
		return []side{r.Plan}
	}
	return []side{*r.Original, r.Plan}
}

func (r benchmarkRecord) pace() bars {
	b := bars{Kind: "bars", Title: "samples/s", Unit: "samples/s"}
	for _, s := range r.sides() {
		if s.ClipsPerS != nil {
			b.Rows = append(b.Rows, s.ClipsPerS.bar(s.Name, s.ClipsPerS.middle()))
		}
	}
	b.Top = roomFor(b.Rows)
	return b
}

// steps are what the sides' steps consist of, as shares of a step.
func (r benchmarkRecord) steps() bars {
	b := bars{Kind: "bars", Title: "parts of a step", Unit: "%", Top: 1, Legend: true}
	for _, s := range r.sides() {
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
		if bar.Parts != nil {
			b.Rows = append(b.Rows, bar)
		}
	}
	return b
}

func (s spreadOf) bar(label, text string) barRow {
	return barRow{Name: label, Text: text, Parts: []segment{{Value: s.Median}}, Low: &s.Low,
		High: &s.High}
}

// roomFor is what the width stands for, with some space after the longest.
func roomFor(rows []barRow) float64 {
	top := 1e-9
	for _, r := range rows {
		top = max(top, *r.High)
	}
	return 1.04 * top
}

// besides is a table of rows with a column for each side.
func (r benchmarkRecord) besides(rows [][]string) table {
	head := []string{""}
	for _, s := range r.sides() {
		head = append(head, s.Name)
	}
	return plain(append([][]string{head}, rows...))
}

// figures are what was measured of the sides, the most important first; what is known of none is
// left out.
func (r benchmarkRecord) figures() (rows [][]string) {
	add := func(label string, figure func(side) string) {
		cells, measured := []string{label}, false
		for _, s := range r.sides() {
			text := figure(s)
			cells, measured = append(cells, text), measured || text != unknown
		}
		if measured {
			rows = append(rows, cells)
		}
	}
	spanned := func(label string, figure func(side) *spreadOf, text func(float64) string) {
		add(label, func(s side) string {
			return known(figure(s), func(x spreadOf) string { return x.spanned(text) })
		})
	}
	add("an epoch", r.epoch)
	add("GPU use", func(s side) string { return known(s.Readings.GPUUse, units.Percent) })
	add("peak of PyTorch", func(s side) string { return known(s.Peak, size) })
	spanned("samples/s", func(s side) *spreadOf { return s.ClipsPerS }, short)
	spanned(r.lengthRate(), func(s side) *spreadOf { return s.AudioPerS }, r.lengths)
	spanned("a step", func(s side) *spreadOf { return s.StepS }, units.Duration)
	add("micro-batches a step", side.microBatches)
	add("padding", func(s side) string { return known(s.Padding, units.Percent) })
	add("GPU memory (driver)", func(s side) string { return known(s.Readings.GPUMemory, size) })
	add("CPU use", func(s side) string {
		return known(s.CPUUse, func(x spreadOf) string { return units.Percent(x.Median) })
	})
	add("RAM", func(s side) string { return known(s.Readings.RAM, size) })
	return rows
}

func (r benchmarkRecord) epoch(s side) string {
	return known(s.ClipsPerS, func(x spreadOf) string {
		return units.Duration(float64(r.Setting.EpochClips) / x.Median)
	})
}

// lengthRate is the name of how much is trained on or loaded a second, by length.
func (r benchmarkRecord) lengthRate() string {
	if r.Setting.RowKind.AreTexts() {
		return r.Setting.RowKind.Unit() + "/s"
	}
	return "seconds of audio/s"
}

// lengths is a figure in seconds of audio, or in tokens.
func (r benchmarkRecord) lengths(seconds float64) string {
	return short(r.Setting.RowKind.In(seconds))
}

// settings are those that differ between the sides.
func (r benchmarkRecord) settings() (rows [][]string) {
	names := map[string]bool{}
	for _, s := range r.sides() {
		for setting := range s.Settings {
			names[setting] = true
		}
	}
	for _, setting := range sortedKeys(names) {
		cells := []string{setting}
		for _, s := range r.sides() {
			cells = append(cells, s.setting(setting))
		}
		rows = append(rows, cells)
	}
	return differing(rows)
}

// differing are the rows whose first and last side differ.
func differing(rows [][]string) [][]string {
	return slices.DeleteFunc(slices.Clone(rows), func(cells []string) bool {
		return cells[1] == cells[len(cells)-1]
	})
}

func (r benchmarkRecord) loaderAlone() section {
	perSecond := r.Setting.RowKind.Nouns() + "/s"
	b := bars{Kind: "bars", Title: perSecond, Unit: perSecond}
	rows := [][]string{{"workers", "prefetch", perSecond, r.lengthRate(), "first batch",
		"with persistent workers"}}
	for _, l := range r.Loader {
		prefetch := known(l.Prefetch, strconv.Itoa)
		way := "no workers"
		if l.Workers > 0 {
			way = fmt.Sprintf("%d × prefetch %s", l.Workers, prefetch)
		}
		b.Rows = append(b.Rows, l.ClipsPerS.bar(way, l.ClipsPerS.middle()))
		audio := known(l.AudioPerS, func(s spreadOf) string { return s.spanned(r.lengths) })
		rows = append(rows, []string{fmt.Sprintf("%d", l.Workers), prefetch,
			l.ClipsPerS.spanned(short), audio, units.Duration(l.StartS), units.Duration(l.AgainS)})
	}
	b.Top = roomFor(b.Rows)
	return section{Title: "Loading data alone",
		Body: []Block{b, fold{Summary: "all figures", Body: []Block{plain(rows)}}}}
}

// changes are the speed of each beside the plan's, which is the line; and what was not tried, and
// why.
func (r benchmarkRecord) changes() section {
	b := bars{Kind: "bars", Title: "speed relative to the plan", Unit: "times the plan's",
		Levels: []level{{Name: "the plan", At: 1, Limit: true}}}
	rows := [][]string{{"change", "", "speed", ""}}
	var skipped []string
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
		speed := known(o.Gain, gained)
		if o.CPUGain != nil {
			speed += ", by processor time " + gained(*o.CPUGain)
		}
		rows = append(rows, []string{o.Option, o.Value, speed, cmp.Or(o.Problem, o.Verdict)})
	}
	b.Top = max(1.04, roomFor(b.Rows))
	return section{Title: "Single changes to the plan",
		Note: "one at a time, each between two blocks of the plan", Body: []Block{b, plain(rows),
			fold{Summary: "not tried", Body: []Block{allFacts(skipped...)}}}}
}
