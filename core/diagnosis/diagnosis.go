// Package diagnosis finds what slowed a training down, from its run log: findings with figures, and
// one change for each. It is pure. The targets are GPU 75 to 95 % busy, GPU memory 80 to 95 % used,
// CPU 50 to 80 % busy.
package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Finding is one thing that held a run back, with what shows it and what to change.
type Finding struct {
	Kind     string `json:"kind"`     // the rule: "loader", "small_batch", …
	Severity string `json:"severity"` // "critical", "warn" or "info"
	Title    string `json:"title"`    // what is the case
	Evidence string `json:"evidence"` // the figures that show it, and over which steps or time
	Change   string `json:"change"`   // the one thing to change
	// that change for programs: an argument of TrainingArguments; "" for none
	Setting string `json:"setting"`
	Value   string `json:"value"` // and its new value

	lost float64 // share of the time that it costs, estimated; findings are ordered by it
}

// with sets what to change, and the argument for programs.
func (f Finding) with(setting, value, change string) *Finding {
	f.Setting, f.Value, f.Change = setting, value, change
	return &f
}

// Info is the severity of a finding that costs little, below those of alerts.
const Info = "info"

// Run is what is known of the training's settings; nil: not known. Names are those of
// TrainingArguments where it has them.
type Run struct {
	PerDeviceBatch    *int    `json:"per_device_batch"`
	Accumulation      *int    `json:"accumulation"`
	Devices           *int    `json:"devices"`
	Workers           *int    `json:"workers"`
	Prefetch          *int    `json:"prefetch"` // batches a worker
	PersistentWorkers *bool   `json:"persistent_workers"`
	PinMemory         *bool   `json:"pin_memory"`
	LoggingSteps      *int    `json:"logging_steps"`
	EvalSteps         *int    `json:"eval_steps"`
	SaveSteps         *int    `json:"save_steps"`
	Precision         *string `json:"precision"`
	CPUs              *int    `json:"cpus"`
}

type rule func(f *figures, run Run) *Finding

// rules are all of them. They see figures in which NaN is what was not seen, so that every
// comparison with it fails.
var rules = []rule{
	leak, outOfMemory, failingGPU, nearlyOutOfMemory, lowRAM, fullShm, swapping,
	contended, starved, notPersistent, littlePrefetch, idleBoth, smallBatch, overPCIe,
	heat, power, brake, heldClock, checkpoints, evaluations, logging, otherProcesses, gaps,
	headroomForMore, halfPrecision,
}

// Of diagnoses a run log: findings by severity, then by the time they cost. There is always one:
// that all is well, or that there were too few readings to tell.
func Of(s *runlog.Log, run Run) []Finding {
	f := measure(s)
	findings := []Finding{}
	for _, rule := range rules {
		if finding := rule(f, run); finding != nil {
			findings = append(findings, *finding)
		}
	}
	Sort(findings)
	if len(findings) == 0 || findings[0].Severity == Info {
		findings = append([]Finding{noFinding(f)}, findings...)
	}
	return findings
}

// Sort puts the gravest first, and among equals what costs the most time.
func Sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(severityRank(b.Severity), severityRank(a.Severity)),
			cmp.Compare(b.lost, a.lost))
	})
}

func severityRank(severity string) int {
	return slices.Index([]string{Info, runlog.SeverityWarn, runlog.SeverityCritical}, severity)
}

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

// cpuBound is of a CPU that is always busy although the loader keeps up.
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
