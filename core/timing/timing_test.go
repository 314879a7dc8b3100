package timing

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// card is a GPU of round figures: 100 TFLOPS in 16 bits, 10 in float32, 1000 GB/s.
func card(capability string) profile.GPU {
	tensor, wide, bandwidth, power := 100.0, 10.0, 1000.0, 200.0
	return profile.GPU{Name: "NVIDIA Round", ComputeCapability: capability, TensorTFLOPS: &tensor, FP32TFLOPS: &wide, BandwidthGBs: &bandwidth, PowerWatts: &power}
}

func rates(t *testing.T, g profile.GPU) Rates {
	t.Helper()
	r, err := RatesOf(g)
	require.NoError(t, err)
	return r
}

// TestMicroBatchByHand: 50 of 100 TFLOPS, 20 for convolutions, 450 GB/s.
func TestMicroBatchByHand(t *testing.T) {
	p := rates(t, card("8.0")).Micro(analytic.Amount{Products: 5e12, Convolutions: 2e12, MovedBytes: 45e9, Kernels: 1000})
	require.InDelta(t, 0.1+0.1, p.Compute.Likely, 1e-9)
	require.InDelta(t, 0.1, p.Memory.Likely, 1e-9)
	require.Equal(t, Range{}, p.Launches, "a thousand kernels are launched within 0.2 s")
	require.Equal(t, "compute", p.Bound())
	small := rates(t, card("8.0")).Micro(analytic.Amount{Products: 5e9, Kernels: 1000})
	require.InDelta(t, 0.01, small.Launches.Likely+small.Compute.Likely, 1e-9)
	require.Equal(t, "launches", small.Bound())
}

func TestFloat32RunsOnTensorCoresFromAmpereOn(t *testing.T) {
	work := analytic.Amount{WideProducts: 1e12}
	old, new := rates(t, card("7.5")).Micro(work), rates(t, card("8.0")).Micro(work)
	require.InEpsilon(t, 5, old.Compute.Likely/new.Compute.Likely, 1e-9)
}

// TestLowPower: a card that its slot feeds does not keep its clock.
func TestLowPower(t *testing.T) {
	slot := card("7.5")
	watts := 70.0
	slot.PowerWatts = &watts
	work := analytic.Amount{Products: 1e12}
	require.InEpsilon(t, 0.5/0.37, rates(t, slot).Micro(work).Compute.Likely/rates(t, card("7.5")).Micro(work).Compute.Likely, 1e-9)
}

func TestStep(t *testing.T) {
	r := rates(t, card("8.0"))
	gemm := kernel.Operation{Kind: kernel.GEMM, Phase: kernel.Backward, DType: kernel.Float16, Batch: 1, M: 50000, N: 10000, K: 1000, Times: 3}
	w := analytic.Work{Operations: []kernel.Operation{gemm}, TrainedParameters: 1e9}
	one, four := r.Step(w, "adamw_torch", 1, 1), r.Step(w, "adamw_torch", 4, 1)
	require.InDelta(t, 3e12/50e12, one.Compute.Likely, 1e-9)
	require.InDelta(t, 4*one.Compute.Likely, four.Compute.Likely, 1e-9)
	require.InDelta(t, 100e9/450e9, one.Optimizer.Likely, 1e-9)
	require.InDelta(t, (100e9+3*12e9)/450e9, four.Optimizer.Likely, 1e-9, "three micro-batches are added to the first")
	require.Less(t, r.Step(w, "adamw_bnb_8bit", 1, 1).Optimizer.Likely, one.Optimizer.Likely)
	require.Zero(t, one.Exchange)
	two, eight := r.Step(w, "sgd", 1, 2), r.Step(w, "sgd", 1, 8)
	require.InEpsilon(t, 7.0/4, eight.Exchange.Likely/two.Exchange.Likely, 1e-9, "2 (n - 1) / n of the gradients")
	for _, part := range []Range{one.Sum(), four.Sum(), eight.Sum()} {
		require.Less(t, part.Low, part.Likely)
		require.Less(t, part.Likely, part.High)
	}
}

