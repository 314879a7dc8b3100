package dataset

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

func byOrder(p []profile.Padding) map[string]float64 {
	all := map[string]float64{}
	for _, one := range p {
		all[one.Order] = one.PaddedS
	}
	return all
}

func TestPaddings(t *testing.T) {
	// By hand: 1..8 s in batches of 2, longest first: 2 x (8 + 6 + 4 + 2) = 40 s for 36 s of audio.
	got := paddings([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 2, 0)
	assert.Equal(t, []string{"random", "grouped", "bucketed", "sorted"}, []string{got[0].Order, got[1].Order, got[2].Order, got[3].Order})
	assert.Equal(t, 40.0, got[3].PaddedS)
	assert.InDelta(t, 0.1, got[3].Waste, 1e-12)
	assert.InDelta(t, 8*6.0, got[0].PaddedS, 1e-9, "the longer of two of 1..8 is 6 on average")
	assert.Empty(t, paddings(nil, 8, 0))
	same := paddings([]float64{3, 3, 3, 3, 3}, 2, 0)
	for _, p := range same {
		assert.InDelta(t, 15, p.PaddedS, 1e-9, p.Order)
		assert.InDelta(t, 0, p.Waste, 1e-12)
	}
}

func lognormal(n int, seed uint64) []float64 {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]float64, n)
	for i := range all {
		all[i] = math.Exp(1.8 + 0.6*random.NormFloat64())
	}
	slices.Sort(all)
	return all
}

func TestGroupsWasteLess(t *testing.T) {
	sorted := lognormal(20_000, 1)
	p := byOrder(paddings(sorted, 8, 3))
	assert.Greater(t, p["random"], 1.4*p["sorted"])
	assert.Less(t, p["grouped"], 1.1*p["sorted"])
	assert.Less(t, p["bucketed"], p["random"])
	assert.Greater(t, p["bucketed"], p["sorted"])
	assert.Equal(t, p, byOrder(paddings(sorted, 8, 3)), "the same seed, the same groups")
	assert.NotEqual(t, p["grouped"], byOrder(paddings(sorted, 8, 4))["grouped"])
	// A shuffle is near its expectation.
	order := slices.Clone(sorted)
	rand.New(rand.NewPCG(5, 5)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	assert.InEpsilon(t, p["random"], inOrder(order, 8), 0.02)
}

// TestLongestComesFirst: the group with the longest clip gives it to the first batch, and takes that batch's longest for it.
func TestLongestComesFirst(t *testing.T) {
	sorted := make([]float64, 64)
	for i := range sorted {
		sorted[i] = 1
	}
	sorted[63] = 100
	assert.Equal(t, 62.0+2*100, grouped(sorted, 2, 7))
}

func TestOutliers(t *testing.T) {
	short := func(n int) []float64 { return slices.Repeat([]float64{5}, n) }
	got := outliers(append(short(1000), slices.Repeat([]float64{60}, 12)...), 8)
	require.NotNil(t, got)
	assert.Equal(t, 30.0, got.OverS)
	assert.Equal(t, 12, got.Count)
	// 1012 clips make 1012 x 5 s and, in about 11.5 of the batches, 8 x 55 s more.
	assert.InDelta(t, 0.5, got.PaddedShare, 0.03)
	assert.Nil(t, outliers(short(1000), 8))
	assert.Nil(t, outliers(nil, 8))
	assert.Nil(t, outliers([]float64{60}, 8))
	assert.Nil(t, outliers(slices.Repeat([]float64{60}, 1000), 8), "all are long: none is an outlier")
	got = outliers(append(short(995), slices.Repeat([]float64{25}, 5)...), 8)
	require.NotNil(t, got)
	assert.Equal(t, 5, got.Count)
	assert.Less(t, got.OverS, 25.0)
}

func TestProfileOfBatches(t *testing.T) {
	d := Summarize(collectionOf(clipsOf(1, 2, 3, 4, 5, 6, 7, 8)), "", nil, Options{BatchSize: 2})
	assert.Equal(t, 2, d.BatchSize)
	assert.Equal(t, 40.0, d.Padding[3].PaddedS)
	assert.Equal(t, 8, Summarize(collectionOf(nil), "", nil, Options{}).BatchSize)
	for _, wrong := range []int{-1, maxBatch + 1} {
		require.Error(t, Options{BatchSize: wrong}.Check())
	}
}

func FuzzPadding(f *testing.F) {
	f.Add(uint64(1), 100, 8)
	f.Add(uint64(2), 1, 1)
	f.Add(uint64(3), 7, 3000)
	f.Add(uint64(2), 5, 4)
	f.Fuzz(func(t *testing.T, seed uint64, n, b int) {
		if n < 1 || n > 3000 || b < 1 || b > maxBatch {
			return
		}
		sorted := lognormal(n, seed)
		for _, p := range paddings(sorted, b, int64(seed)) {
			name := fmt.Sprintf("%s, %d clips, batches of %d", p.Order, n, b)
			assert.False(t, math.IsNaN(p.PaddedS) || math.IsInf(p.PaddedS, 0), name)
			if n%b == 0 && p.Order != "bucketed" { // a batch that is not full may do better elsewhere; buckets have more of them
				assert.GreaterOrEqual(t, p.PaddedS, inOrder(descending(sorted), b)*(1-1e-9), name)
			}
			assert.LessOrEqual(t, p.PaddedS, float64(n)*sorted[n-1]*(1+1e-9), name)
			assert.True(t, p.Waste >= 0 && p.Waste < 1, name)
		}
	})
}
