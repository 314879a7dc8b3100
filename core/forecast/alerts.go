package forecast

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	maxAlerts = 256
	// seconds after a clearing within which the same warning is not raised again, unless critical;
	minCooldown = 120.0
	// doubled each time, up to this: what comes and goes all the time is known by then
	maxCooldown = 7200.0

	criticalSeconds, criticalSteps = 60, 10

	cleared = "cleared"
)

// growing is a forecast of a growth by the steps of a GPU, since a step and a time.
func (g *gpu) growing(kind string, t trend, since, sinceS, steps, seconds float64) runlog.Alert {
	const largest = 1 << 62 // a training may report any number
	step := uint64(min(max(0, math.Round(since+g.offset)), largest))
	return runlog.Alert{Kind: kind, GPU: g.index, Since: &step, SinceS: pointer(sinceS),
		PerStep: pointer(t.slope), PerS: pointer(t.slope / g.stepTimes.median()),
		Steps: pointer(steps), Seconds: pointer(seconds)}
}

type key struct {
	kind string
	gpu  int
}

// alertTable holds the alerts: at most one open for a kind and a GPU.
type alertTable struct {
	alerts  []runlog.Alert
	open    map[key]int // index into alerts
	cleared map[key]clearedAlert
	last    uint64 // ID
	changes uint64
	// changes when unreported was asked last, and what it returned of each alert: its severity, or
	// "cleared"
	asked    uint64
	reported map[uint64]string
}

// clearedAlert is when an alert ended, and for how long it is not raised again.
type clearedAlert struct{ atS, cooldown float64 }

// raise opens an alert of what a detector found, or brings the open one's numbers up to date.
func (b *alertTable) raise(atS float64, a runlog.Alert) {
	a.AtS, a.Severity = atS, runlog.SeverityWarn
	if atMost(a.Seconds, criticalSeconds) || atMost(a.Steps, criticalSteps) {
		a.Severity = runlog.SeverityCritical
	}
	k := key{a.Kind, a.GPU}
	if i, open := b.open[k]; open {
		b.update(&b.alerts[i], a)
		return
	}
	if last, ok := b.cleared[k]; ok && atS < last.atS+last.cooldown &&
		a.Severity != runlog.SeverityCritical {
		return
	}
	b.dropOldest()
	b.last++
	b.changes++
	a.ID = b.last
	b.open[k] = len(b.alerts)
	b.alerts = append(b.alerts, a)
}

func atMost(figure *float64, limit float64) bool { return figure != nil && *figure <= limit }

// update never makes a critical alert a lesser one: it stays until it is cleared.
func (b *alertTable) update(old *runlog.Alert, a runlog.Alert) {
	if old.Severity == runlog.SeverityCritical {
		a.Severity = old.Severity
	}
	if a.Severity != old.Severity {
		b.changes++
	}
	a.ID, a.AtS, a.Since = old.ID, old.AtS, cmp.Or(a.Since, old.Since)
	*old = a
}

// clear ends an alert that no longer holds.
func (b *alertTable) clear(atS float64, kind string, gpu int) {
	k := key{kind, gpu}
	if i, open := b.open[k]; open {
		b.alerts[i].ClearedS = &atS
		b.cleared[k] = clearedAlert{atS, max(minCooldown,
			min(2*b.cleared[k].cooldown, maxCooldown))}
		b.changes++
		delete(b.open, k)
	}
}

func (b *alertTable) isOpen(kind string, gpu int) bool {
	_, open := b.open[key{kind, gpu}]
	return open
}

// dropOldest makes room by dropping the oldest alert that was cleared.
func (b *alertTable) dropOldest() {
	if len(b.alerts) < maxAlerts {
		return
	}
	old := slices.IndexFunc(b.alerts, func(a runlog.Alert) bool { return a.ClearedS != nil })
	if old < 0 {
		return // as many open alerts as there are kinds and GPUs: bounded, too
	}
	b.alerts = slices.Delete(b.alerts, old, old+1)
	for k, i := range b.open {
		if i > old {
			b.open[k] = i - 1
		}
	}
}

// unreported returns the alerts that were raised, became critical or were cleared since the last
// call; one that was raised and cleared in between comes as both.
func (b *alertTable) unreported() (changed []runlog.Alert) {
	if b.asked == b.changes {
		return nil
	}
	b.asked = b.changes
	reported := map[uint64]string{}
	for _, a := range b.alerts {
		before, now := b.reported[a.ID], a.Severity
		open := a
		open.ClearedS = nil
		if before != now && before != cleared {
			changed = append(changed, open)
		}
		if a.ClearedS != nil {
			if now = cleared; before != cleared {
				changed = append(changed, a)
			}
		}
		reported[a.ID] = now
	}
	b.reported = reported
	return changed
}

// pointer is nil for what is not known, as JSON wants it.
func pointer(value float64) *float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	return &value
}

// timeLeft formats the remaining steps and time.
func timeLeft(steps, seconds float64) string {
	if steps < 0.5 {
		return "at any moment"
	}
	if math.IsNaN(seconds) {
		return fmt.Sprintf("in about %s", counted(steps, "step"))
	}
	return fmt.Sprintf("in about %s (%s)", counted(steps, "step"), units.About(seconds))
}

func counted(n float64, noun string) string {
	if n = math.Round(n); n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return fmt.Sprintf("%.0f %ss", n, noun)
}
