package diagnosis

import (
	"fmt"
	"math"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	savingShare     = 0.10 // of the time
	savingAim       = 0.03
	evaluatingShare = 0.30
	evaluatingAim   = 0.10
	outsideShare    = 0.15 // of the time that no step accounts for
	outsideOften    = 0.05 // with logs every few steps
	fewSteps        = 5
	goodLogging     = 50
)

func checkpoints(f *figures, run Run) *Finding {
	return paused(f, f.saving, savingShare, savingAim, "checkpoints",
		"Saving checkpoints takes much of the time", "saving checkpoints", "save_steps",
		run.SaveSteps)
}

func evaluations(f *figures, run Run) *Finding {
	return paused(f, f.evaluating, evaluatingShare, evaluatingAim, "evaluations",
		"Evaluations take much of the time", "evaluating", "eval_steps", run.EvalSteps)
}

// paused makes an interval long enough for the share to come down to the aim.
func paused(f *figures, share, threshold, aim float64, kind, title, doing, setting string,
	interval *int) *Finding {
	if !(share > threshold) {
		return nil
	}
	factor := math.Ceil(share * (1 - aim) / (aim * max(1-share, 0.01)))
	finding := &Finding{
		Kind: kind, Severity: runlog.SeverityWarn, Title: title, lost: share - aim,
		Evidence: fmt.Sprintf("%s of the time was spent %s %s", units.Percent(share), doing,
			f.over()),
		Setting: setting, Change: fmt.Sprintf("set %s to %.0f times what it is", setting, factor),
	}
	if interval != nil && *interval > 0 {
		finding.Value = fmt.Sprintf("%.0f", factor*float64(*interval))
		finding.Change = fmt.Sprintf("set %s=%s, now %d", setting, finding.Value, *interval)
	}
	return finding
}

func loggedOften(f *figures, run Run) bool {
	often := run.LoggingSteps != nil && *run.LoggingSteps <= fewSteps && f.outside > outsideOften
	return often || f.outside > outsideShare
}

// logging reports time that neither steps nor evaluations nor checkpoints account for.
func logging(f *figures, run Run) *Finding {
	if !loggedOften(f, run) {
		return nil
	}
	finding := &Finding{
		Kind: "logging", Severity: runlog.SeverityWarn, Title: "Much time passes between the steps",
		lost: f.outside,
		Evidence: fmt.Sprintf("%s of the time is outside steps, evaluations and checkpoints %s",
			units.Percent(f.outside), f.over()),
		Change: fmt.Sprintf("set logging_steps=%d", goodLogging), Setting: "logging_steps",
		Value: fmt.Sprint(goodLogging),
	}
	if steps := orElse(run.LoggingSteps, 0); steps >= goodLogging {
		finding.Setting, finding.Value = "", ""
		finding.Change = fmt.Sprintf(
			"check what callbacks do after each step: logging_steps is %d already", steps)
	} else if steps > 0 {
		finding.Change += fmt.Sprintf(", now %d", steps)
	}
	return finding
}

// halfPrecision reports a busy card that trains in float32 and would be faster in 16 bits.
func halfPrecision(f *figures, run Run) *Finding {
	if orElse(run.Precision, "") != "fp32" || !(f.busy() >= aimedGPU) {
		return nil
	}
	return &Finding{
		Kind: "precision", Severity: Info, Title: "The training computes in float32", lost: 0.04,
		Evidence: fmt.Sprintf("precision fp32, GPU busy %s %s", units.Percent(f.busy()), f.over()),
		Change:   "set bf16=True (fp16=True on cards before Ampere)", Setting: "bf16",
		Value: "True",
	}
}

// noFinding reports that nothing was found, with the figures and their targets, or that there were
// too few readings, or that a cause is missing.
func noFinding(f *figures) Finding {
	if f.steps < leastSteps && !finite(f.cpu) {
		return Finding{
			Kind: "too_short", Severity: Info, Title: "Too few readings for a diagnosis",
			Evidence: fmt.Sprintf("%s and %s in %s", fault.Plural(f.steps, "training step"),
				fault.Plural(len(f.log.Activity.TimesS), "reading"),
				units.Duration(f.log.DurationS)),
			Change: "let the monitor watch a few minutes of training",
		}
	}
	if f.cpu > fullCPU && !(f.busy() >= aimedGPU) {
		return fullProcessors(f)
	}
	if f.busy() < lowGPU {
		return Finding{
			Kind: "low_gpu", Severity: runlog.SeverityWarn,
			Title: "The GPU is not busy, and the readings do not show why",
			lost:  aimedGPU - f.busy(),
			Evidence: fmt.Sprintf(
				"GPU busy %s, CPU %s, at most %s of GPU memory, waiting for data %s %s",
				units.Percent(f.busy()), units.Percent(f.cpu),
				units.Percent(f.peak()), units.Percent(f.waited), f.over()),
			Change: "look at ten steps with torch.profiler: the gaps between kernels show what " +
				"the GPU waits for",
		}
	}
	return Finding{
		Kind: "healthy", Severity: Info, Title: "Nothing held the training back",
		Evidence: healthyEvidence(f),
		Change:   "nothing needs to be changed",
	}
}

// fullProcessors reports a CPU that is always busy while no GPU is, and the loader keeps up.
func fullProcessors(f *figures) Finding {
	finding := Finding{
		Kind: "cpu_bound", Severity: Info,
		Title: "The training computes on the CPU, which is busy: its speed is the limit",
		Evidence: fmt.Sprintf("CPU %s, no GPU in use, waiting for data %s %s", units.Percent(f.cpu),
			units.Percent(f.waited), f.over()),
		Change: "train on a GPU: asrconfig compare estimates memory and hours on each",
	}
	if finite(f.busy()) {
		finding.Severity, finding.lost = runlog.SeverityWarn, aimedGPU-f.busy()
		finding.Title = "The CPU is busy, and the GPU waits for it"
		finding.Evidence = fmt.Sprintf("CPU %s, GPU busy %s, waiting for data %s %s",
			units.Percent(f.cpu), units.Percent(f.busy()), units.Percent(f.waited), f.over())
		finding.Change = "look which process takes the CPU (top), and give it less: features " +
			"computed once with dataset.map(...), fewer workers, fewer callbacks"
	}
	return finding
}

// healthyEvidence lists the known figures, each with its target.
func healthyEvidence(f *figures) string {
	var parts []string
	cpu := "50 to 80 %"
	if f.cpu > fullCPU {
		cpu = "the GPU is busy all the same" // else the finding is another
	}
	for _, figure := range []struct {
		name, aim string
		share     float64
	}{{"GPU busy", "75 to 95 %", f.busy()}, {"GPU memory", "80 to 95 %", f.peak()},
		{"CPU", cpu, f.cpu}} {
		if !finite(figure.share) {
			continue
		}
		if len(parts) == 0 {
			figure.aim = "aim " + figure.aim
		}
		parts = append(parts, fmt.Sprintf("%s %s (%s)", figure.name, units.Percent(figure.share),
			figure.aim))
	}
	if finite(f.waited) {
		parts = append(parts, "waiting for data "+units.Percent(f.waited))
	}
	if len(parts) == 0 {
		parts = append(parts, "only steps and pauses are known,")
	}
	return strings.Join(parts, ", ") + " " + f.over()
}
