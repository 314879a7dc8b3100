package diagnosis

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// halfPrecision reports a busy GPU that trains in float32 and would be faster in 16 bits. It is a
// rule of the list in diagnosis.go.
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

// noFinding is the first finding of a run in which no rule found a severe one: that there are too
// few readings, that the CPU is the limit, that the GPU is not busy for an unknown reason, or that
// nothing held the training back.
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
		return cpuBound(f)
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

// cpuBound reports a CPU that is always busy, while the GPU is not or there is none, and the loader
// keeps up.
func cpuBound(f *figures) Finding {
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

// healthyEvidence lists the figures that were measured, each with its target, as in the package's
// documentation.
func healthyEvidence(f *figures) string {
	var parts []string
	cpu := "50 to 80 %"
	if f.cpu > fullCPU {
		cpu = "the GPU is busy all the same" // otherwise the finding is cpuBound's
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
