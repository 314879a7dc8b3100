package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const xlsr1B = "facebook/wav2vec2-xls-r-1b"

// chunks are clips that all last as long.
func chunks(n int, seconds float64) []float64 { return slices.Repeat([]float64{seconds}, n) }

// TestTheFusedOptimizerIsNamedWhereItHelps: its step has no temporary lists of the size of the
// model.
func TestTheFusedOptimizerIsNamedWhereItHelps(t *testing.T) {
	in := described(t, xlsr1B, chunks(320, 8), "L4")
	// a step with lists does not fit, one without does
	in.Hardware.GPUs[0].MemoryTotalBytes = 22_500_000_000
	in.Options.Optimizer = "adamw_torch"
	_, err := makePlan(in)
	requireFault(t, err, fault.Infeasible, "does not fit")
	hint := fault.From(err).Hint
	line := hint[strings.Index(hint, `with optimizer="adamw_torch_fused" and gradient checkpointing`):]
	assert.Contains(t, line[:strings.Index(line, "\n")], "GiB, fits")
	assert.Less(t, strings.Index(hint, "adamw_torch_fused"), strings.Index(hint, "adamw_bnb_8bit"), "what computes the same comes first")

	in.Options.Optimizer = "adamw_torch_fused"
	checkSearched(t, planned(t, in))
}

func TestSpeedTakesTheFastestOrder(t *testing.T) {
	in := described(t, xlsr, speech(4000, 15, 1), "L4")
	balanced := planned(t, in)
	in.Options.Preset = Speed
	c := planned(t, in)
	checkSearched(t, c)
	assert.Equal(t, "stratified", balanced.LengthHandling)
	assert.Equal(t, "bucketed", c.LengthHandling)
	assert.Less(t, c.Times.EpochHours.Likely, balanced.Times.EpochHours.Likely)
	for _, a := range c.Alternatives {
		if a.Speed != nil && a.Name != estimate.EightBit {
			assert.GreaterOrEqual(t, *a.Speed, 1.0, a.Name)
		}
	}
	assert.Contains(t, decision(t, c, "length_handling").Reason, "preset speed")
	assert.False(t, c.TorchCompile || c.CudnnBenchmark)
	for _, setting := range []string{"torch_compile", "cudnn_benchmark"} {
		assert.Contains(t, decision(t, c, setting).Reason, "preset speed", "why not")
	}

	in.Durations, in.Dataset = speech(300, 15, 1), dataset(speech(300, 15, 1))
	assert.Equal(t, "random", planned(t, in).LengthHandling, "too few steps to sort")
}

func next(t *testing.T, in Inputs) *TraceRequest {
	t.Helper()
	w, err := Next(in)
	require.NoError(t, err)
	return w
}

// trace is that of a wanted way, in which so many of any clip fit.
func trace(w *TraceRequest, fits int) Traced {
	return Traced{Precision: w.Precision, Checkpointing: w.Checkpointing, EveryNLayers: w.EveryNLayers, Offload: w.Offload, Optimizer: w.Optimizer, BudgetBytes: w.BudgetBytes,
		Memory: batching.Limits{{Seconds: 60, Batch: fits}}, Peaks: []TracedPeak{{Batch: max(1, fits), Bytes: w.BudgetBytes}}}
}

