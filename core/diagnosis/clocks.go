package diagnosis

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	hotShare   = 0.05 // of the readings
	slowClock  = 0.85 // of the highest
	powerTold  = 0.50
	brakeShare = 0.02
)

// clockRule finds a clock that is held back on the first card where it is.
func clockRule(throttled func(card) float64, threshold float64,
	kind, title, cause, change, severity string) rule {
	return func(f *figures, _ Run) *Finding {
		i := slices.IndexFunc(f.gpus, func(c card) bool { return throttled(c) >= threshold })
		if i < 0 {
			return nil
		}
		c := f.gpus[i]
		return &Finding{
			Kind: kind, Severity: severity, Title: title,
			lost: throttled(c) * max(0, 1-profile.Or(orNull(c.clock), 1)),
			Evidence: fmt.Sprintf("GPU %d was held back %s in %s of the readings %s: clock at %s "+
				"of the highest, up to %.0f °C, %s", c.index, cause, units.Percent(throttled(c)),
				f.over(), units.Percent(c.clock), c.temperature, watts(c)),
			Change: change,
		}
	}
}

var (
	heat = clockRule(func(c card) float64 { return c.hot }, hotShare, "heat",
		"The GPU is throttled by heat", "by heat",
		"cool the card better: clean its fans and filters, leave a slot free beside it, or lower "+
			"the room's temperature", runlog.SeverityWarn)

	// power is usual on cards at their limit; it counts where the clock is far down.
	power = clockRule(whenSlow(func(c card) float64 { return c.capped }), powerTold, "power",
		"The GPU is throttled by its power limit", "by its power limit",
		"raise the power limit (nvidia-smi -q -d POWER shows the highest; nvidia-smi -pl sets it)",
		Info)

	brake = clockRule(func(c card) float64 { return c.braked }, brakeShare, "power_brake",
		"The power supply slows the GPU down", "by an external brake",
		"give the card a power supply and cables that carry its limit", runlog.SeverityWarn)

	heldClock = clockRule(whenSlow(func(c card) float64 { return c.set }), powerTold,
		"clock_setting", "The GPU's clock is set low", "by a setting",
		"reset the clocks with nvidia-smi -rgc", runlog.SeverityWarn)
)

// whenSlow counts readings of cards alone whose clock is far down.
func whenSlow(throttled func(card) float64) func(card) float64 {
	return func(c card) float64 {
		if c.clock < slowClock {
			return throttled(c)
		}
		return 0
	}
}

func watts(c card) string {
	if !finite(c.powerW) {
		return "power not known"
	}
	if c.limitW > 0 {
		return fmt.Sprintf("%.0f of %.0f W", c.powerW, c.limitW)
	}
	return fmt.Sprintf("%.0f W", c.powerW)
}

func failingGPU(f *figures, _ Run) *Finding {
	xid, ecc, lost := f.events[runlog.EventXID], f.events[runlog.EventECC],
		f.events[runlog.EventLost]
	if xid+ecc+lost == 0 {
		return nil
	}
	return &Finding{
		Kind: "failing_gpu", Severity: runlog.SeverityCritical,
		Title: "The driver reports errors of a GPU",
		Evidence: fmt.Sprintf("errors (XID): %d, uncorrectable memory errors: %d, card lost: %d",
			xid, ecc, lost),
		Change: "look at nvidia-smi -q and the kernel log, and stop using the card if it " +
			"happens again",
	}
}

func gaps(f *figures, _ Run) *Finding {
	n := f.events[runlog.EventGap]
	if n == 0 {
		return nil
	}
	return &Finding{
		Kind: "gaps", Severity: Info, Title: "The machine or the process was stopped for a while",
		Evidence: fmt.Sprintf("%s without readings, %d of %d events", units.Times(n), n,
			len(f.log.Events)),
		Change: "keep the machine awake while it trains: systemd-inhibit --what=sleep before " +
			"the command",
	}
}
