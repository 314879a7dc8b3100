package dataset

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// summed sums clips up that are known.
func summed(clips []profile.Clip, source string, sample *Subsample) profile.Dataset {
	return Summarize(collectionOf(clips), source, sample, Options{})
}

func collectionOf(clips []profile.Clip) *Clips {
	c := &Clips{rows: make([]row, len(clips))}
	for i := range clips {
		c.given(&clips[i], &c.rows[i])
	}
	return c
}

func clipsOf(seconds ...float64) (clips []profile.Clip) {
	for _, s := range seconds {
		clips = append(clips, profile.Clip{DurationS: &s, SampleRate: 8000, Channels: 2, Codec: "flac", SizeBytes: 10})
	}
	return clips
}

func TestStatistics(t *testing.T) {
	claimed := 9.0
	clips := clipsOf(2, 4, 4, 4, 5, 5, 7, 9)
	clips[0].ClaimedS = &claimed
	clips = append(clips, profile.Clip{Path: "bad", Error: "is empty"})
	d := summed(clips, "8 clips", nil)
	assert.Equal(t, 5.0, d.MeanS)
	assert.Equal(t, 2.0, d.StdS, "population, not sample")
	assert.Equal(t, []float64{2, 9}, []float64{d.MinS, d.MaxS})
	assert.Equal(t, 1, d.ShortenedCount)
	assert.Equal(t, map[string]int{"8000": 8}, d.SampleRates)
	assert.Equal(t, map[string]int{"2": 8}, d.Channels)
	assert.Equal(t, []profile.BadFile{{Path: "bad", Error: "is empty"}}, d.BadFiles)
	assert.EqualValues(t, 80, d.SizeBytes)
	assert.EqualValues(t, 40*64000, d.DecodedBytes)
	// By hand, at position p/100 x 7 in the sorted values.
	want := map[string]float64{"p1": 2.14, "p5": 2.7, "p10": 3.4, "p25": 4, "p50": 4.5, "p75": 5.5, "p90": 7.6, "p95": 8.3, "p99": 8.86}
	for name, w := range want {
		assert.InDelta(t, w, d.PercentilesS[name], 1e-12, name)
	}
	assert.Len(t, d.PercentilesS, len(want))
}

func TestShareOver30(t *testing.T) {
	assert.Equal(t, 0.5, summed(clipsOf(30, 29.99, 30.000001, 3600), "", nil).ShareOver30S, "30 s itself is not over")
	assert.Zero(t, summed(clipsOf(1), "", nil).ShareOver30S)
}

func TestNothing(t *testing.T) {
	d := summed(nil, "nothing", nil)
	assert.Zero(t, d.MeanS)
	assert.Empty(t, d.PercentilesS)
	assert.NotNil(t, d.BadFiles)
	assert.NotNil(t, d.Histogram.EdgesS)
}

func TestOneClip(t *testing.T) {
	d := summed(clipsOf(4.2), "", nil)
	assert.Equal(t, 4.2, d.PercentilesS["p1"])
	assert.Equal(t, 4.2, d.PercentilesS["p99"])
	assert.Zero(t, d.StdS)
	assert.Equal(t, profile.Histogram{EdgesS: []float64{4, 5}, Counts: []int{1}}, d.Histogram)
}

func TestHugeTotals(t *testing.T) {
	d := summed(clipsOf(1e9, 1e9), "", &Subsample{Drawn: 2, Population: 1 << 60})
	assert.EqualValues(t, math.MaxInt64, d.DecodedBytes)
	assert.False(t, math.IsInf(d.TotalHours, 0))
}

func TestHistogram(t *testing.T) {
	cases := []struct {
		name        string
		sorted      []float64
		first, step float64
		bins        int
	}{
		{"1 to 15 s", []float64{1, 2.2, 9.99, 10, 15}, 1, 1, 14},
		{"tenths", []float64{0.05, 0.3, 0.3, 0.31, 2}, 0, 0.1, 20},
		{"quarters", []float64{0, 1, 5}, 0, 0.25, 20},
		{"hours", []float64{3, 7200}, 0, 500, 15},
		{"milliseconds", []float64{0.001, 0.0203}, 0.001, 0.001, 20},
		{"far from zero", []float64{100.1, 100.2}, 100.1, 0.005, 20},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := histogram(c.sorted)
			assert.Len(t, h.EdgesS, len(h.Counts)+1)
			assert.InDelta(t, c.first, h.EdgesS[0], 1e-12)
			assert.InDelta(t, c.step, h.EdgesS[1]-h.EdgesS[0], 1e-9)
			assert.InDelta(t, c.bins, len(h.Counts), 1)
			counted(t, h, c.sorted)
		})
	}
	h := histogram([]float64{0.05, 0.3, 0.3, 0.31, 2})
	assert.Equal(t, 0.3, h.EdgesS[3], "not 0.30000000000000004")
	assert.Equal(t, 3, h.Counts[3], "an edge belongs to the bin that it starts")
	assert.Equal(t, 1, h.Counts[len(h.Counts)-1], "the last bin is closed")
}

