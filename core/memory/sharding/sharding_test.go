package sharding

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

const billion = 1_000_000_000

// whole is a model of a billion parameters, all trained by AdamW in float32: 4 + 4 + 8 bytes each.
func whole(strategy string, devices int, precision string) Request {
	return Request{
		Strategy: strategy, Devices: devices, Precision: precision, Parameters: billion, Trainable: billion,
		ParameterBytes: 4 * billion, GradientBytes: 4 * billion, OptimizerBytes: 8 * billion,
		LargestBlock: 20_000_000, Outside: 30_000_000,
	}
}

// of is what one process keeps.
func of(t *testing.T, r Request) States {
	t.Helper()
	s, err := Of(r)
	require.NoError(t, err)
	return s
}

// The states are ZeRO's 2 + 2 + 12 bytes a parameter, divided; buffers are buckets of 25 M elements
// (50 MB in 16 bits), what is gathered (2 B x (50 + 20 + 25) M), and FSDP's 3 layers + outside and
// 2 layers of gradients.
func TestByHand(t *testing.T) {
	const gb, mb = 1_000_000_000, 1_000_000
	for _, row := range []struct {
		strategy, precision string
		devices             int
		want                [5]int64 // parameters, gradients, optimizer, buffers, step
	}{
		{"none", "bf16", 4, [5]int64{4 * gb, 4 * gb, 8 * gb, 0, 0}},
		{"ddp", "bf16", 4, [5]int64{4 * gb, 4 * gb, 8 * gb, 4 * gb, 0}},
		{"zero1", "fp16", 4, [5]int64{2 * gb, 2 * gb, 3 * gb, 50 * mb, gb}},
		{"zero2", "fp16", 4, [5]int64{2 * gb, gb / 2, 3 * gb, 100 * mb, gb}},
		{"zero3", "fp16", 4, [5]int64{gb / 2, gb / 2, 3 * gb, 290 * mb, gb}},
		{"fsdp", "bf16", 4, [5]int64{gb, gb, 2 * gb, 260 * mb, 0}},
		{"zero1", "fp32", 2, [5]int64{4 * gb, 4 * gb, 6 * gb, 100 * mb, 2 * gb}},
		{"zero2", "fp32", 2, [5]int64{4 * gb, 2 * gb, 6 * gb, 200 * mb, 2 * gb}},
		{"zero3", "fp32", 2, [5]int64{2 * gb, 2 * gb, 6 * gb, 580 * mb, 2 * gb}},
		{"fsdp", "fp32", 2, [5]int64{2 * gb, 2 * gb, 4 * gb, 520 * mb, 0}},
	} {
		s := of(t, whole(row.strategy, row.devices, row.precision))
		require.Equal(t, row.want, [5]int64{s.Parameters, s.Gradients, s.Optimizer, s.Buffers, s.Step}, row.strategy)
		require.Equal(t, s.Parameters+s.Gradients+s.Optimizer+s.Buffers, s.Total)
	}
}

// Figure 1 of arXiv:1910.02054: 7.5 billion parameters, 64 GPUs, 120 GB without sharding.
func TestFigureOfThePaper(t *testing.T) {
	const parameters = 7_500_000_000
	for strategy, want := range map[string]float64{"zero1": 31.4, "zero2": 16.6, "zero3": 1.9} {
		s, err := Of(Request{
			Strategy: strategy, Devices: 64, Precision: "fp16", Parameters: parameters, Trainable: parameters,
			ParameterBytes: 4 * parameters, GradientBytes: 4 * parameters, OptimizerBytes: 8 * parameters,
		})
		require.NoError(t, err)
		require.InDelta(t, want, float64(s.Total-s.Buffers)/1e9, 0.06, strategy)
	}
}

func TestWhatIsNotAllTrainedInFloat32(t *testing.T) {
	adapters := Request{
		Devices: 2, Precision: "bf16", Parameters: 1010, Trainable: 10, ParameterBytes: 4040, GradientBytes: 40, OptimizerBytes: 80,
		LargestBlock: 100, Outside: 50,
	}
	for strategy, want := range map[string][3]int64{
		"ddp": {4040, 40, 80}, "zero1": {2020, 20, 60}, "zero2": {2020, 10, 60}, "zero3": {1010, 10, 60}, "fsdp": {2020, 20, 40},
	} {
		adapters.Strategy = strategy
		s := of(t, adapters)
		require.Equal(t, want, [3]int64{s.Parameters, s.Gradients, s.Optimizer}, strategy)
	}

	short := whole("fsdp", 2, "bf16") // loaded in bfloat16: Accelerate makes what trains float32
	short.ParameterBytes, short.GradientBytes = 2*billion, 2*billion
	s := of(t, short)
	require.Equal(t, []int64{2 * billion, 2 * billion}, []int64{s.Parameters, s.Gradients})
	short.Strategy = "zero2"
	s = of(t, short)
	require.Equal(t, []int64{2 * billion, billion}, []int64{s.Parameters, s.Gradients})

	adafactor := whole("zero1", 4, "fp16")
	adafactor.Optimizer, adafactor.OptimizerBytes = "adafactor", 10_000_000
	s = of(t, adafactor)
	require.EqualValues(t, 2*billion, s.Optimizer, "a second moment and a float32 copy, both of a quarter")
}

