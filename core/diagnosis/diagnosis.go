// Package diagnosis finds what slowed a training down, from its run log: findings with figures, and
// one change for each. It is pure. The targets are GPU 75 to 95 % busy, GPU memory 80 to 95 % used,
// CPU 50 to 80 % busy.
package diagnosis

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/runlog"
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
func (f *Finding) with(setting, value, change string) *Finding {
	f.Setting, f.Value, f.Change = setting, value, change
	return f
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

// rule finds one thing, or nothing.
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
