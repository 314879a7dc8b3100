package diagnosis

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	roomShare   = 0.60 // of the card: less was used at most
	aimedShare  = 0.85 // of the card, for a larger micro-batch
	lowRAMShare = 0.08
	fullShare   = 0.85 // of /dev/shm
	swapShare   = 0.01 // of the RAM
	othersShare = 0.05 // of the card
)

func outOfMemory(f *figures, run Run) *Finding {
	if f.events[runlog.EventOOM] == 0 {
		return nil
	}
	return Finding{
		Kind: "out_of_memory", Severity: runlog.SeverityCritical,
		Title: "The training ran out of GPU memory",
		Evidence: fmt.Sprintf("%s out of memory, the least left at a peak was %s of the card",
			units.Times(f.events[runlog.EventOOM]), units.Percent(f.minHeadroom)),
	}.with(smaller(f, run))
}

func nearlyOutOfMemory(f *figures, run Run) *Finding {
	if !(f.minHeadroom < runlog.LowHeadroom) || f.events[runlog.EventOOM] > 0 {
		return nil
	}
	return Finding{
		Kind: "near_out_of_memory", Severity: runlog.SeverityWarn,
		Title: "The training nearly ran out of GPU memory",
		Evidence: fmt.Sprintf("at the fullest step %.1f %% of the card were left, PyTorch's "+
			"cache counted as free, %s", 100*f.minHeadroom, f.over()),
	}.with(smaller(f, run))
}

// smaller halves the micro-batch and keeps the effective batch; where memory leaks, that would only
// delay the error.
func smaller(f *figures, run Run) (setting, value, change string) {
	if a, ranOut := f.growth(); ranOut || a != nil && f.events[runlog.EventOOM] == 0 {
		return "", "", "end the leak first: memory grows at any batch size"
	}
	batch, accumulation := profile.Or(run.PerDeviceBatch, 0), profile.Or(run.Accumulation, 0)
	switch {
	case batch == 1:
		return "gradient_checkpointing", "True",
			"set gradient_checkpointing=True: the micro-batch is 1 already"
	case batch > 1 && batch%2 == 0 && accumulation > 0:
		return "per_device_train_batch_size", fmt.Sprint(batch / 2), fmt.Sprintf(
			"set per_device_train_batch_size=%d and gradient_accumulation_steps=%d: the "+
				"effective batch stays", batch/2, 2*accumulation)
	}
	return "per_device_train_batch_size", "",
		"halve per_device_train_batch_size and double gradient_accumulation_steps"
}

func headroomForMore(f *figures, run Run) *Finding {
	if len(f.gpus) == 0 || !(f.peak() < roomShare) || f.steps < leastSteps {
		return nil
	}
	return Finding{
		Kind: "room", Severity: Info, Title: "Much of the GPU memory is unused",
		Evidence: fmt.Sprintf("at most %s of the card were allocated %s; 80 to 95 %% is the aim",
			units.Percent(f.peak()), f.over()),
		lost: 0.05,
	}.with(larger(f, run))
}

// peak is the highest share of any card that PyTorch allocated, or that was in use where PyTorch
// did not report.
func (f *figures) peak() float64 {
	return highest(f.ofCards(func(c card) float64 { return profile.Or(orNull(c.torch), c.memory) }))
}

// larger doubles the micro-batch as often as memory, taken as proportional to it, allows; weights
// do not grow, so that is careful.
func larger(f *figures, run Run) (setting, value, change string) {
	batch, accumulation := profile.Or(run.PerDeviceBatch, 0), profile.Or(run.Accumulation, 0)
	times := 1
	for peak := max(f.peak(), 0.01); 2*float64(times)*peak <= aimedShare && times < 64; {
		times *= 2
	}
	if batch == 0 || times == 1 {
		return "per_device_train_batch_size", "",
			"double per_device_train_batch_size, and halve gradient_accumulation_steps where it " +
				"is above 1"
	}
	for accumulation > 1 && times > 1 && accumulation%times != 0 {
		times /= 2
	}
	if accumulation > 1 && times > 1 {
		return "per_device_train_batch_size", fmt.Sprint(batch * times), fmt.Sprintf(
			"set per_device_train_batch_size=%d and gradient_accumulation_steps=%d: the "+
				"effective batch stays", batch*times, accumulation/times)
	}
	times = max(times, 2)
	return "per_device_train_batch_size", fmt.Sprint(batch * times), fmt.Sprintf(
		"set per_device_train_batch_size=%d; the effective batch grows with it, so scale the "+
			"learning rate by the square root of the ratio", batch*times)
}

