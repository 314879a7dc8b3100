package diagnosis

import (
	"cmp"
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	waitShare   = 0.15 // of the steps' time, for the loader
	someWait    = 0.05
	lowGPU      = 0.50
	aimedGPU    = 0.75
	lowCPU      = 0.50
	fullCPU     = 0.85
	shortStep   = 0.5 // seconds
	fullPCIe    = 5e9 // bytes/s both ways on average; PCIe 3.0 × 16 carries 12 to 13
	mostWorkers = 8
	// of the run's time, in which the alert held: a shorter while is not worth a finding
	contendedShare = 0.1
)

const stopOthers = "see in top which processes use the CPU, and stop what is no part of " +
	"this training"

// othersComputeMore reports whether processes that are no part of the training use more of the CPU.
func (f *figures) othersComputeMore() bool { return f.cpu-f.own > f.own }

// busy is the utilisation of the card that works least.
func (f *figures) busy() float64 {
	return lowest(f.ofCards(func(c card) float64 { return c.busy }))
}

func (f *figures) ofCards(figure func(card) float64) (values runlog.Column) {
	for _, c := range f.gpus {
		values = append(values, figure(c))
	}
	return values
}

// contended reports that other processes used the cores that threads of the training waited for, as
// alerts of the running training told.
func contended(f *figures, _ Run) *Finding {
	var last runlog.Alert
	openS := 0.0
	for _, a := range f.log.Alerts {
		if a.Kind == runlog.AlertCPU {
			last, openS = a, openS+*cmp.Or(a.ClearedS, &f.log.DurationS)-profile.Or(a.SinceS, a.AtS)
		}
	}
	open := share(openS, f.log.DurationS)
	if !(open >= contendedShare) {
		return nil
	}
	return &Finding{
		Kind: runlog.AlertCPU, Severity: runlog.SeverityWarn,
		Title:    "The training's threads waited for CPU cores that other processes used",
		Evidence: fmt.Sprintf("%s of the time; then: %s", units.Percent(min(1, open)), last.Text),
		Change:   last.Advice, lost: min(1, open),
	}
}

// starved reports a GPU that waits for data. The remedy depends on what the CPU does.
func starved(f *figures, run Run) *Finding {
	if !(f.waited >= waitShare) || f.busy() > 0.9 {
		return nil
	}
	device, busy := "training", ""
	if len(f.gpus) > 0 {
		device, busy = "GPU", fmt.Sprintf("GPU busy %s, ", units.Percent(f.busy()))
	}
	finding := &Finding{
		Kind: "loader", Severity: runlog.SeverityWarn,
		Title: fmt.Sprintf("The %s waits for the data loader", device), lost: f.waited,
		Evidence: fmt.Sprintf("%s of the steps' time was spent waiting for batches %s; %sCPU %s",
			units.Percent(f.waited), f.over(), busy, units.Percent(f.cpu)),
	}
	if f.cpu > fullCPU {
		finding.Kind, finding.Title = "cpu_saturated",
			fmt.Sprintf("The CPU cannot prepare batches as fast as the %s uses them", device)
		finding.Change = "compute features once with dataset.map(...) before the training, " +
			"instead of in every epoch"
		if f.othersComputeMore() {
			finding.Evidence += ", this training " + units.Percent(f.own)
			finding.Change = stopOthers
		}
		return finding
	}
	workers, cpus := run.Workers, profile.Or(run.CPUs, f.log.Host.CPUs)
	more := max(2, min(mostWorkers, cpus-1))
	if workers != nil && *workers > 0 {
		more = min(2**workers, max(cpus-1, *workers+1))
	}
	if workers != nil && *workers >= max(cpus-1, mostWorkers) && f.cpu < lowCPU {
		finding.Kind, finding.Title =
			"slow_storage", fmt.Sprintf("The %s and the CPU both wait for the storage", device)
		finding.Evidence += fmt.Sprintf("; %d workers read %s", *workers,
			amount(f.disk, units.Rate))
		finding.Change = "copy the dataset to a local disk (or to RAM) before the training"
		return finding
	}
	finding.Setting, finding.Value = "dataloader_num_workers", fmt.Sprint(more)
	finding.Change = fmt.Sprintf("set dataloader_num_workers=%d", more)
	if workers != nil {
		finding.Change += fmt.Sprintf(", now %d", *workers)
	}
	return finding
}

