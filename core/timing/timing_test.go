package timing

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

func span(low, likely, high float64) profile.Range {
	return profile.Range{Low: low, Likely: likely, High: high}
}

// card is a GPU of round figures: 100 TFLOPS in 16 bits, 10 in float32, 1000 GB/s.
func card(capability string) profile.GPU {
	tensor, wide, bandwidth, power := 100.0, 10.0, 1000.0, 200.0
	return profile.GPU{Name: "NVIDIA Round", ComputeCapability: capability, TensorTFLOPS: &tensor, FP32TFLOPS: &wide, BandwidthGBs: &bandwidth, PowerWatts: &power}
}

// TestParts: they add up, and the largest is named.
func TestParts(t *testing.T) {
	p := profile.StepParts{Compute: span(1, 2, 3), Memory: span(1, 1, 1), Exchange: span(0, 3, 9)}
	require.Equal(t, span(2, 6, 13), p.Sum())
	require.Equal(t, "exchange", p.Bound())
	require.Equal(t, span(6, 18, 39), p.Plus(p.Times(2)).Sum())
}

// TestExchange: a ring moves 2 (n - 1) / n of the gradients, over NVLink at twelve times the rate.
func TestExchange(t *testing.T) {
	slot, module := card("8.0"), card("8.0")
	module.Name = "NVIDIA H200"
	require.Zero(t, Exchange(slot, 4e9, 1))
	two, eight := Exchange(slot, 4e9, 2), Exchange(slot, 4e9, 8)
	require.InDelta(t, 0.4, two.Likely, 1e-9)
	require.InEpsilon(t, 7.0/4, eight.Likely/two.Likely, 1e-9)
	require.InDelta(t, 4.0/120, Exchange(module, 4e9, 2).Likely, 1e-9)
	require.Less(t, two.Low, two.Likely)
	require.Less(t, two.Likely, two.High)
}

func TestNVLink(t *testing.T) {
	for name, has := range map[string]bool{"Tesla V100-SXM2-16GB": true, "NVIDIA H100 80GB HBM3": true, "Tesla T4": false,
		"NVIDIA GeForce RTX 4090": false, "NVIDIA H200": true, "NVIDIA H100 80GB HBM3 MIG 1g.10gb": false} {
		require.Equal(t, has, hasNVLink(name), name)
	}
}

func TestCalibration(t *testing.T) {
	predicted := span(0.5, 1, 2)
	same := func(n int) []profile.Range { return slices.Repeat([]profile.Range{predicted}, n) }
	c, err := Calibrate(same(5), []float64{1.5, 1.4, 1.6, 1.5, 1.5})
	require.NoError(t, err)
	require.InDelta(t, 1.5, c.Factor, 1e-9)
	require.Equal(t, 5, c.Steps)
	require.InDelta(t, 1.44*0.95, c.Low, 1e-9)
	require.InDelta(t, 1.56*1.05, c.High, 1e-9)
	unequal, err := Calibrate([]profile.Range{span(1, 2, 3), span(1, 1, 1), span(2, 4, 8)}, []float64{4, 2, 8})
	require.NoError(t, err)
	require.Equal(t, Calibration{2, 2 * 0.95, 2 * 1.05, 3}, unequal, "each span against its own estimate")
	_, err = Calibrate(same(2), []float64{1})
	require.Error(t, err)
	after := c.Apply(span(5, 10, 20))
	require.Equal(t, 15.0, after.Likely)
	require.Less(t, after.High-after.Low, 20.0-5, "a measurement narrows the range")
	for _, wrong := range [][]float64{nil, {0}, {-1}, {math.NaN()}, {1, math.Inf(1)}} {
		_, err := Calibrate(same(len(wrong)), wrong)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code, "%v", wrong)
	}
}

func TestAssumedLengths(t *testing.T) {
	l, err := Data{Clips: 4500, MeanS: 8, MaxS: 25}.Lengths()
	require.NoError(t, err)
	require.InEpsilon(t, 8, l.mean(), 0.01)
	require.Equal(t, 25.0, l.longest())
	d, quantiles, err := Data{Clips: 4500, MeanS: 8, MaxS: 25}.Dataset()
	require.NoError(t, err)
	require.InEpsilon(t, 10, d.TotalHours, 0.01)
	require.Equal(t, [3]float64{d.MinS, 25, l.mean()}, [3]float64{quantiles[0], d.MaxS, d.MeanS})
	require.Equal(t, 4500, d.SampleCount)
	d, _, err = Data{Clips: 45_000, MeanS: 8, MaxS: 3600}.Dataset()
	require.NoError(t, err)
	require.InEpsilon(t, 100, d.TotalHours, 1e-6, "the longest clip adds nothing")
	same, err := Data{Clips: 10, MeanS: 30, MaxS: 30}.Lengths()
	require.NoError(t, err)
	require.InEpsilon(t, 30, same.mean(), 0.01)
}

