package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asrconfig/asrconfig-go/core/forecast"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

func TestAFullGPUIsToldAndCleanedUp(t *testing.T) {
	limits := forecast.Limits{WarnAt: 0.9, Hysteresis: 0.05, CleanAt: 0.95, CooldownS: 60}
	w := newWorking(2)
	w.used[1] = 78 * gib
	m, clock := played(t, w, forecast.New(2))
	c := m.Check(limits)
	assert.Equal(t, "GPU 1 78.0 of 80.0 GiB (98%)", c.Fullest.String())
	assert.True(t, c.CleanUp)
	assert.Equal(t, []Message{
		{runlog.SeverityWarn, "GPU 1 78.0 of 80.0 GiB (98%) is over 90% → if memory runs out, halve " +
			"per_device_train_batch_size and double gradient_accumulation_steps"},
		{runlog.SeverityWarn, "GPU 1 78.0 of 80.0 GiB (98%) is over 95%: unused cached memory is freed"},
	}, c.Messages)
	assert.Equal(t, runlog.EventCleanUp, m.Log().Events[0].Kind)
	clock.since += 200 * time.Millisecond
	assert.Empty(t, m.Check(limits).Messages, "the gain does not show yet")
	clock.since += 200 * time.Millisecond
	m.Step(step(1, 20*gib, 77*gib)) // PyTorch uses the first GPU alone: the second is another's
	c = m.Check(limits)
	assert.Equal(t, 0, c.Fullest.GPU)
	assert.Equal(t, []Message{{runlog.SeverityWarn, "the gain of the clean-up is unknown"}}, c.Messages)
	assert.EqualValues(t, []int{1, 1}, []int{int(c.Warnings), c.CleanUps})

	m, _ = played(t, newWorking(0), forecast.New(0))
	assert.Equal(t, -1, m.Check(limits).Fullest.GPU, "the host, without a GPU")
}

func TestHoursAreSaidAsATimeOfDay(t *testing.T) {
	now := time.Date(2026, 11, 27, 21, 30, 0, 0, time.UTC)
	for seconds, text := range map[float64]string{
		360: "full → x", 7200: "full (at about 23:30) → x", 7 * 86400: "full (at about 21:30 on Fri 04 Dec) → x",
	} {
		assert.Equal(t, Message{"warn", text}, worded(runlog.Alert{Severity: "warn", Text: "full", Advice: "x", Seconds: &seconds}, now))
	}
	assert.Equal(t, Message{"info", "no longer: full"}, worded(runlog.Alert{Text: "full", ClearedS: new(float64)}, now))
}
