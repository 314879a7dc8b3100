package monitor

import "time"

// clock is what time it is; tests set their own.
type clock interface {
	Since() time.Duration  // from the monitor's start, without the time that the machine slept
	Wall() time.Time       // as the system's clock has it, jumps included
	Asleep() time.Duration // how long the machine has slept since it started; always 0 where the system does not tell
}

// systemClock starts now. Its monotonic reading lets jumps of the wall clock not matter.
type systemClock struct{ start time.Time }

func (c systemClock) Since() time.Duration  { return time.Since(c.start) }
func (c systemClock) Wall() time.Time       { return time.Now() }
func (c systemClock) Asleep() time.Duration { return asleep() }
