package forecast

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	helpedShare     = 0.01   // of the memory, that a clean-up which helped brings back
	longestCooldown = 3600.0 // seconds between clean-ups that do not help
)

// Limits are shares of a memory, 0 to 1; zero limits ask for nothing.
type Limits struct {
	WarnAt     float64 `json:"warn_at"`    // raises an alert
	Hysteresis float64 `json:"hysteresis"` // below warn_at, where it ends
	CleanAt    float64 `json:"clean_at"`   // asks for a clean-up
	CooldownS  float64 `json:"cooldown_s"` // between two clean-ups
}

// Use is how full a memory is: what PyTorch's cache holds unused counts as free.
type Use struct {
	GPU      int     `json:"gpu"`            // -1: the host
	Headroom float64 `json:"headroom_bytes"` // what counts as free
	Total    float64 `json:"total_bytes"`
}

func (u Use) share() float64 { return 1 - u.Headroom/u.Total }

func (u Use) String() string {
	name := "host"
	if u.GPU >= 0 {
		name = fmt.Sprintf("GPU %d", u.GPU)
	}
	return fmt.Sprintf("%s %.1f of %.1f GiB (%.0f%%)", name, (u.Total-u.Headroom)/units.GiB,
		u.Total/units.GiB, 100*u.share())
}

// Decision is what follows from how full memory is.
type Decision struct {
	Fullest *Use
	CleanUp bool // garbage is to be collected and PyTorch's cache returned to the driver, now
	// what a clean-up is done for, and what the one before brought
	CleanUpTexts []string
	Changed      []runlog.Alert // alerts that were raised, became critical or were cleared
	Warnings     uint64         // alerts so far
	CleanUps     int            // so far
}

// Check compares memories with the limits. settleS is how long after a clean-up its gain is seen.
func (w *Forecaster) Check(atS, settleS float64, uses []Use, l Limits) Decision {
	w.lock.Lock()
	defer w.lock.Unlock()
	var d Decision
	for i, u := range uses {
		if l.WarnAt > 0 {
			w.watchUse(atS, u, l)
		}
		if d.Fullest == nil || u.share() > d.Fullest.share() {
			d.Fullest = &uses[i]
		}
	}
	if d.Fullest != nil && l.CleanAt > 0 {
		d.CleanUp, d.CleanUpTexts = w.cleanUps.check(atS, settleS, *d.Fullest, l)
	}
	w.changes.Store(w.alerts.changes)
	d.Changed, d.Warnings, d.CleanUps = w.alerts.unreported(), w.alerts.last, w.cleanUps.count
	return d
}

// watchUse raises an alert where a memory is fuller than the limit, and ends it with hysteresis. A
// GPU's is the alert of little headroom at the peak of a step, which may hold on.
func (w *Forecaster) watchUse(atS float64, u Use, l Limits) {
	kind, crowded := runlog.AlertHostRAM, &w.host.crowded
	advice := "halve dataloader_num_workers, and keep no results of steps in growing lists"
	if u.GPU >= len(w.gpus) {
		return
	}
	if u.GPU >= 0 {
		kind, crowded = runlog.AlertFull, &w.gpu(u.GPU).crowded
		advice = "if memory runs out, halve per_device_train_batch_size and double " +
			"gradient_accumulation_steps"
	}
	switch share := u.share(); {
	case share >= l.WarnAt:
		*crowded = true
		if !w.alerts.isOpen(kind, u.GPU) && !w.alerts.isOpen(runlog.AlertWorkersRAM, u.GPU) {
			f := runlog.Alert{Kind: kind, GPU: u.GPU}
			f.Text, f.Advice = fmt.Sprintf("%s is over %.0f%%", u, 100*l.WarnAt), advice
			w.alerts.raise(atS, f)
		}
	case share < l.WarnAt-l.Hysteresis && *crowded:
		*crowded = false
		if u.GPU < 0 && !(w.host.available < hostTight*w.host.total) || u.GPU >= 0 &&
			!w.gpu(u.GPU).tight() {
			w.alerts.clear(atS, kind, u.GPU)
		}
	}
}

// cleanUps are at most one in a cooldown; twice as long after each that did not help, up to an
// hour.
type cleanUps struct {
	count         int
	atS, cooldown float64 // of the last one
	before        *Use    // as long as its gain is not known
}

// check reports whether a clean-up is due, and describes it and the gain of the one before.
func (c *cleanUps) check(atS, settleS float64, u Use, l Limits) (due bool, texts []string) {
	if c.before != nil && atS-c.atS >= settleS {
		texts = append(texts, c.gain(u, l))
		c.before = nil
	}
	if u.share() < l.CleanAt || c.before != nil || c.count > 0 && atS-c.atS < c.cooldown {
		return false, texts
	}
	if c.count == 0 {
		c.cooldown = l.CooldownS
	}
	c.count++
	c.atS, c.before = atS, &u
	return true, append(texts, fmt.Sprintf("%s is over %.0f%%: unused cached memory is freed", u,
		100*l.CleanAt))
}

func (c *cleanUps) gain(after Use, l Limits) string {
	if after.GPU != c.before.GPU {
		return "the gain of the clean-up is unknown"
	}
	if back := after.Headroom - c.before.Headroom; back >= helpedShare*after.Total {
		c.cooldown = l.CooldownS
		return fmt.Sprintf("the clean-up brought %.1f GiB back: %s", back/units.GiB, after)
	}
	c.cooldown = min(max(longestCooldown, l.CooldownS), 2*c.cooldown)
	return fmt.Sprintf("the clean-up did not help, this memory is in use: %s; the next one comes "+
		"in %.0f s at the earliest. Smaller micro-batches or gradient checkpointing would help",
		after, c.cooldown)
}