func TestFSDPWithoutSizesOrWithDeferredSends(t *testing.T) {
	r := whole("fsdp", 4, "bf16")
	sized := of(t, r)
	r.DeferredSends = true
	deferred := of(t, r)
	require.EqualValues(t, 2*billion-2*40_000_000, deferred.Buffers-sized.Buffers, "all gradients in 16 bits for two layers'")

	r.DeferredSends, r.LargestBlock, r.Outside = false, 0, 0
	assumed := of(t, r)
	require.EqualValues(t, 2*(4+2)*83_333_334, assumed.Buffers)
}

func TestOneProcessKeepsEverything(t *testing.T) {
	for _, strategy := range append(Strategies(), "none") {
		r := whole(strategy, 1, "bf16")
		r.CastBytes = 1_900_000_000
		s := of(t, r)
		difference, err := Difference(r)
		require.NoError(t, err)
		require.Zero(t, difference, strategy)
		require.Zero(t, s.Step, strategy)
	}
}

func TestMoreDevicesAndStagesNeedLess(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		r := randomRequest(random)
		alone := r
		alone.Strategy = "none"
		one := of(t, alone)
		var before States
		for i, strategy := range []string{"ddp", "zero1", "zero2", "zero3"} {
			r.Strategy = strategy
			s := of(t, r)
			if i > 0 {
				require.LessOrEqual(t, s.Total, before.Total, "%s %+v", strategy, r)
			}
			before = s
		}
		for _, strategy := range Strategies() {
			r.Strategy = strategy
			s := of(t, r)
			n := int64(r.Devices)
			require.GreaterOrEqual(t, n*s.Optimizer, one.Optimizer, "all shards make up the whole")
			require.GreaterOrEqual(t, n*s.Parameters, r.Parameters*widths[r.Precision])
			require.GreaterOrEqual(t, n*s.Gradients, r.Trainable*widths[r.Precision])
			more := r
			more.Devices++
			next := of(t, more)
			require.LessOrEqual(t, next.Total, s.Total)
		}
	}
}

// randomRequest is a model of 0.3 to 3 billion parameters: of smaller ones the buffers outweigh
// what sharding saves.
func randomRequest(random *rand.Rand) Request {
	parameters := int64(300_000_000 + random.IntN(2_700_000_000))
	trainable := parameters - random.Int64N(parameters/3)
	return Request{
		Devices: 2 + random.IntN(30), Precision: []string{"fp32", "fp16", "bf16"}[random.IntN(3)],
		Parameters: parameters, Trainable: trainable, ParameterBytes: 4 * parameters, GradientBytes: 4 * trainable,
		OptimizerBytes: []int64{8, 2, 0}[random.IntN(3)] * trainable, LargestBlock: int64(random.IntN(30_000_000)),
	}
}

func TestItRefuses(t *testing.T) {
	for message, change := range map[string]func(*Request){
		`strategy "zero4"`: func(r *Request) { r.Strategy = "zero4" },
		`strategy ""`:      func(r *Request) { r.Strategy = "" },
		`precision "fp8"`:  func(r *Request) { r.Precision = "fp8" },
		"0 devices":        func(r *Request) { r.Devices = 0 },
		"65537 devices":    func(r *Request) { r.Devices = 65537 },
	} {
		r := whole("ddp", 2, "fp16")
		change(&r)
		_, err := Of(r)
		require.ErrorContains(t, err, message)
		require.Contains(t, []fault.Code{fault.InvalidArgument, fault.Unsupported}, fault.From(err).Code)
		_, err = Difference(r)
		require.Error(t, err)
	}
	frozen := whole("zero3", 2, "fp16")
	frozen.Trainable, frozen.GradientBytes, frozen.OptimizerBytes = 0, 0, 0
	_ = of(t, frozen)
}
