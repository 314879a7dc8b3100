package diagnosis

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// noFinding returns the finding that comes first when no rule has a severe one: there are too few
// readings, the CPU is the limit, the GPU is not busy for an unknown reason, or nothing held the
// training back.
func noFinding(f *figures) Finding {
	if !finite(f.cpu) && !finite(f.busy()) {
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

// cpuBound reports a CPU that is always busy although the loader keeps up, while the GPU is not
// busy or there is none.
func cpuBound(f *figures) Finding {
	finding := Finding{
		Kind: "cpu_bound", Severity: Info,
		Title: "The training computes on the CPU, which is busy: its speed is the limit",
		Evidence: fmt.Sprintf("CPU %s, no GPU in use, waiting for data %s %s", units.Percent(f.cpu),
			units.Percent(f.waited), f.over()),
		Change: "train on a GPU: asrconfig compare estimates memory and hours on each",
	}
	switch {
	case finite(f.busy()):
		finding.Severity, finding.lost = runlog.SeverityWarn, aimedGPU-f.busy()
		finding.Title = "The CPU is busy, and the GPU waits for it"
		finding.Evidence = fmt.Sprintf("CPU %s, GPU busy %s, waiting for data %s %s",
			units.Percent(f.cpu), units.Percent(f.busy()), units.Percent(f.waited), f.over())
		finding.Change = "see in top which process uses the CPU, and give it less to do: " +
			"features computed once with dataset.map(...), fewer workers, fewer callbacks"
	case f.othersComputeMore():
		finding.Kind, finding.Severity = runlog.AlertCPU, runlog.SeverityWarn
		finding.lost = f.cpu - f.own
		finding.Title = "Other processes use most of the CPU that the training computes on"
		finding.Evidence = fmt.Sprintf("CPU %s, this training %s, no GPU in use %s",
			units.Percent(f.cpu), units.Percent(f.own), f.over())
		finding.Change = stopOthers
	}
	return finding
}

// healthyEvidence lists the figures that were measured, with the targets of the package's
// documentation.
func healthyEvidence(f *figures) string {
	cpuTarget := "target 50 to 80 %"
	if f.cpu > fullCPU { // then the GPU is busy: otherwise the finding is cpuBound's
		cpuTarget = "the GPU is busy nevertheless"
	}
	var parts []string
	for _, figure := range []struct {
		name   string
		share  float64
		target string
	}{{"GPU busy", f.busy(), "target 75 to 95 %"}, {"GPU memory", f.peak(), "target 80 to 95 %"},
		{"CPU", f.cpu, cpuTarget}} {
		if finite(figure.share) {
			parts = append(parts, fmt.Sprintf("%s %s (%s)", figure.name,
				units.Percent(figure.share), figure.target))
		}
	}
	if finite(f.waited) {
		parts = append(parts, "waiting for data "+units.Percent(f.waited))
	}
	return strings.Join(parts, ", ") + " " + f.over()
}
