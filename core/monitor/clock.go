package monitor

import (
	"fmt"
	"time"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// clock is what time it is; tests set their own.
type clock interface {
	Since() time.Duration // from the monitor's start, without the time that the machine slept
	Wall() time.Time      // as the system's clock has it, jumps included
	// how long the machine has slept since it started; always 0 where the system does not report it
	Asleep() time.Duration
}

// systemClock starts now. Its monotonic reading lets jumps of the wall clock not matter.
type systemClock struct{ start time.Time }

func (c systemClock) Since() time.Duration  { return time.Since(c.start) }
func (c systemClock) Wall() time.Time       { return time.Now() }
func (c systemClock) Asleep() time.Duration { return asleep() }

const (
	longGap  = time.Second // between two samples, or three times their interval
	longJump = 2 * time.Second
)

// clockWatch watches the clocks at every sample: for samples that did not come, and for jumps of
// the wall clock.
type clockWatch struct {
	clock  clock
	since  time.Duration
	wall   time.Time
	asleep time.Duration
}

func newClockWatch(c clock) clockWatch {
	return clockWatch{clock: c, since: c.Since(), wall: c.Wall(), asleep: c.Asleep()}
}

// check brings the clocks up to now and tells what happened since the last sample.
func (p *clockWatch) check(interval time.Duration, tell func(kind, text string)) {
	since, wall, asleep := p.clock.Since(), p.clock.Wall(), p.clock.Asleep()
	passed, slept := since-p.since, asleep-p.asleep
	jump := wall.Round(0).Sub(p.wall.Round(0)) - passed - slept
	p.since, p.wall, p.asleep = since, wall, asleep
	switch {
	case slept >= longGap:
		tell(runlog.EventGap, fmt.Sprintf("the machine slept for %s", shortly(slept)))
	case passed > max(longGap, 3*interval):
		tell(runlog.EventGap, fmt.Sprintf("no reading for %s: the process was blocked",
			shortly(passed)))
	}
	if jump >= longJump || jump <= -longJump {
		tell(runlog.EventClock, fmt.Sprintf("the wall clock jumped by %s", shortly(jump)))
	}
}

// shortly rounds a time to what is read at a glance.
func shortly(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// sleepByTimer is how a loop waits where there is no sleeper of the system's.
func sleepByTimer(d time.Duration, stop <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stop:
	case <-timer.C:
	}
}
