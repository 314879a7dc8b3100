package diagnosis

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// leaks are the alerts of memory that grows until it runs out however small the batch is, with its
// usual causes.
var leaks = []struct{ alert, title, per, change, setting, value string }{
	{
		runlog.AlertLeak, "GPU memory leaks", "step",
		"find what keeps tensors of every step: losses or logits summed up or logged with their " +
			"graph (take loss.item() or .detach()), " +
			"a list of outputs that grows, a cache without a limit, an evaluation that keeps its " +
			"outputs on the GPU (set eval_accumulation_steps=16); a smaller batch only delays " +
			"the error", "", "",
	},
	{
		runlog.AlertEvaluation, "The evaluation keeps its outputs on the GPU",
		"batch of the evaluation",
		runlog.AdviceEvaluation, "eval_accumulation_steps", "16",
	},
}

// leak reports growth that an alert announced, until memory ran out or the log ended. For a
// training that goes on it costs everything.
func leak(f *figures, _ Run) *Finding {
	a, ranOut := f.growth()
	if a == nil {
		return nil
	}
	for _, l := range leaks {
		if l.alert == a.Kind {
			severity := runlog.SeverityWarn
			if ranOut {
				severity = runlog.SeverityCritical
			}
			return &Finding{Kind: "leak", Severity: severity, Title: l.title,
				Evidence: f.grown(a, l.per), Change: l.change, Setting: l.setting, Value: l.value,
				lost: 1}
		}
	}
	return nil
}

// growth is the alert of a leak that ran out of memory, else of one that held to the end.
func (f *figures) growth() (open *runlog.Alert, ranOut bool) {
	for i := range f.log.Alerts {
		a := &f.log.Alerts[i]
		if a.PerStep == nil || a.Kind != runlog.AlertLeak && a.Kind != runlog.AlertEvaluation {
			continue
		}
		switch outcome, _ := f.log.Outcome(*a); {
		case outcome == runlog.OutcomeTrue:
			return a, true
		case outcome == runlog.OutcomeHeld && open == nil:
			open = a
		}
	}
	return open, false
}

// grown describes how fast memory grew, since when, and how it ended.
func (f *figures) grown(a *runlog.Alert, per string) string {
	where := "GPU memory"
	if a.GPU >= 0 {
		where = fmt.Sprintf("the memory of GPU %d", a.GPU)
	}
	parts := []string{fmt.Sprintf("%s grew by %s with every %s", where, units.Size(*a.PerStep),
		per)}
	if a.Since != nil {
		parts[0] += fmt.Sprintf(" since step %d", *a.Since)
	}
	switch outcome, after := f.log.Outcome(*a); outcome {
	case runlog.OutcomeTrue:
		parts = append(parts, fmt.Sprintf("it ran out %s after the first alert",
			units.Duration(*after)))
	default:
		parts = append(parts, "it still grew when the log ends")
	}
	return strings.Join(parts, "; ")
}
