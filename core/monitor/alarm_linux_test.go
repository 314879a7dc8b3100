package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAnAlarmThatWasRungNeverSleeps(t *testing.T) {
	for _, alarm := range []*alarm{newAlarm(), {file: -1}} {
		stop := make(chan struct{})
		start := time.Now()
		alarm.sleep(5*time.Millisecond, stop)
		assert.GreaterOrEqual(t, time.Since(start), 5*time.Millisecond)
		close(stop)
		alarm.ring()
		for range 3 {
			alarm.sleep(time.Hour, stop)
		}
		alarm.close()
		alarm.ring()
		alarm.close()
	}
}
