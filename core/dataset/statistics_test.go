package dataset

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

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

func FuzzHistogram(f *testing.F) {
	f.Add(1.0, 15.0, 3.0)
	f.Add(1e-300, 1e9, 1e-5)
	f.Add(4.2, 4.2, 4.2000000001)
	f.Add(1.4000000000000001, 0.6, 0.21000000000500002)
	f.Fuzz(func(t *testing.T, a, b, c float64) {
		var values []float64
		for _, v := range []float64{a, b, c} {
			if !(v > 0 && v <= maxClipS) {
				return
			}
			values = append(values, v)
		}
		h := summed(clipsOf(values...), "", nil).Histogram
		counted(t, h, values)
		assert.LessOrEqual(t, len(h.Counts), 2*histogramBins)
	})
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
