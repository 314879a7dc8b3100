//go:build !linux

package monitor

import "time"

func asleep() time.Duration { return 0 }

// sleeper lets loops sleep.
type sleeper struct{}

func newSleeper() *sleeper { return &sleeper{} }

func (*sleeper) sleep(d time.Duration, stop <-chan struct{}) { sleepByTimer(d, stop) }
func (*sleeper) wake()                                       {}
func (*sleeper) close()                                      {}
