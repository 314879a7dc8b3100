package batching

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBucketsAreTheBestOfAll: against every set of boundaries, of few clips, where the histogram
// tells all of them apart.
func TestBucketsAreTheBestOfAll(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	memory := Limits{{2, 9}, {4, 5}, {7, 2}, {12, 1}}
	for round := range 200 {
		seconds := make([]float64, 1+random.IntN(10))
		for i := range seconds {
			seconds[i] = float64(random.IntN(12)) + 0.5*float64(random.IntN(2))
		}
		table := memory
		if round%3 == 0 {
			table = nil
		}
		c, err := sortClips(seconds, table)
		require.NoError(t, err)
		k, share, enough := 1+random.IntN(4), 1+random.IntN(8), 1+random.IntN(3)
		price := Cost{OverheadS: float64(random.IntN(6)), HostS: float64(random.IntN(20))}
		boundaries := c.buckets(k, share, price, enough)
		n := len(seconds)
		require.LessOrEqual(t, len(boundaries), k)
		require.Equal(t, n, boundaries[len(boundaries)-1])
		best := math.Inf(1)
		for set := range 1 << (n - 1) { // bit i: a boundary behind clip i
			ends := []int{}
			for i := range n - 1 {
				if set>>i&1 == 1 {
					ends = append(ends, i+1)
				}
			}
			if ends = append(ends, n); len(ends) <= k && allowed(c, ends, enough) {
				best = min(best, bucketCost(c, ends, share, price))
			}
		}
		require.True(t, allowed(c, boundaries, enough), "%v: %v", c.sorted, boundaries)
		assert.InDelta(t, best, bucketCost(c, boundaries, share, price), 1e-9, "%v in %d: %v", c.sorted, k, boundaries)
	}
}

func allowed(c *sortedClips, ends []int, enough int) bool {
	from := 0
	for _, to := range ends {
		if to < len(c.sorted) && c.sorted[to] == c.sorted[to-1] || to-from < enough && len(ends) > 1 {
			return false
		}
		from = to
	}
	return true
}

// bucketCost is written out: padding of every clip to its bucket's longest, and for every share of
// clips its micro-batches, which are as full as each other.
func bucketCost(c *sortedClips, ends []int, share int, price Cost) (cost float64) {
	from := 0
	for _, to := range ends {
		longest, count := c.sorted[to-1], float64(to-from)
		perClip := longest
		if c.memory != nil {
			microBatches := math.Ceil(float64(share) / float64(min(share, c.memory.Largest(longest))))
			perClip = max(longest+price.OverheadS*microBatches/float64(share), price.HostS*microBatches/float64(share))
		}
		cost += count * perClip
		from = to
	}
	return cost
}

func TestMoreBucketsHoldLessPadding(t *testing.T) {
	c, err := sortClips(lognormal(20_000, 1), nil)
	require.NoError(t, err)
	last := math.Inf(1)
	for _, k := range []int{1, 2, 5, 10, 30} {
		boundaries := c.buckets(k, 32, Cost{}, 96)
		cost := bucketCost(c, boundaries, 32, Cost{})
		assert.Less(t, cost, last)
		last = cost
		for _, b := range c.describe(boundaries) {
			require.GreaterOrEqual(t, b.Clips, 96)
			require.Nil(t, b.MicroBatch)
		}
	}
	equal := slices.Repeat([]float64{3}, 1000)
	c, err = sortClips(equal, fits(60, 30))
	require.NoError(t, err)
	assert.Equal(t, []int{1000}, c.buckets(10, 32, Cost{OverheadS: 1}, 1), "clips of one length are one bucket")
}