// TestTheFirstTraceComputesNothingAgain, and says what the plan wants to know.
func TestTheFirstTraceComputesNothingAgain(t *testing.T) {
	in := described(t, xlsr, speech(2000, 15, 1), "T4")
	w := next(t, in)
	require.NotNil(t, w)
	assert.Equal(t, TraceRequest{Precision: "fp16", EveryNLayers: 1, Optimizer: "adamw_torch_fused", Allocator: estimate.AllocatorSettings, Devices: 1, Share: 32,
		BudgetBytes: int64(in.Hardware.GPUs[0].MemoryTotalBytes) * 85 / 100, LongestS: 15, High: true, Generates: true, Beams: 1, Tokens: usualGeneration, Sizes: []int{}}, *w)
	in.Traced = []Traced{trace(w, 0)}
	other := next(t, in)
	require.NotNil(t, other, "a way that does not fit leaves the next one")
	assert.True(t, other.Checkpointing)
	in.Traced = append(in.Traced, trace(other, 4))
	assert.Nil(t, next(t, in))

	in.Options.Policy = PublishedRule
	assert.Nil(t, next(t, in), "a formula needs no trace")
	in.Options.Preset = "fast"
	_, err := Next(in)
	requireFault(t, err, fault.InvalidArgument, "preset")
}

// TestNoMoreIsTracedThanMayBeFaster: where a whole share fits nothing is computed again.
func TestNoMoreIsTracedThanMayBeFaster(t *testing.T) {
	for card, limit := range map[string]int{"A100-80GB": 1, "T4": 3} {
		in := described(t, xlsr, speech(2000, 15, 1), card)
		in.Options.AnyDepth = true
		in = must(traced(in))
		assert.LessOrEqual(t, len(in.Traced), limit, card)
	}
}

// TestWhatFitsInNoWayIsTracedInEach before it is refused.
func TestWhatFitsInNoWayIsTracedInEach(t *testing.T) {
	in := described(t, xlsr1B, chunks(320, 8), "T4")
	in.Options.CanOffload = true
	_, err := makePlan(in)
	requireFault(t, err, fault.Infeasible, "does not fit")
	for _, want := range []struct{ checkpointing, offload bool }{{false, false}, {true, false}, {true, true}} {
		w := next(t, in)
		require.NotNil(t, w)
		assert.Equal(t, want, struct{ checkpointing, offload bool }{w.Checkpointing, w.Offload})
		in.Traced = append(in.Traced, trace(w, 0))
	}
	assert.Nil(t, next(t, in))
	_, err = Make(in)
	requireFault(t, err, fault.Infeasible, "does not fit")
	assert.NotContains(t, fault.From(err).Hint, "target_batch_size")
	in.Options.TargetBatchSize = 2048 // of inputs that take 12 GiB beside 4 of all else
	for i := range in.Traced {
		in.Traced[i].Peaks = []TracedPeak{{Batch: 1, Bytes: 16 << 30, Parts: []profile.Part{{Name: "inputs", Bytes: 12 << 30}}}}
	}
	_, err = Make(in)
	assert.Contains(t, fault.From(err).Hint, "target_batch_size=1024, with nothing computed again: 10.00 GiB, fits")
	in.Options.TargetBatchSize = 32
	in.Traced[2] = trace(&TraceRequest{Precision: "fp16", Checkpointing: true, EveryNLayers: 1, Offload: true, Optimizer: "adamw_torch_fused", BudgetBytes: in.Traced[0].BudgetBytes}, 2)
	assert.Nil(t, next(t, in))
	c := must(Make(in))
	assert.Equal(t, 2, c.MicroBatchSize)
}

func TestWithoutATraceTheFormulaPlans(t *testing.T) {
	in := described(t, xlsr, speech(2000, 15, 1), "T4")
	in.NotTraced = &NotTraced{Why: "tracing failed: no loss", Fix: "Do this."}
	c := must(Make(in))
	assert.Contains(t, c.Warnings[0], "tracing failed: no loss")
	assert.Contains(t, c.Warnings[0], "Do this.")

	in.Options.Distributed, in.Options.DeviceCount = "zero2", pointer(2)
	c = must(Make(in))
	assert.Contains(t, strings.Join(c.Warnings, "\n"), "The published formula ignores distributed.")
	assert.Equal(t, "ddp", c.Distributed)
	in.Options.Distributed = "ddp"
	assert.NotContains(t, strings.Join(must(Make(in)).Warnings, "\n"), "ignores distributed")
}
