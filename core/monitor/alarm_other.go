//go:build !linux

package monitor

import "time"

// alarm lets loops sleep.
type alarm struct{}

func newAlarm() *alarm { return &alarm{} }

func (*alarm) sleep(d time.Duration, stop <-chan struct{}) { sleepByTimer(d, stop) }
func (*alarm) ring()                                       {}
func (*alarm) close()                                      {}
