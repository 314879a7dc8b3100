package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheckpointingByDepth: where all layers or none is a poor choice, some are computed again, if
// they can be.
func TestCheckpointingByDepth(t *testing.T) {
	in := described(t, "facebook/w2v-bert-2.0", speech(2000, 30, 1), "L4")
	all := planned(t, in)
	require.True(t, all.GradientCheckpointing, "without any, the longest clip does not fit")
	assert.Equal(t, 1, all.EveryNLayers)
	assert.Contains(t, decision(t, all, "every_n_layers").Reason, "5.23")

	in.Options.AnyDepth = true
	partial := planned(t, in)
	assert.True(t, partial.GradientCheckpointing)
	assert.Greater(t, partial.EveryNLayers, 1)
	assert.Less(t, partial.Times.EpochHours.Likely, all.Times.EpochHours.Likely/(1+aboutAsFast))
	assert.Equal(t, "on", decision(t, partial, "gradient_checkpointing").Alternative)
	checkSearched(t, partial)
	m, w := standIns[in.Model.Name], TraceRequest{Precision: "bf16", Checkpointing: true, EveryNLayers: partial.EveryNLayers, Optimizer: partial.Optimizer}
	perSecond, _ := m.clipSecond(w)
	assert.Equal(t, m.held(in, w)+int64(perSecond*30*float64(partial.MicroBatchSize)), partial.PredictedBytes, "it was traced")

	in = must(traced(in))
	for i, other := range in.Traced {
		if other.EveryNLayers == partial.EveryNLayers {
			in.Traced[i] = trace(&TraceRequest{Precision: "bf16", Checkpointing: true, EveryNLayers: other.EveryNLayers, Optimizer: other.Optimizer, BudgetBytes: other.BudgetBytes}, 0)
		}
	}
	refused := must(Make(in))
	assert.NotEqual(t, partial.EveryNLayers, refused.EveryNLayers, "a trace has the last word")

	in.Traced, in.Options.EveryNLayers = nil, pointer(partial.EveryNLayers-1)
	requested := planned(t, in)
	assert.Equal(t, partial.EveryNLayers-1, requested.EveryNLayers)
	assert.Equal(t, "asked for", decision(t, requested, "every_n_layers").Reason)
}

// TestWhyNothingIsComputedAgain: of checkpointing that no trace was needed for, the reason does not
// say that it would not fit.
func TestWhyNothingIsComputedAgain(t *testing.T) {
	in := must(traced(described(t, xlsr, speech(2000, 25, 1), "T4")))
	in.Traced = slices.DeleteFunc(in.Traced, func(other Traced) bool { return other.Checkpointing })
	c := must(Make(in))
	require.False(t, c.GradientCheckpointing)
	require.Less(t, c.MicroBatchSize, 32, "a whole share does not fit")
	assert.Contains(t, decision(t, c, "gradient_checkpointing").Reason, "with it an epoch would take longer")
}