func TestNVLink(t *testing.T) {
	for name, has := range map[string]bool{"Tesla V100-SXM2-16GB": true, "NVIDIA H100 80GB HBM3": true, "Tesla T4": false,
		"NVIDIA GeForce RTX 4090": false, "NVIDIA H200": true, "NVIDIA H100 80GB HBM3 MIG 1g.10gb": false} {
		require.Equal(t, has, hasNVLink(name), name)
	}
}

func TestNoFiguresNoTime(t *testing.T) {
	_, err := RatesOf(profile.GPU{Name: "NVIDIA X"})
	require.ErrorContains(t, err, "no published figures for NVIDIA X")
}

func TestCalibration(t *testing.T) {
	predicted := Range{0.5, 1, 2}
	same := func(n int) []Range { return slices.Repeat([]Range{predicted}, n) }
	c, err := Calibrate(same(5), []float64{1.5, 1.4, 1.6, 1.5, 1.5})
	require.NoError(t, err)
	require.InDelta(t, 1.5, c.Factor, 1e-9)
	require.Equal(t, 5, c.Steps)
	require.InDelta(t, 1.44*0.95, c.Low, 1e-9)
	require.InDelta(t, 1.56*1.05, c.High, 1e-9)
	unequal, err := Calibrate([]Range{{1, 2, 3}, {1, 1, 1}, {2, 4, 8}}, []float64{4, 2, 8})
	require.NoError(t, err)
	require.Equal(t, Calibration{2, 2 * 0.95, 2 * 1.05, 3}, unequal, "each span against its own estimate")
	_, err = Calibrate(same(2), []float64{1})
	require.Error(t, err)
	after := c.Apply(Range{5, 10, 20})
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
	require.Equal(t, 25.0, l.Longest())
	require.InEpsilon(t, 10, l.Hours(), 0.01)
	same, err := Data{Clips: 10, MeanS: 30, MaxS: 30}.Lengths()
	require.NoError(t, err)
	require.InEpsilon(t, 30, same.mean(), 0.01)
}

// uniform is clips from 0 to 10 s, each length as often as any other.
func uniform(t *testing.T) Lengths {
	t.Helper()
	l, err := Data{Profile: &profile.Dataset{SampleCount: 1000, MinS: 0.001, MaxS: 10,
		Histogram: profile.Histogram{EdgesS: []float64{0, 5, 10}, Counts: []int{500, 500}}}}.Lengths()
	require.NoError(t, err)
	return l
}

// TestBatchesOfUniformClips: the longest of b of them lasts b / (b + 1) of the longest on average.
func TestBatchesOfUniformClips(t *testing.T) {
	l := uniform(t)
	for _, b := range []int{1, 2, 4, 8, 32} {
		mean := Lengths{1, l.Batches("random", b)}.mean()
		require.InDelta(t, 10*float64(b)/float64(b+1), mean, 0.15, "batch %d", b)
	}
	grouped := Lengths{1, l.Batches("grouped", 8)}.mean()
	require.InDelta(t, 5, grouped, 0.25, "hardly any padding")
	require.Greater(t, grouped, l.mean(), "but some")
	for _, wanted := range []float64{3, 5, 7.5, 10} {
		require.InDelta(t, wanted, Lengths{1, l.Padded(1000 * wanted)}.mean(), 0.1)
	}
	require.Equal(t, 10.0, Lengths{1, l.Padded(1e6)}.mean(), "never longer than the longest")
	require.Equal(t, 6.0, l.Trimmed(6).Longest())
	require.Equal(t, 10.0, l.Longest(), "the cut one is another")
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
	seen := map[string]bool{}
	for _, p := range Prices() {
		require.Positive(t, p.Hour, p.GPU)
		require.NotEmpty(t, p.Source, p.GPU)
		require.Regexp(t, `^20\d\d-\d\d$`, p.Date, p.GPU)
		require.False(t, seen[p.GPU], "%s twice", p.GPU)
		seen[p.GPU] = true
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
	used := Energy(card("8.0"), 2, Range{10, 10, 10})
	require.InDelta(t, 0.2*2*10*0.75, used.Likely, 1e-9)
	require.Nil(t, Energy(profile.GPU{}, 1, Range{1, 1, 1}), "absent, not zero")
}