func lowRAM(f *figures, run Run) *Finding {
	if !(f.available < lowRAMShare) {
		return nil
	}
	return Finding{
		Kind: "host_ram", Severity: runlog.SeverityWarn, Title: "Host memory was nearly used up",
		Evidence: fmt.Sprintf("at least %s of %s were available %s; DataLoader workers and other "+
			"children held up to %s", units.Percent(f.available),
			units.Size(f.log.Host.TotalBytes), f.over(),
			amount(highest(f.log.Activity.WorkersRSS), units.Size)),
	}.with(fewerWorkers(run))
}

func fullShm(f *figures, _ Run) *Finding {
	if !(f.shm > fullShare) {
		return nil
	}
	return &Finding{
		Kind: "shm", Severity: runlog.SeverityWarn, Title: "/dev/shm was nearly full",
		Evidence: fmt.Sprintf("up to %s of %s were used %s; a full one ends the loader with a "+
			"bus error", units.Percent(f.shm),
			units.Size(f.log.Host.ShmTotalBytes), f.over()),
		Change: fmt.Sprintf("start the container with docker run --shm-size=%.0fg",
			max(8, math.Ceil(2*float64(f.log.Host.ShmTotalBytes)/1e9))),
	}
}

func swapping(f *figures, run Run) *Finding {
	if !(f.swapRise > swapShare*float64(f.log.Host.TotalBytes)) || !(f.available < 2*lowRAMShare) {
		return nil
	}
	return Finding{
		Kind: "swap", Severity: runlog.SeverityWarn, Title: "The host swapped",
		Evidence: fmt.Sprintf("%s were swapped out %s, while as little as %s of the RAM was "+
			"available", units.Size(f.swapRise), f.over(),
			units.Percent(f.available)),
		lost: 0.1,
	}.with(fewerWorkers(run))
}

func fewerWorkers(run Run) (setting, value, change string) {
	if workers := profile.Or(run.Workers, 0); workers > 1 {
		return "dataloader_num_workers", fmt.Sprint(workers / 2),
			fmt.Sprintf("set dataloader_num_workers=%d, now %d", workers/2, workers)
	}
	return "dataloader_num_workers", "", "halve dataloader_num_workers"
}

func otherProcesses(f *figures, _ Run) *Finding {
	for _, c := range f.gpus {
		if c.othersShare > othersShare {
			return &Finding{
				Kind: "other_process", Severity: runlog.SeverityWarn,
				Title: "Other processes use the same card",
				Evidence: fmt.Sprintf("up to %s (%s) of GPU %d belonged to others %s",
					units.Size(c.others), units.Percent(c.othersShare), c.index, f.over()),
				Change: "end the other process, which nvidia-smi names, or choose another card " +
					"by CUDA_VISIBLE_DEVICES", lost: c.othersShare,
			}
		}
	}
	return nil
}

func amount(figure float64, text func(float64) string) string {
	if !finite(figure) {
		return "an unknown amount"
	}
	return text(figure)
}

// leaks are the alerts of memory that grows until it runs out however small the batch is, with its
// usual causes.
var leaks = map[string]struct{ title, per, change, setting, value string }{
	runlog.AlertLeak: {
		"GPU memory leaks", "step",
		"find what keeps tensors of every step: losses or logits summed up or logged with their " +
			"graph (take loss.item() or .detach()), " +
			"a list of outputs that grows, a cache without a limit, an evaluation that keeps its " +
			"outputs on the GPU (set eval_accumulation_steps=16); a smaller batch only delays " +
			"the error", "", "",
	},
	runlog.AlertEvaluation: {
		"The evaluation keeps its outputs on the GPU", "batch of the evaluation",
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
	severity, l := runlog.SeverityWarn, leaks[a.Kind]
	if ranOut {
		severity = runlog.SeverityCritical
	}
	return &Finding{Kind: "leak", Severity: severity, Title: l.title,
		Evidence: f.grown(a, l.per), Change: l.change, Setting: l.setting, Value: l.value, lost: 1}
}

// growth is the alert of a leak that ran out of memory, else of one that held to the end.
func (f *figures) growth() (open *runlog.Alert, ranOut bool) {
	for i := range f.log.Alerts {
		a := &f.log.Alerts[i]
		if _, isLeak := leaks[a.Kind]; !isLeak || a.PerStep == nil {
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
	text := fmt.Sprintf("%s grew by %s with every %s", where, units.Size(*a.PerStep), per)
	if a.Since != nil {
		text += fmt.Sprintf(" since step %d", *a.Since)
	}
	if outcome, after := f.log.Outcome(*a); outcome == runlog.OutcomeTrue {
		return text + fmt.Sprintf("; it ran out %s after the first alert", units.Duration(*after))
	}
	return text + "; it still grew when the log ends"
}
