package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
)

// TestOffloadedCheckpoints: a depth that fits the longest clip only with what checkpoints save in host memory is taken where it gains enough.
func TestOffloadedCheckpoints(t *testing.T) {
	in := described(t, xlsr, speech(2000, 180, 1), "L4")
	in.Options.AnyDepth = true
	kept := planned(t, in)
	assert.False(t, kept.OffloadCheckpoints)
	assert.Contains(t, decision(t, kept, "offload_checkpoints").Reason, "5.23")

	in.Options.CanOffload = true
	c := planned(t, in)
	require.True(t, c.OffloadCheckpoints)
	assert.Greater(t, c.EveryNLayers, kept.EveryNLayers)
	assert.Less(t, c.Times.EpochHours.Likely, kept.Times.EpochHours.Likely/(1+aboutAsFast))
	assert.Contains(t, decision(t, c, "offload_checkpoints").Reason, "GiB of host RAM are pinned")
	checkSearched(t, c)
	e := offloadedEstimate(t, in, analytic.Request{Batch: int64(c.MicroBatchSize), Seconds: 180, Precision: "bf16", EveryNLayers: int64(c.EveryNLayers)})
	outside, err := estimate.Outside(in.Hardware.GPUs[0], 1)
	require.NoError(t, err)
	assert.EqualValues(t, e.PeakReserved+outside, c.PredictedBytes)

	w := next(t, in)
	assert.Equal(t, []any{c.EveryNLayers, true}, []any{w.EveryNLayers, w.Offload}, "it is traced")
	in.Traced = []Traced{trace(w, 0)}
	other := planned(t, in)
	assert.NotEqual(t, []any{c.EveryNLayers, true}, []any{other.EveryNLayers, other.OffloadCheckpoints}, "a trace has the last word")

	in.Traced, in.Hardware.Memory.AvailableBytes = nil, 1<<30
	assert.False(t, planned(t, in).OffloadCheckpoints, "it must fit the host, too")
	in.Options.OffloadCheckpoints = pointer(true)
	asked := planned(t, in)
	assert.True(t, asked.OffloadCheckpoints)
	assert.Contains(t, decision(t, asked, "offload_checkpoints").Reason, "asked for")
	assert.Contains(t, asked.Warnings[len(asked.Warnings)-1], "pin up to", "and what was asked for is planned with a warning")
}

func offloadedEstimate(t *testing.T, in Inputs, r analytic.Request) analytic.Estimate {
	t.Helper()
	m, err := analytic.Read(*in.Described)
	require.NoError(t, err)
	r.Checkpointing, r.OffloadCheckpoints, r.Accumulation, r.Simulate = true, true, 2, true
	r.Settings, r.ComputeCapability = estimate.AllocatorSettings, estimate.Class(in.Hardware.GPUs[0])
	e, err := m.Estimate(r)
	require.NoError(t, err)
	return e
}

// TestOffloadWhereNothingElseFits: pinned memory is taken off what the loader's workers may take.
func TestOffloadWhereNothingElseFits(t *testing.T) {
	in := described(t, xlsr, speech(50, 200, 1), "T4")
	in.Options.AnyDepth, in.Options.Preprocessing = true, HeavyPreprocessing
	_, err := Make(in)
	requireFault(t, err, fault.Infeasible, "200 s")
	in.Options.CanOffload = true
	c := planned(t, in)
	require.True(t, c.OffloadCheckpoints)
	assert.Contains(t, decision(t, c, "offload_checkpoints").Reason, "without it the longest clip does not fit")
	in.Hardware.Memory.AvailableBytes = 14e9
	few := planned(t, in)
	assert.Less(t, few.DataloaderNumWorkers, c.DataloaderNumWorkers)
	in.Options.Distributed, in.Options.DeviceCount = "zero2", pointer(2)
	in.Options.GradientCheckpointing = pointer(true)
	shared := planned(t, in)
	assert.False(t, shared.OffloadCheckpoints)
	assert.Contains(t, decision(t, shared, "offload_checkpoints").Reason, "sharded")
}

func TestOffloadsThatCannotBe(t *testing.T) {
	off := false
	for name, change := range map[string]func(in *Inputs){
		"gradient_checkpointing is off": func(in *Inputs) { in.Options.GradientCheckpointing = &off },
		"FSDP":                          func(in *Inputs) { in.Options.Distributed = "fsdp" },
		"does not accept":               func(in *Inputs) { in.Options.Policy = PublishedRule },
		"no GPU":                        func(in *Inputs) { in.Hardware.GPUs = nil },
	} {
		in := described(t, xlsr, speech(100, 20, 1), "T4")
		in.Options.OffloadCheckpoints = pointer(true)
		change(&in)
		_, err := Make(in)
		requireFault(t, err, fault.InvalidArgument, name)
	}
}
