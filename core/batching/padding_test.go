package batching

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lognormal is n durations about 6 s; heavy is as many with a tail of long ones.
func lognormal(n int, seed uint64) []float64 {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]float64, n)
	for i := range all {
		all[i] = min(30, math.Exp(1.8+0.6*random.NormFloat64()))
	}
	return all
}

func heavy(n int, seed uint64) []float64 {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]float64, n)
	for i := range all {
		all[i] = min(60, 2*math.Pow(1-random.Float64(), -1/1.6)) // Pareto
	}
	return all
}

// fits is a table for a card on which so many padded seconds fit.
func fits(seconds, longest float64) Limits {
	table := Limits{}
	for s := 0.5; s < longest+0.5; s += 0.5 {
		table = append(table, Fit{s, int(seconds / s)})
	}
	return table
}

func options(mode string, step int, memory Limits) Options {
	return Options{Mode: mode, StepSamples: step, Ranks: 1, Seed: 7, Buckets: 30, Cost: Cost{OverheadS: 4}, Memory: memory}
}

// epochOf is an epoch that can be made.
func epochOf(t *testing.T, seconds []float64, r Options) *Epoch {
	t.Helper()
	e, err := MakeEpoch(seconds, r)
	require.NoError(t, err)
	return e
}

// lasting is how many seconds the batches of an order hold.
func lasting(order []float64, b int) (padded float64) {
	for batch := range slices.Chunk(order, b) {
		padded += float64(len(batch)) * slices.Max(batch)
	}
	return padded
}

// everyOrder calls do with all orders of values.
func everyOrder(values []float64, do func([]float64)) {
	var swap func(k int)
	swap = func(k int) {
		if k == len(values) {
			do(values)
		}
		for i := k; i < len(values); i++ {
			values[k], values[i] = values[i], values[k]
			swap(k + 1)
			values[k], values[i] = values[i], values[k]
		}
	}
	swap(0)
}

func TestExpectedIsTheMeanOfAllOrders(t *testing.T) {
	sorted := []float64{0.5, 1, 1, 2.5, 4, 7, 20}
	for b := 1; b <= 9; b++ {
		total, orders := 0.0, 0
		everyOrder(slices.Clone(sorted), func(order []float64) { total += lasting(order, b); orders++ })
		require.Equal(t, 5040, orders)
		assert.InDelta(t, total/5040, Expected(sorted, b), 1e-9, "batches of %d", b)
	}
	assert.Zero(t, Expected(nil, 8))
}

func TestGroupedHoldsEveryClipAndPutsTheLongestFirst(t *testing.T) {
	sorted := slices.Clone(lognormal(1003, 1))
	slices.Sort(sorted)
	order := Grouped(sorted, 8, 3)
	assert.Equal(t, sorted[1002], sorted[order[0]])
	assert.Equal(t, order, Grouped(sorted, 8, 3))
	assert.NotEqual(t, order, Grouped(sorted, 8, 4))
	slices.Sort(order)
	for i, p := range order {
		require.EqualValues(t, i, p)
	}
	assert.Empty(t, Grouped(nil, 8, 3))
}