func TestRowsOfOneLengthAreAllAsLong(t *testing.T) {
	padded, err := Data{Clips: 1000, MeanS: 2.56, MaxS: 2.56, RowKind: units.Texts}.Lengths()
	require.NoError(t, err)
	require.Equal(t, 2.56, slices.Min(padded.Quantiles()))
	_, err = Data{Clips: 10, MeanS: 2.58, MaxS: 2.56, RowKind: units.Texts}.Lengths()
	require.ErrorContains(t, err, "texts of 129 tokens on average and at most 128 tokens")
}

// TestQuantilesOfAProfile: each bin's clips are spread evenly over it.
func TestQuantilesOfAProfile(t *testing.T) {
	data := profile.Dataset{SampleCount: 1000, MinS: 0.001, MaxS: 10,
		Histogram: profile.Histogram{EdgesS: []float64{0, 5, 10}, Counts: []int{500, 500}}}
	l, err := Data{Profile: &data}.Lengths()
	require.NoError(t, err)
	require.InDelta(t, 5, l.mean(), 0.02)
	require.InDelta(t, 2.5, l.Quantiles()[quantiles/4], 0.02)
	require.Equal(t, 10.0, l.longest())
	d, none, err := Data{Profile: &data}.Dataset()
	require.NoError(t, err)
	require.Equal(t, data, d)
	require.Empty(t, none, "a plan reads the profile's histogram itself")
}

func TestDataRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		data Data
		code fault.Code
	}{
		"nothing":           {Data{}, fault.EmptyDataset},
		"no mean":           {Data{Clips: 1}, fault.InvalidArgument},
		"nan":               {Data{Clips: 1, MeanS: math.NaN(), MaxS: 1}, fault.InvalidArgument},
		"shorter than mean": {Data{Clips: 1, MeanS: 2, MaxS: 1}, fault.InvalidArgument},
		"two days":          {Data{Clips: 1, MeanS: 2, MaxS: 2e5}, fault.InvalidArgument},
		"empty profile":     {Data{Profile: &profile.Dataset{}}, fault.EmptyDataset},
		"bad histogram":     {Data{Profile: &profile.Dataset{SampleCount: 1, Histogram: profile.Histogram{Counts: []int{1}}}}, fault.EmptyDataset},
		"bad durations":     {Data{Profile: &profile.Dataset{SampleCount: 1, MaxS: -1, Histogram: profile.Histogram{EdgesS: []float64{0, 1}, Counts: []int{1}}}}, fault.InvalidArgument},
	} {
		_, err := row.data.Lengths()
		require.Error(t, err, name)
		require.Equal(t, row.code, fault.From(err).Code, name)
	}
}

func TestPrices(t *testing.T) {
	cards := map[string]bool{}
	for _, p := range Prices() {
		require.Positive(t, p.Hour, p.GPU)
		require.NotEmpty(t, p.Source, p.GPU)
		require.Regexp(t, `^20\d\d-\d\d$`, p.Date, p.GPU)
		require.False(t, cards[p.GPU], "%s twice", p.GPU)
		cards[p.GPU] = true
	}
	for _, wrong := range []float64{-1, math.NaN(), math.Inf(1), 1e9} {
		_, err := GivenPrice("T4", wrong)
		require.ErrorContains(t, err, "the price of T4 is")
	}
	free, err := GivenPrice("T4", 0)
	require.NoError(t, err)
	require.Zero(t, free.Hour)
}

func TestEnergy(t *testing.T) {
	used := Energy(card("8.0"), 2, span(10, 10, 10))
	require.InDelta(t, 0.2*2*10*0.75, used.Likely, 1e-9)
	require.Nil(t, Energy(profile.GPU{}, 1, span(1, 1, 1)), "absent, not zero")
}

// TestFilesOfHigherRatesTakeLonger to decode and resample; those of no rate count as the model's.
func TestFilesOfHigherRatesTakeLonger(t *testing.T) {
	usual := WorkerRate(units.Clips, "wav2vec2", nil)
	require.InDeltaSlice(t, []float64{300, 1200, 3000}, []float64{usual.Low, usual.Likely, usual.High}, 1e-9)
	require.Greater(t, WorkerRate(units.Texts, "bert", nil).Low, usual.High, "nothing is decoded")
	for _, architecture := range []string{"whisper", "canary", "qwen3_asr"} {
		require.Less(t, WorkerRate(units.Clips, architecture, nil).Likely, usual.Likely, "whose processor makes features")
	}
	for _, same := range []map[string]int{{}, {"16000": 5}, {"8000": 3}, {"none": 4}, {"NaN": 2}, {"-48000": 1}, {"48000": -1}, {"1e300": 1}} {
		require.Equal(t, usual, WorkerRate(units.Clips, "wav2vec2", same), same)
	}
	all := WorkerRate(units.Clips, "wav2vec2", map[string]int{"48000": 9})
	require.InEpsilon(t, 1/(1/1200.0+0.6e-3), all.Likely, 1e-9)
	require.InEpsilon(t, 1/(1/300.0+1.2e-3), all.Low, 1e-9)
	half := WorkerRate(units.Clips, "wav2vec2", map[string]int{"48000": 4, "16000": 4})
	require.InEpsilon(t, 1/(1/1200.0+0.3e-3), half.Likely, 1e-9)
}
