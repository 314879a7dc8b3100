package compare

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// requireHandRow checks that the figures of a row agree with each other.
func requireHandRow(t *testing.T, c HandCase, row HandRow) {
	t.Helper()
	require.Equal(t, c.Target, row.Batch*row.Accumulation*c.Count, row.Name)
	require.Equal(t, row.PeakBytes <= c.MemoryBytes, row.Fits, row.Name)
	if !row.Fits {
		require.Nil(t, row.SampleRate, row.Name)
		require.Nil(t, row.PlanSpeed, row.Name)
		require.Empty(t, row.Totals, row.Name)
		return
	}
	require.Less(t, row.SampleRate.Low, row.SampleRate.High)
	require.Len(t, row.Totals, 2)
	one := row.Totals[0]
	for i, runs := range []int{1, 10} {
		total := row.Totals[i]
		require.Equal(t, runs, total.Runs)
		for _, figures := range [][3]float64{
			{total.Hours.Low, one.Hours.Low, total.CostUSD.Low}, {total.Hours.Likely, one.Hours.Likely, total.CostUSD.Likely},
			{total.Hours.High, one.Hours.High, total.CostUSD.High},
		} {
			require.InEpsilon(t, figures[1]*float64(runs), figures[0], 1e-9)
			require.InEpsilon(t, figures[1]*float64(runs)*c.Price.Hour*float64(c.Count), figures[2], 1e-9)
		}
	}
	// the hours of a run hold more than its steps
	require.Greater(t, one.Hours.Likely, c.Epochs*float64(c.Clips)/row.SampleRate.Likely/3600)
}

// TestScenariosByHand: the batches are the published ones, from the published parameters.
func TestScenariosByHand(t *testing.T) {
	batches := map[string][3]int{"L4": {8, 4, 1}, "A100-40GB SXM": {16, 8, 1}, "T4": {16, 8, 1}}
	require.Len(t, Scenarios(), len(batches))
	for _, s := range Scenarios() {
		c := made(t, Request{Model: sizes(s.Model), Data: s.Data, GPUs: []string{s.GPU}, ByHand: &s})
		require.Len(t, c.ByHand, 1)
		hand, planned := c.ByHand[0], c.Rows[0]
		require.Equal(t, s.Model, hand.Model)
		require.Len(t, hand.Rows, 4)
		for i, settings := range []string{"aggressive", "published", "safe", "plan"} {
			row := hand.Rows[i]
			require.Equal(t, settings, row.Name)
			if i < 3 {
				require.Equal(t, batches[s.GPU][i], row.Batch, "%s %s", s.GPU, settings)
				require.True(t, row.Checkpointing, "of models above 100 M parameters")
			}
			requireHandRow(t, hand, row)
		}
		row := hand.Rows[3]
		require.Equal(t, []any{planned.Batch, planned.PeakBytes, *planned.RunHours, *planned.Cost, 1.0},
			[]any{row.Batch, row.PeakBytes, row.Totals[0].Hours, *row.Totals[0].CostUSD, *row.PlanSpeed}, "the plan's own figures")
	}
}

// TestOwnTrainingByHand: of a training of one's own the formula counts the model itself, on the
// published cards unless others are named.
func TestOwnTrainingByHand(t *testing.T) {
	r := Request{Model: sizes(xlsr1B), Data: timing.Data{Clips: 4500, MeanS: 8, MaxS: 25}, ByHand: &Scenario{}}
	c := made(t, r)
	require.Len(t, c.ByHand, len(Scenarios()))
	hand := c.ByHand[0]
	require.Equal(t, 0.44, hand.Price.Hour, "as without settings by hand")
	require.Equal(t, 2, hand.Rows[1].Batch, "15.4 GB leave less than the published 12.5 GB")
	for i, optimizer := range []string{estimate.DefaultOptimizer, estimate.DefaultOptimizer, estimate.DefaultOptimizer, estimate.EightBit} {
		row := c.ByHand[2].Rows[i]
		require.Equal(t, optimizer, row.Optimizer, "XLS-R-1B fits a T4 with the plan's lighter optimizer alone")
		require.Equal(t, row.Name == "plan", row.Fits)
	}

	r.GPUs, r.Prices, r.Precision = []string{"2xA100-40GB", "K80"}, map[string]float64{"A100-40GB": 3, "K80": 1}, "fp16"
	c = made(t, r)
	require.Len(t, c.ByHand, 2)
	require.Equal(t, 3.0, c.ByHand[0].Price.Hour)
	for _, hand := range c.ByHand {
		for _, row := range hand.Rows {
			require.Equal(t, "fp16", row.Precision)
			requireHandRow(t, hand, row)
		}
	}
}
