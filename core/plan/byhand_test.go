package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// TestByHandAsksForItsSizes: the peaks of all settings are those of the batches that were asked
// for, and a model that cannot train so has no settings by hand.
func TestByHandAsksForItsSizes(t *testing.T) {
	in := must(traced(described(t, xlsr, speech(400, 20, 1), "T4")))
	plans, w, err := ByHand(in, nil)
	require.NoError(t, err)
	require.Empty(t, plans)
	require.Equal(t, []int{1, 8, 16}, w.Sizes)
	require.True(t, w.Checkpointing)

	refused, before := Traced{Precision: w.Precision, Checkpointing: true, EveryNLayers: 1, Optimizer: w.Optimizer, BudgetBytes: w.BudgetBytes}, in
	refused.Memory = standIns[xlsr].answer(in, *w).Memory
	for i := range refused.Memory {
		refused.Memory[i].Batch = 0
	}
	in.Traced = append(in.Traced, standIns[xlsr].answer(in, *w))
	plans, w, err = ByHand(in, nil)
	require.NoError(t, err)
	require.Nil(t, w)
	require.Len(t, plans, 3)
	for i, name := range []string{Aggressive, PublishedRule, Safe} {
		require.Equal(t, name, plans[i].Name)
		require.Equal(t, plans[i].Fits, plans[i].Config.Times != nil)
		require.Equal(t, plans[i].Fits, plans[i].Config.PredictedBytes <= int64(*plans[i].Config.GPUMemoryBytes))
	}
	before.Traced = append(before.Traced, refused)
	plans, w, err = ByHand(before, nil)
	require.NoError(t, err)
	require.Nil(t, w)
	require.Empty(t, plans)
}

// TestByHandOfAModelThatIsTooLarge: the formula has no settings where parameters alone do not fit.
func TestByHandOfAModelThatIsTooLarge(t *testing.T) {
	in := described(t, xlsr, speech(400, 20, 1), "T4")
	sized := in.Model
	sized.ParameterBytes = 1 << 40
	plans, w, err := ByHand(in, &sized)
	require.NoError(t, err)
	require.Nil(t, w)
	require.Empty(t, plans)
	in.Options.SafetyMargin = 2
	_, _, err = ByHand(in, nil)
	requireFault(t, err, fault.InvalidArgument, "safety_margin")
}
