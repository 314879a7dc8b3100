package batching

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// eachPartition calls do with every way to put n things into groups.
func eachPartition(n int, do func(groups [][]int)) {
	var place func(i int, groups [][]int)
	place = func(i int, groups [][]int) {
		if i == n {
			do(groups)
			return
		}
		for g := range groups {
			groups[g] = append(groups[g], i)
			place(i+1, groups)
			groups[g] = groups[g][:len(groups[g])-1]
		}
		place(i+1, append(groups, []int{i}))
	}
	place(0, nil)
}

// priceOf is infinite for a split that does not fit.
func priceOf(seconds []float64, groups [][]int, memory Limits, price Cost) (cost float64) {
	for _, group := range groups {
		longest := 0.0
		for _, i := range group {
			longest = max(longest, seconds[i])
		}
		if len(group) > memory.Largest(longest) {
			return math.Inf(1)
		}
		cost += max(price.HostS, price.OverheadS+float64(len(group))*longest)
	}
	return cost
}

func TestCutIsTheCheapestOfAllPartitions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	memory := Limits{{2, 5}, {4, 3}, {7, 2}, {12, 1}}
	for round := range 60 {
		seconds := make([]float64, 1+random.IntN(7))
		for i := range seconds {
			seconds[i] = float64(random.IntN(120)) / 10
		}
		price := Cost{OverheadS: []float64{0, 0.5, 3, 50}[round%4], HostS: []float64{0, 9, 30}[round%3]}
		best := math.Inf(1)
		eachPartition(len(seconds), func(groups [][]int) { best = min(best, priceOf(seconds, groups, memory, price)) })
		got, err := Split(seconds, memory, price)
		require.NoError(t, err)
		assert.InDelta(t, best, priceOf(seconds, got, memory, price), 1e-9, "%v, %+v: %v", seconds, price, got)
		all := slices.Concat(got...)
		slices.Sort(all)
		for i := range seconds {
			require.Equal(t, i, all[i])
		}
	}
}

func TestCutOfAShare(t *testing.T) {
	c, err := sortClips([]float64{1, 1, 1, 4, 4, 7}, Limits{{2, 5}, {4, 3}, {7, 2}})
	require.NoError(t, err)
	clips := []uint32{5, 4, 3, 2, 1, 0}
	for _, overhead := range []float64{0.5, 1000} {
		// three micro-batches at least: those with the least padding
		s := splitter{sorted: c.sorted, largest: c.largest, price: Cost{OverheadS: overhead}}
		sizes := s.split(Optimal, clips)
		assert.Equal(t, []int{1, 2, 3}, sizes, "overhead %g", overhead)
		assert.Equal(t, 7.0+2*4+3*1+3*overhead, s.cost(clips, sizes))
		assert.Equal(t, []int{2, 2, 2}, s.split(Fixed, clips))
	}
	equal, err := sortClips([]float64{3, 3, 3, 3, 3, 3, 3, 3}, Limits{{3, 3}})
	require.NoError(t, err)
	s := splitter{sorted: equal.sorted, largest: equal.largest, price: Cost{OverheadS: 2}}
	assert.Equal(t, []int{3, 3, 2}, s.split(Optimal, []uint32{7, 6, 5, 4, 3, 2, 1, 0}), "the first ones are full")
}

func TestMicroBatchesThatTheCPUHidesBehindAreNotSplit(t *testing.T) {
	seconds, memory := []float64{8, 8, 4, 4, 2, 2, 2, 2}, Limits{{8, 8}}
	for _, row := range []struct {
		price Cost
		want  [][]int
	}{
		{Cost{}, [][]int{{1, 0}, {3, 2}, {7, 6, 5, 4}}},
		{Cost{HostS: 16}, [][]int{{1, 0}, {7, 6, 5, 4, 3, 2}}},                // 24 s cost less than 2 × 16
		{Cost{HostS: 8}, [][]int{{1, 0}, {3, 2}, {7, 6, 5, 4}}},               // no more than each computes
		{Cost{HostS: 40}, [][]int{{7, 6, 5, 4, 3, 2, 1, 0}}},                  // 64 s, twice 40 is more
		{Cost{OverheadS: 1, HostS: 9}, [][]int{{1, 0}, {3, 2}, {7, 6, 5, 4}}}, // overheads come on top
	} {
		got, err := Split(seconds, memory, row.price)
		require.NoError(t, err)
		for _, clips := range append(got, row.want...) {
			slices.Sort(clips)
		}
		assert.Equal(t, row.want, got, "%+v", row.price)
	}
}

func TestMemory(t *testing.T) {
	memory := Limits{{2, 5}, {4, 3}, {7, 0}}
	require.NoError(t, memory.Check())
	for seconds, want := range map[float64]int{0: 5, 2: 5, 2.1: 3, 4: 3, 7: 0, 7.1: 0} {
		assert.Equal(t, want, memory.Largest(seconds), "%g s", seconds)
	}
	assert.Equal(t, []int32{5, 5, 3, 0, 0}, memory.largestOf([]float64{0, 2, 2.1, 5, 9}))
	for name, wrong := range map[string]Limits{
		"none": {}, "no length": {{0, 1}}, "not a number": {{math.NaN(), 1}}, "endless": {{math.Inf(1), 1}},
		"below none": {{1, -1}}, "too many": {{1, MaxStep + 1}}, "falling": {{2, 1}, {1, 1}}, "same": {{2, 1}, {2, 1}},
		"more of longer ones": {{1, 1}, {2, 2}}, "long": make(Limits, maxRows+1),
	} {
		require.Error(t, wrong.Check(), name)
		_, err := Split([]float64{1}, wrong, Cost{})
		require.Error(t, err, name)
	}
}

func TestClipsThatCannotBeUsed(t *testing.T) {
	memory := Limits{{4, 3}, {7, 1}}
	for name, wrong := range map[string][]float64{"none": {}, "unknown": {1, math.NaN()}, "endless": {math.Inf(1)}, "sums to infinity": {1e308, 1e308}, "less than nothing": {-1}} {
		_, err := Split(wrong, memory, Cost{})
		require.Error(t, err, name)
	}
	_, err := Split([]float64{1, 2}, nil, Cost{})
	require.EqualError(t, err, "splitting steps requires a memory table")
	for _, wrong := range []float64{-1, math.NaN(), math.Inf(1), 1e308} {
		_, err = Split([]float64{1, 2}, memory, Cost{OverheadS: wrong})
		require.ErrorContains(t, err, "overhead_s = ")
		_, err = Split([]float64{1, 2}, memory, Cost{HostS: wrong})
		require.ErrorContains(t, err, "host_s = ")
	}
	_, err = Split([]float64{1, 8, 9, 2}, memory, Cost{})
	require.EqualError(t, err, "2 of 4 clips are too long to fit even alone; the shortest of them lasts 8 s")
	_, err = Split([]float64{8}, memory, Cost{})
	require.EqualError(t, err, "1 of 1 clip is too long to fit even alone; it lasts 8 s")
}
