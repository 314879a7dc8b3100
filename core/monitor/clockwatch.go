package monitor

import (
	"fmt"
	"time"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const (
	longGap  = time.Second // between two samples, or three times their interval
	longJump = 2 * time.Second
)

// clockWatch watches the clocks at every sample: for samples that did not come, and for jumps of the wall clock.
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
		tell(runlog.EventGap, fmt.Sprintf("no reading for %s: the process was blocked", shortly(passed)))
	}
	if jump >= longJump || jump <= -longJump {
		tell(runlog.EventClock, fmt.Sprintf("the wall clock jumped by %s", shortly(jump)))
	}
}

// shortly rounds a time to what is read at a glance.
func shortly(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
