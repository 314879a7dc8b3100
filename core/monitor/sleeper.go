package monitor

import "time"

// schedule gives the times between the runs of a loop: one every interval, and those that were missed are left out.
type schedule struct {
	interval time.Duration
	next     time.Time
}

func newSchedule(interval time.Duration) schedule {
	return schedule{interval: interval, next: time.Now().Add(interval)}
}

// left is the time until the next run.
func (p *schedule) left() time.Duration { return time.Until(p.next) }

// ran moves on to the first run that lies ahead.
func (p *schedule) ran() {
	p.next = p.next.Add(p.interval)
	if late := -p.left(); late >= 0 {
		p.next = p.next.Add((late/p.interval + 1) * p.interval)
	}
}

// sleepByTimer is how a loop waits where there is no sleeper of the system's.
func sleepByTimer(d time.Duration, stop <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stop:
	case <-timer.C:
	}
}
