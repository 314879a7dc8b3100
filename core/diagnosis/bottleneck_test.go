package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// measured is of a step whose model takes what waiting, the optimizer and the Trainer leave.
func measured(waiting, optimizer, other float64) Measured {
	model := 1 - waiting - optimizer - other
	return Measured{Shares: StepShares{waiting, 0.4 * model, 0.6 * model, optimizer, other}}
}

func of(m Measured, edit func(*Measured)) Measured { edit(&m); return m }

func TestTheBottleneckIsWhatTakesMost(t *testing.T) {
	half, queued, fixed := 0.5, 0.97, 30.0
	for _, row := range []struct {
		m         Measured
		kind, try string
	}{
		{measured(0.5, 0.1, 0.05), "loader", "workers"},
		{measured(0.05, 0.1, 0.05), "compute", "precision"},
		{of(measured(0.05, 0.1, 0.05), func(m *Measured) { m.Padding = &half }), "padding", "order"},
		{of(measured(0.05, 0.1, 0.05), func(m *Measured) { m.Padding, m.FixedS = &half, &fixed }), "compute", "attention"},
		{measured(0.05, 0.5, 0.05), "optimizer", ""},
		{measured(0.05, 0.1, 0.4), "trainer", "pin"},
		{of(measured(0.05, 0.1, 0.05), func(m *Measured) { m.Queueing = &queued }), "small_batch", "compile"},
		{of(measured(0.05, 0.1, 0.05), func(m *Measured) { m.Checkpointing = true }), "checkpointing", "checkpointing"},
		{of(measured(0.3, 0.1, 0.05), func(m *Measured) { m.Checkpointing = true }), "loader", "workers"},
	} {
		b, err := BottleneckOf(row.m)
		require.NoError(t, err)
		assert.Equal(t, row.kind, b.Finding.Kind)
		assert.Contains(t, b.Finding.Evidence, "of a step: waiting ")
		if assert.NotEmpty(t, b.Finding.Change); row.try != "" {
			assert.Contains(t, b.Try, row.try)
		}
	}
	b, _ := BottleneckOf(Measured{Padding: &half, FixedS: &fixed})
	assert.Contains(t, b.Finding.Evidence, "50 % of what is computed is padding to the 30 s that")
}

func TestTheNextChangeIsTheFastestBeyondDoubt(t *testing.T) {
	unsure := Tried{Name: "attention eager", Change: "eager", Gain: Gain{1.5, 0.9, 2, 5}}
	good := Tried{Name: "precision bf16", Change: "bf16=True", Better: true, Gain: Gain{1.2, 1.1, 1.3, 5}}
	better := Tried{Name: "compile on", Change: "torch_compile=True", Better: true, Gain: Gain{1.4, 1.2, 1.5, 5}, CPUGain: &Gain{1.3, 1.2, 1.4, 5}}
	for text, tried := range map[string][]Tried{
		"set bf16=True: 1.20 (1.10 to 1.30) times as fast over the rounds":                                                  {unsure, good},
		"set torch_compile=True: 1.40 (1.20 to 1.50) times as fast over the rounds; by processor time 1.30 (1.20 to 1.40)":  {good, better},
		"no tried change is clearly faster (attention eager); a faster device, a smaller model or frozen layers would help": {unsure},
		"a faster device, a smaller model or frozen layers would help (not measured)":                                       nil,
	} {
		b, err := BottleneckOf(Measured{Tried: tried})
		require.NoError(t, err)
		assert.Equal(t, text, b.NextChange)
	}
}

func TestBlocksAreLookedAtAlone(t *testing.T) {
	log := healthyLog()
	start := float64(log.StartUnixNanos) / 1e9
	peak := 3e9
	steps := []BlockStep{{10, 1}, {10, 1}, {10, 1}, {10, 1}}
	blocks := []Block{{start + 5, 40, steps, &peak, nil}, {start + 60, 40, steps, &peak, nil}}
	part := within(log, blocks)
	for _, at := range part.Activity.TimesS {
		assert.True(t, 5 <= at && at <= 45 || 60 <= at && at <= 100, at)
	}
	require.Greater(t, len(part.Activity.TimesS), 10)
	assert.Len(t, part.Activity.CPUShare, len(part.Activity.TimesS))
	assert.Len(t, part.Activity.GPUs[0].Utilization, len(part.Activity.TimesS))
	assert.Len(t, part.Steps.Number, 8)
	assert.Equal(t, start+15-start, part.Steps.TimesS[0])
	assert.NotEqual(t, len(part.Activity.TimesS), len(log.Activity.CPUShare), "the run log stays")

	precision := "fp32"
	readings, findings := OfBlocks(log, Run{Precision: &precision}, blocks)
	assert.NotEmpty(t, findings)
	assert.InDelta(t, 0.9, *readings.GPUUse, 0.1)
	assert.Equal(t, float64(log.GPUs[0].TotalBytes), *readings.GPUTotal)
	nowhere, findings := OfBlocks(log, Run{}, []Block{{BegunUnixS: start - 100, Seconds: 1}})
	assert.Nil(t, nowhere.GPUUse)
	assert.Empty(t, findings)
	none, findings := OfBlocks(&runlog.Log{}, Run{}, blocks)
	assert.Equal(t, Readings{}, none)
	assert.Empty(t, findings)
}
