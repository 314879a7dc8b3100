package monitor

import (
	"time"

	"golang.org/x/sys/unix"
)

// asleep is by how much the clock that counts sleep is ahead of the one that does not.
func asleep() time.Duration {
	var awake, all unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil {
		return 0
	}
	return time.Duration(all.Nano() - awake.Nano())
}