func notPersistent(f *figures, run Run) *Finding {
	if !(f.waited >= someWait) || profile.Or(run.PersistentWorkers, true) ||
		profile.Or(run.Workers, 0) == 0 {
		return nil
	}
	return &Finding{
		Kind: "persistent_workers", Severity: Info, Title: "Workers restart in every epoch",
		lost: 0.01,
		Evidence: fmt.Sprintf("%d workers without persistent_workers, and %s of the steps' time "+
			"spent waiting for batches %s", *run.Workers,
			units.Percent(f.waited), f.over()),
		Change: "set dataloader_persistent_workers=True", Setting: "dataloader_persistent_workers",
		Value: "True",
	}
}

func littlePrefetch(f *figures, run Run) *Finding {
	if !(f.waited >= someWait) || profile.Or(run.Prefetch, 2) >= 2 ||
		profile.Or(run.Workers, 0) == 0 {
		return nil
	}
	return &Finding{
		Kind: "prefetch", Severity: Info, Title: "Few batches are prepared ahead",
		lost: f.waited / 4,
		Evidence: fmt.Sprintf("a prefetch factor of %d, and %s of the steps' time spent waiting "+
			"for batches %s", *run.Prefetch, units.Percent(f.waited), f.over()),
		Change: "set dataloader_prefetch_factor=4", Setting: "dataloader_prefetch_factor",
		Value: "4",
	}
}

func idleBoth(f *figures, run Run) *Finding {
	if !(f.busy() < lowGPU && f.cpu < lowCPU/2) || f.waited >= waitShare || f.smallSteps() ||
		slowBetweenSteps(f, run) {
		return nil
	}
	return &Finding{
		Kind: "both_idle", Severity: runlog.SeverityWarn,
		Title: "Neither the GPU nor the CPU is busy", lost: aimedGPU - f.busy(),
		Evidence: fmt.Sprintf("GPU busy %s, CPU %s %s; %s of the steps' time was spent waiting "+
			"for the loader", units.Percent(f.busy()), units.Percent(f.cpu), f.over(),
			units.Percent(f.waited)),
		Change: "copy the dataset to a local disk: slow storage is the usual cause where steps " +
			"and logging are not",
	}
}

func (f *figures) smallSteps() bool {
	return f.busy() < lowGPU && f.peak() < roomShare && !(f.waited >= waitShare) &&
		!(f.pace >= shortStep)
}

func smallBatch(f *figures, run Run) *Finding {
	if !f.smallSteps() || f.steps < leastSteps {
		return nil
	}
	return Finding{
		Kind: "small_batch", Severity: runlog.SeverityWarn,
		Title: "The micro-batch is too small to keep the GPU busy", lost: aimedGPU - f.busy(),
		Evidence: fmt.Sprintf("GPU busy %s, at most %s of its memory allocated, %s a step %s",
			units.Percent(f.busy()), units.Percent(f.peak()), units.Duration(f.pace), f.over()),
	}.with(larger(f, run))
}

func halfPrecision(f *figures, run Run) *Finding {
	if profile.Or(run.Precision, "") != "fp32" || !(f.busy() >= aimedGPU) {
		return nil
	}
	return &Finding{
		Kind: "precision", Severity: Info, Title: "The training computes in float32", lost: 0.04,
		Evidence: fmt.Sprintf("precision fp32, GPU busy %s %s", units.Percent(f.busy()), f.over()),
		Change:   "set bf16=True (fp16=True on cards before Ampere)", Setting: "bf16",
		Value: "True",
	}
}

func overPCIe(f *figures, run Run) *Finding {
	for _, c := range f.gpus {
		if !(c.pcie > fullPCIe && c.busy < aimedGPU) {
			continue
		}
		finding := &Finding{
			Kind: "pcie", Severity: runlog.SeverityWarn,
			Title: "Copies between host and GPU take much of the time",
			lost:  (aimedGPU - c.busy) / 2,
			Evidence: fmt.Sprintf("%.1f GB/s over PCIe on average, GPU %d busy %s %s", c.pcie/1e9,
				c.index, units.Percent(c.busy), f.over()),
			Change: "keep on the GPU what is copied back and forth (offloaded optimizer " +
				"states, outputs that are moved to the CPU every step)",
		}
		if !profile.Or(run.PinMemory, true) {
			finding.Setting, finding.Value, finding.Change = "dataloader_pin_memory", "True",
				`set dataloader_pin_memory=True and accelerator_config={"non_blocking": True}: `+
					"copies from pinned memory do not block"
		}
		return finding
	}
	return nil
}
