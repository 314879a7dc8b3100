package batching

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSharesOfAStep(t *testing.T) {
	for _, test := range []struct {
		shares   []int
		size     int
		expected []int
	}{
		{nil, 32, []int{8, 8, 8, 8}},
		{nil, 31, []int{8, 8, 8, 7}},
		{nil, 17, []int{5, 4, 4, 4}},
		{nil, 4, []int{1, 1, 1, 1}},
		{[]int{20, 1, 8, 3}, 32, []int{20, 1, 8, 3}},
		{[]int{20, 1, 8, 3}, 31, []int{20, 1, 8, 2}},
		{[]int{20, 1, 8, 3}, 16, []int{10, 1, 4, 1}},
		{[]int{20, 1, 8, 3}, 5, []int{2, 1, 1, 1}},
		{[]int{20, 1, 8, 3}, 4, []int{1, 1, 1, 1}},
	} {
		r := Options{StepSamples: 32, Ranks: 4, Shares: test.shares}
		assert.Equal(t, test.expected, r.counts(test.size), "%v of %d", test.shares, test.size)
	}
	assert.Equal(t, []int{1, 1}, Options{StepSamples: 2, Ranks: 2}.counts(2))
}

// TestPlacesGoBackAndForth: of equal shares as cards are dealt, of others as often as each has
// clips.
func TestPlacesGoBackAndForth(t *testing.T) {
	assert.Equal(t, []int{0, 3, 6, 7, 4, 1, 2, 5, 8}, places([]int{3, 3, 3}))
	assert.Equal(t, []int{0, 1, 6, 2, 3, 7, 4, 5}, places([]int{6, 2}))
	assert.Equal(t, []int{0, 1, 2}, places([]int{3}))
}

// TestUnevenSharesAreOfAboutTheSameLengths, so that a process has work in relation to its clips.
func TestUnevenSharesAreOfAboutTheSameLengths(t *testing.T) {
	seconds := lognormal(32_000, 3)
	for mode, tolerance := range map[string]float64{Random: 0.1, Bucketed: 0.1, Stratified: 0.13} {
		r := options(mode, 32, fits(60, 30))
		r.Ranks, r.Shares = 4, []int{16, 10, 4, 2}
		e := epochOf(t, seconds, r)
		audio, clips := make([]float64, 4), make([]float64, 4)
		e.eachRank(func(rank int, share []uint32, _ bool) {
			for _, number := range share {
				audio[rank] += seconds[number]
				clips[rank]++
			}
			require.True(t, slices.IsSortedFunc(share, func(a, b uint32) int { return int(1e9 * (seconds[b] - seconds[a])) }))
		})
		mean := 0.0
		for _, s := range seconds {
			mean += s / float64(len(seconds))
		}
		for rank := range audio {
			assert.InEpsilon(t, mean, audio[rank]/clips[rank], tolerance, "%s, process %d", mode, rank)
		}
	}
}

// TestFastestSharesAreTheBestOfAll by trying every other.
func TestFastestSharesAreTheBestOfAll(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	last := func(shares []int, paces []float64) (longest float64) {
		for i, share := range shares {
			longest = max(longest, float64(share)*paces[i])
		}
		return longest
	}
	for range 200 {
		paces := []float64{1, 0.05 + random.Float64(), 0.05 + random.Float64()}
		step := 3 + random.IntN(20)
		shares := FastestShares(step, paces)
		require.Equal(t, step, shares[0]+shares[1]+shares[2])
		require.Positive(t, min(shares[0], shares[1], shares[2]))
		for a := 1; a <= step-2; a++ {
			for b := 1; b <= step-a-1; b++ {
				require.LessOrEqual(t, last(shares, paces), last([]int{a, b, step - a - b}, paces)+1e-9, "%v", paces)
			}
		}
	}
	assert.Equal(t, []int{8, 8, 8, 8}, FastestShares(32, []float64{1, 1, 1, 1}))
	assert.Equal(t, []int{8, 24}, FastestShares(32, []float64{1, 1.0 / 3}))
}

// TestPacesOfProcesses: with even shares all wait for the slowest; shares by pace save most of
// that.
func TestPacesOfProcesses(t *testing.T) {
	seconds := lognormal(8000, 5)
	r := options(Random, 32, fits(60, 30))
	r.Ranks = 2
	slowest := func(r Options) float64 {
		c, err := Compare(seconds, r)
		require.NoError(t, err)
		for _, f := range c.Strategies {
			if f.Order == Random && f.Split == Optimal {
				require.Zero(t, f.OverMemory)
				return f.SlowestS
			}
		}
		return 0
	}
	alike := slowest(r)
	r.Paces = []float64{1, 1.0 / 3}
	even := slowest(r)
	assert.InEpsilon(t, alike, even, 0.05)
	r.Shares = FastestShares(32, r.Paces)
	require.Equal(t, []int{8, 24}, r.Shares)
	assert.InEpsilon(t, 0.55, slowest(r)/even, 0.1, "half the clips for the slow one, in as full micro-batches")
}

func TestSharesThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		mode   string
		shares []int
	}{
		"shares of 1 processes":      {Random, []int{32}},
		"process 1 is 0 of 2 clips":  {Random, []int{30, 0}},
		"process 0 is -1 of 32":      {Random, []int{-1, 33}},
		"process 1 is 31 of 30":      {Random, []int{2, 31}},
		"shares leave 2 of 32 clips": {Bucketed, []int{2, 28}},
		"shares of 0 processes":      {Bucketed, []int{}},
	} {
		r := options(test.mode, 32, fits(60, 30))
		r.Ranks, r.Shares = 2, test.shares
		_, err := MakeEpoch(lognormal(100, 1), r)
		require.ErrorContains(t, err, name)
	}
}