// counted checks every bin against its definition.
func counted(t *testing.T, h profile.Histogram, values []float64) {
	t.Helper()
	assert.IsIncreasing(t, h.EdgesS)
	last := len(h.Counts) - 1
	for i, n := range h.Counts {
		want := 0
		for _, v := range values {
			if v >= h.EdgesS[i] && (v < h.EdgesS[i+1] || i == last && v == h.EdgesS[i+1]) {
				want++
			}
		}
		assert.Equal(t, want, n, "bin %d", i)
	}
}

func TestTextsAreNotJudgedAsAudio(t *testing.T) {
	rows := []profile.Clip{}
	for _, tokens := range []float64{3, 40, 2000} {
		seconds := tokens / units.TokensPerSecond
		rows = append(rows, profile.Clip{DurationS: &seconds, Codec: "tokens"})
	}
	texts := Summarize(collectionOf(rows), "3 rows", nil, Options{RowKind: units.Texts})
	assert.Equal(t, units.Texts, texts.RowKind)
	assert.Empty(t, texts.Warnings, "neither too short for speech nor too long for Whisper")
	assert.Equal(t, int64(8*2043), texts.DecodedBytes)
	clips := Summarize(collectionOf(rows), "3 rows", nil, Options{})
	assert.Equal(t, units.Clips, clips.RowKind)
	assert.NotEmpty(t, clips.Warnings)
}

// TestIntervalOfShards: by hand, shards of 2 clips of 1 s and of 2 clips of 3 s have the mean 2 s, and
// differ from it by 2 s each: half the width is 12.706 times the root of 2 · (4 + 4), over 4 clips.
func TestIntervalOfShards(t *testing.T) {
	clips := clipsOf(1, 1, 3, 3)
	d := summed(clips, "", &Subsample{Drawn: 4, Population: 8, Shards: []int{2, 2}})
	assert.InDelta(t, 2+12.706*4/4, *d.Sampling.MeanHighS, 1e-9)
	assert.Zero(t, d.Sampling.MeanLowS)
	alone := summed(clips, "", &Subsample{Drawn: 4, Population: 8})
	assert.InDelta(t, 2+3.182*math.Sqrt(4.0/3*4)/4, *alone.Sampling.MeanHighS, 1e-9)
	assert.InDelta(t, 1-math.Pow(0.05, 0.25), d.Sampling.LongerShare, 1e-9)
}

func TestSamplesOfFewClips(t *testing.T) {
	one := summed(clipsOf(3), "", &Subsample{Drawn: 1, Population: 9})
	assert.Nil(t, one.Sampling.MeanHighS, "one clip does not tell")
	assert.Equal(t, 9, *one.Sampling.Population)
	assert.InDelta(t, 0.95, one.Sampling.LongerShare, 1e-9)
	two := summed(clipsOf(3, 5, 0, 4), "", &Subsample{Drawn: 4, Population: 4, Shards: []int{2, 0, 2}})
	assert.Nil(t, two.Sampling.Population, "unknown")
	assert.Equal(t, 3, two.Sampling.Shards)
	assert.InDelta(t, 4, *two.Sampling.MeanHighS, 1e-9, "two shards of the same mean")
	assert.Nil(t, summed(nil, "", &Subsample{}).Sampling)
	assert.Nil(t, summed(clipsOf(3), "", nil).Sampling, "all were measured")
}

func TestShardsThatDoNotAddUp(t *testing.T) {
	for _, shards := range [][]int{{}, {1}, {3}, {-1, 3}, {1, 2}, {1 << 62, 1 << 62}} {
		c := &Collection{clips: collectionOf(clipsOf(1, 2))}
		_, err := c.Finish(context.Background(), Ending{Sampled: true, Shards: shards})
		isFault(t, err, fault.InvalidArgument, "2 clips given")
	}
	c := &Collection{clips: collectionOf(clipsOf(1, 2))}
	found, err := c.Finish(context.Background(), Ending{Sampled: true, Shards: []int{0, 2}})
	require.NoError(t, err)
	assert.Equal(t, 2, found.Profile.Sampling.Shards)
}

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

// TestLongestComesFirst: the group with the longest clip gives it to the first batch, and takes
// that batch's longest for it.
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
