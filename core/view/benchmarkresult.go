package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	maxResultLines = 10 // of text below the headline
	maxDifferences = 5  // shown with the result
	maxWarnings    = 3
)

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

// result returns what to do, the speeds, warnings, and the differences that matter.
func (r benchmarkRecord) result() []Block {
	body := append([]Block{allFacts(r.advice(), r.speeds()), inHTML{[]Block{r.tiles()}}},
		r.warnings()...)
	if rows := r.differences(); len(rows) > 1 {
		body = append(body, plain(rows[:min(len(rows), 1+maxDifferences)]))
	}
	if line := r.bottleneckLine(); line != "" {
		body = append(body, allFacts(line))
	}
	return body
}

// truncated is a part of which text shows the first lines; HTML shows all of it.
type truncated struct {
	MaxLines int
	Body     []Block
}

func (truncated) templateName() string { return "in HTML" }

func (t truncated) lines(width int) []string {
	lines := linesOf(t.Body, width)
	if len(lines) > t.MaxLines {
		return append(lines[:t.MaxLines-1:t.MaxLines-1], "…")
	}
	return lines
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
			r.Setting.RowKind.Count(r.Setting.EpochClips), r.Plan.epoch(r.Setting.EpochClips))
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

func (s spreadOf) middle() string { return short(s.Median) }

// epoch returns how long an epoch of so many clips takes.
func (s side) epoch(clips int) string {
	return known(s.ClipsPerS, func(x spreadOf) string {
		return units.Duration(float64(clips) / x.Median)
	})
}

// warnings returns notices of what makes the figures doubtful or partial, and of what was not
// measured as requested. Text shows the first few.
func (r benchmarkRecord) warnings() []Block {
	var notices []Block
	add := func(level, text string) { notices = append(notices, notice{Level: level, What: text}) }
	if r.TooFew {
		add("warning", fmt.Sprintf(
			"too few rounds: %s of at least 5; chance alone can explain such figures",
			count(r.rounds(), "measured round")))
	}
	if len(r.Unfinished) > 0 {
		add("warning", r.ended()+"; unfinished: "+strings.Join(r.Unfinished, ", "))
	}
	if r.Original != nil && r.Original.Adapted != "" {
		add("warning", fmt.Sprintf("%s: %s; measured with %s", r.Original.Name, r.Original.Adapted,
			r.Original.batch()))
	}
	for _, note := range r.Notes {
		add("note", note)
	}
	if len(notices) > maxWarnings {
		return append(notices[:maxWarnings:maxWarnings], inHTML{notices[maxWarnings:]},
			inText{fmt.Sprintf("  … and %d more", len(notices)-maxWarnings)})
	}
	return notices
}

// rounds returns how many rounds were measured.
func (r benchmarkRecord) rounds() int {
	if r.Plan.ClipsPerS == nil {
		return 0
	}
	return r.Plan.ClipsPerS.Count
}

// ended returns why a benchmark ended before it was complete.
func (r benchmarkRecord) ended() string {
	if r.Stopped {
		return "stopped by Ctrl-C"
	}
	return fmt.Sprintf("ended after %s (--minutes)",
		known(r.Setting.Minutes, func(minutes float64) string {
			return units.Duration(60 * minutes)
		}))
}

// differences returns the settings and figures in which the sides differ, the most important ones
// first.
func (r benchmarkRecord) differences() [][]string {
	if r.Original == nil {
		return nil
	}
	rows := [][]string{{"", r.Original.Name, r.Plan.Name}}
	for _, figure := range []struct {
		name string
		of   func(side) string
	}{
		{"an epoch", func(s side) string { return s.epoch(r.Setting.EpochClips) }},
		{"GPU use", func(s side) string { return known(s.Readings.GPUUse, units.Percent) }},
		{"batch", side.batch},
		{"precision", side.precision},
		{"checkpointing", func(s side) string { return onOff(s.on("gradient_checkpointing")) }},
		{"micro-batches", side.sizing},
		{"padding", func(s side) string { return known(s.Padding, units.Percent) }},
		{"order", side.order},
		{"loader workers", func(s side) string { return s.setting("dataloader_num_workers") }},
		{"peak of PyTorch", func(s side) string { return known(s.Peak, size) }},
	} {
		if a, b := figure.of(*r.Original), figure.of(r.Plan); a != b {
			rows = append(rows, []string{figure.name, a, b})
		}
	}
	return rows
}

// shape returns "batch 8 × 4, fp16", with ", checkpointing" where that is on.
func (s side) shape() string {
	text := "batch " + s.batch() + ", " + s.precision()
	if s.on("gradient_checkpointing") {
		text += ", checkpointing"
	}
	return text
}

func (s side) batch() string {
	return s.setting("per_device_train_batch_size") + " × " +
		s.setting("gradient_accumulation_steps")
}

func (s side) precision() string {
	for _, setting := range []string{"fp16", "bf16"} {
		if s.on(setting) {
			return setting
		}
	}
	return "fp32"
}

// sizing returns how many micro-batches a step has, and whether memory decides it.
func (s side) sizing() string {
	if s.setting("micro_batching") == "memory" {
		return "by memory: " + s.microBatches() + " a step"
	}
	return s.microBatches() + " a step"
}

// order returns the order of clips: the plan's, or else the Trainer's.
func (s side) order() string {
	if order := s.setting("length_handling"); order != unknown {
		return order
	}
	if s.on("group_by_length") || s.setting("train_sampling_strategy") == "group_by_length" {
		return "grouped"
	}
	return "random"
}

func (s side) on(setting string) bool { return s.Settings[setting] == true }

// setting returns the value of a setting as text.
func (s side) setting(name string) string {
	if value := s.Settings[name]; value != nil {
		return fmt.Sprint(value)
	}
	return unknown
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
