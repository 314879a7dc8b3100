package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// TestOffloadedCheckpoints: what was asked for is planned, with a warning where the host has too
// little memory; nobody takes them where the GPU has room.
func TestOffloadedCheckpoints(t *testing.T) {
	in := described(t, xlsr, speech(2000, 180, 1), "L4")
	onGPU := planned(t, in)
	assert.False(t, onGPU.OffloadCheckpoints)
	assert.Contains(t, decision(t, onGPU, "offload_checkpoints").Reason, "5.23")
	in.Options.CanOffload = true
	onGPU = planned(t, in)
	assert.False(t, onGPU.OffloadCheckpoints)
	assert.Contains(t, decision(t, onGPU, "offload_checkpoints").Reason, "fits on the GPU")

	in.Options.OffloadCheckpoints = pointer(true)
	c := planned(t, in)
	require.True(t, c.OffloadCheckpoints)
	assert.Greater(t, c.MicroBatchSize, onGPU.MicroBatchSize)
	assert.Contains(t, decision(t, c, "offload_checkpoints").Reason, "GiB of host RAM are pinned")
	checkSearched(t, c)
	m, w := standIns[xlsr], TraceRequest{Precision: "bf16", Checkpointing: true, EveryNLayers: 1, Offload: true, Optimizer: c.Optimizer}
	perSecond, _ := m.clipSecond(w)
	assert.Equal(t, m.held(in, w)+int64(perSecond*180*float64(c.MicroBatchSize)), c.PredictedBytes)

	in.Hardware.Memory.AvailableBytes = 1 << 30
	requested := planned(t, in)
	assert.True(t, requested.OffloadCheckpoints)
	assert.Contains(t, decision(t, requested, "offload_checkpoints").Reason, "asked for")
	assert.Contains(t, strings.Join(requested.Warnings, " "), "pin up to", "and what was asked for is planned with a warning")
}

// TestOffloadWhereNothingElseFits: pinned memory is taken off what the loader's workers may take.
func TestOffloadWhereNothingElseFits(t *testing.T) {
	in := described(t, xlsr, speech(50, 240, 1), "T4")
	in.Options.AnyDepth, in.Options.Preprocessing = true, HeavyPreprocessing
	_, err := makePlan(in)
	requireFault(t, err, fault.Infeasible, "240 s")
	in.Options.CanOffload = true
	c := planned(t, in)
	require.True(t, c.OffloadCheckpoints)
	assert.Contains(t, decision(t, c, "offload_checkpoints").Reason, "without it the longest clip does not fit")
	in.Hardware.Memory.AvailableBytes = 32e9
	few := planned(t, in)
	assert.Less(t, few.DataloaderNumWorkers, c.DataloaderNumWorkers)
	in.Options.Distributed, in.Options.DeviceCount = "zero2", pointer(2)
	in.Options.GradientCheckpointing = pointer(true)
	shared := planned(t, in)
	assert.False(t, shared.OffloadCheckpoints)
	assert.Contains(t, decision(t, shared, "offload_checkpoints").Reason, "sharded")
}
