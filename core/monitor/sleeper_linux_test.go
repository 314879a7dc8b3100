package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAnAlarmThatWasRungNeverSleeps(t *testing.T) {
	for _, sleeper := range []*sleeper{newSleeper(), {file: -1}} {
		stop := make(chan struct{})
		start := time.Now()
		sleeper.sleep(5*time.Millisecond, stop)
		assert.GreaterOrEqual(t, time.Since(start), 5*time.Millisecond)
		close(stop)
		sleeper.wake()
		for range 3 {
			sleeper.sleep(time.Hour, stop)
		}
		sleeper.close()
		sleeper.wake()
		sleeper.close()
	}
}
