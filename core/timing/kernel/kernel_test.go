package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
)

func modelOf(t *testing.T, name string) *Model {
	t.Helper()
	entry, _, err := gpus.Parse(name)
	require.NoError(t, err)
	card, err := CardOf(entry)
	require.NoError(t, err)
	return New(card)
}

// unlaunched is a model of kernels that take no time to launch.
func unlaunched(t *testing.T, name string) *Model {
	t.Helper()
	m := modelOf(t, name)
	m.launch = 0
	return m
}

func secondsOf(t *testing.T, m *Model, o Operation) float64 {
	t.Helper()
	took, err := m.Seconds(o)
	require.NoError(t, err)
	return took
}

func elementwise(bytes float64) Operation {
	return Operation{Name: "add", Kind: Elementwise, Phase: Forward, DType: Float32, Read: bytes / 2, Written: bytes / 2}
}

func gemm(d DType, batch, m, n, k int64) Operation {
	return Operation{Name: "mm", Kind: GEMM, Phase: Forward, DType: d, Batch: batch, M: m, N: n, K: k}
}

func TestEveryCardOfTheCatalogueHasPositiveTimesOrSaysWhyNot(t *testing.T) {
	for _, entry := range gpus.All() {
		card, err := CardOf(entry)
		require.NoError(t, err, "give it multiprocessors in gpus.json")
		for _, kind := range []Kind{GEMM, Convolution, Attention, Elementwise, Broadcast, Copy, Reduction, Softmax, Normalization, NormBackward, Gather, Optimizer, Transfer, "unheard of"} {
			for _, d := range []DType{Float32, TF32, Float16, BFloat16} {
				o := Operation{Kind: kind, Phase: Forward, DType: d, Batch: 8, M: 500, N: 500, K: 64, Row: 500, Read: 1e7, Written: 1e7}
				took := secondsOf(t, New(card), o)
				assert.Greater(t, took, launchGap, "%s %s %s", entry.Key, kind, d)
				assert.Less(t, took, 1.0, "%s %s %s", entry.Key, kind, d)
			}
		}
	}
}

func TestMoreBytesNeverTakeLess(t *testing.T) {
	for _, name := range []string{"T4", "A100-80GB PCIe", "H100", "RTX 4090"} {
		m, before := modelOf(t, name), 0.0
		m.card.L2 = 0
		for bytes := 1e3; bytes < 1e10; bytes *= 1.7 {
			took := secondsOf(t, m, elementwise(bytes))
			require.Greater(t, took, before, "%s %g", name, bytes)
			require.GreaterOrEqual(t, took, bytes/m.card.Bandwidth, "faster than the memory")
			before = took
		}
	}
}

// TestTransfersGoOverPCIe: of the third generation to a T4, and of the fifth to an H100.
func TestTransfersGoOverPCIe(t *testing.T) {
	o := Operation{Kind: Transfer, Phase: Forward, DType: Float16, Read: 12e9, Written: 12e9}
	assert.InEpsilon(t, 1, secondsOf(t, unlaunched(t, "T4"), o), 1e-9)
	assert.InEpsilon(t, 0.24, secondsOf(t, unlaunched(t, "H100"), o), 1e-9)
	step, err := unlaunched(t, "T4").Step([]Operation{o})
	require.NoError(t, err)
	assert.InEpsilon(t, 2, step[Forward].Others.High, 1e-9, "half of the lanes")
}

func TestSmallTensorsStayInTheCache(t *testing.T) {
	with, without := unlaunched(t, "A100-80GB PCIe"), unlaunched(t, "A100-80GB PCIe")
	without.card.L2 = 0
	assert.Less(t, secondsOf(t, with, elementwise(1e7)), 0.6*secondsOf(t, without, elementwise(1e7)))
	assert.Equal(t, secondsOf(t, without, elementwise(1e8)), secondsOf(t, with, elementwise(1e8)))
}

func TestOneTileTooManyCostsARound(t *testing.T) {
	card := Card{Multiprocessors: 10, FP32: 1e12, Bandwidth: 1e15}
	only := Efficiency{Tiles: [5]float64{1, 1e-9, 1e-9, 1e-9, 1e-9}, Bandwidth: 1}
	seconds := func(m int64) float64 { return only.Seconds(gemm(Float32, 1, m, 128, 4096), card, card.FP32) }
	full := seconds(10 * 128)
	assert.InDelta(t, 2.0*1280*128*4096/1e12, full, 1e-9, "ten tiles on ten multiprocessors waste nothing")
	assert.Equal(t, full, seconds(10*128-100), "a tile that is not full costs as much")
	assert.InDelta(t, 9.0/8*full, seconds(10*128+1), 1e-7, "an eleventh: 88 parts of an eighth in nine rounds of ten")
	assert.Less(t, seconds(128), full, "one tile is divided along k")
	assert.Greater(t, seconds(128), full/10)
}

func TestProductsAreBoundByTheirBytes(t *testing.T) {
	m := modelOf(t, "A100-80GB PCIe")
	thin := gemm(Float16, 1, 1, 20000, 20000) // a matrix times a vector reads 800 MB
	assert.Greater(t, secondsOf(t, m, thin), 8e8/m.card.Bandwidth)
}

func TestFusedAttentionComputesMoreBackward(t *testing.T) {
	m := unlaunched(t, "A100-80GB SXM")
	o := Operation{Name: "attention", Kind: Attention, Phase: Forward, DType: BFloat16, Batch: 256, M: 2048, N: 2048, K: 64, Read: 2e8, Written: 7e7}
	forward := secondsOf(t, m, o)
	assert.InEpsilon(t, 4*256*2048.0*2048*64/(0.5*312e12), forward, 1e-9)
	o.Phase = Backward
	assert.InEpsilon(t, 2.5*forward, secondsOf(t, m, o), 1e-9)
}

func TestTensorCoresByTypeAndCard(t *testing.T) {
	big := func(d DType) Operation { return gemm(d, 1, 8192, 8192, 4096) }
	for _, test := range []struct {
		card         string
		faster, slow DType
		least, most  float64
		why          string
	}{
		{"A100-80GB PCIe", TF32, Float32, 4, 8, "TF32 in tensor cores"},
		{"A100-80GB PCIe", BFloat16, TF32, 1.9, 2.1, "16 bits twice as fast as TF32"},
		{"V100-16", Float16, Float32, 5, 10, "fp16 in tensor cores"},
		{"V100-16", TF32, Float32, 1, 1, "no TF32 before Ampere"},
		{"V100-16", BFloat16, Float32, 1, 1, "no bfloat16 before Ampere"},
		{"P100-16", Float16, Float32, 1.9, 2.1, "twice the rate in the same units"},
	} {
		m := modelOf(t, test.card)
		ratio := secondsOf(t, m, big(test.slow)) / secondsOf(t, m, big(test.faster))
		assert.True(t, ratio >= test.least && ratio <= test.most, "%s: %s: ×%.2f", test.card, test.why, ratio)
	}
}

// TestConvolutionsInHalfPrecisionAreCopied: into channels last and back, each element read and
// written once more, but for those over a single channel.
func TestConvolutionsInHalfPrecisionAreCopied(t *testing.T) {
	m := modelOf(t, "A100-80GB SXM")
	convolution := func(d DType, channels int64) Operation {
		const outputs, taps = 1 << 20, 3
		size := int64(d.size())
		return Operation{Name: "convolution", Kind: Convolution, Phase: Forward, DType: d, Batch: 1, M: outputs, N: channels, K: channels * taps,
			Read: float64(size * (outputs*channels + channels*channels*taps)), Written: float64(size * outputs * channels), Kernels: 1}
	}
	beside := func(o Operation) float64 { // what its own kernel does not take
		return secondsOf(t, m, o) - launchGap - max(m.moving(o), m.multiplying(o)*m.memory.Convolution)
	}
	wide := convolution(BFloat16, 64)
	copies := Operation{Name: "copies", Kind: Copy, Phase: Forward, DType: BFloat16, Read: wide.Bytes(), Written: wide.Bytes()}
	assert.InEpsilon(t, secondsOf(t, m, copies)-launchGap, beside(wide), 1e-9)
	assert.InDelta(t, 0, beside(convolution(BFloat16, 2)), 1e-12)
	assert.InDelta(t, 0, beside(convolution(TF32, 64)), 1e-12, "float32 keeps its layout")
}

func TestPowerCapsTheRate(t *testing.T) {
	// 300 and 400 W
	weak, strong := modelOf(t, "A100-80GB PCIe"), modelOf(t, "A100-80GB SXM")
	big := gemm(Float16, 1, 8192, 8192, 8192)
	assert.Greater(t, secondsOf(t, weak, big), 1.01*secondsOf(t, strong, big))
}

func TestRepetitionsAndLaunchesAddUp(t *testing.T) {
	m := modelOf(t, "T4")
	once := elementwise(1e8)
	ten, three := once, once
	ten.Times, three.Kernels = 10, 3
	assert.InEpsilon(t, 10*secondsOf(t, m, once), secondsOf(t, m, ten), 1e-9)
	assert.InDelta(t, secondsOf(t, m, once)+2*launchGap, secondsOf(t, m, three), 1e-12)
}

func TestStepIsWhatTheSlowerSideTakes(t *testing.T) {
	m := modelOf(t, "H100")
	tiny := elementwise(4096)
	tiny.Times = 1000
	large := elementwise(1e10)
	large.Phase = Backward
	step, err := m.Step([]Operation{tiny, large})
	require.NoError(t, err)
	assert.InDelta(t, 1000*Dispatch.Likely, step[Forward].Seconds().Likely, 1e-12, "small kernels wait for the CPU")
	assert.Equal(t, step[Backward].GPU(), step[Backward].Seconds(), "large ones hide it")
	assert.InDelta(t, step[Forward].Seconds().Likely+step[Backward].Seconds().Likely, step.Seconds().Likely, 1e-12)
}

func TestBoundsHoldTheEstimateAndAreWiderWithoutTables(t *testing.T) {
	width := func(name string, o Operation) float64 {
		o.Phase = Forward
		step, err := modelOf(t, name).Step([]Operation{o})
		require.NoError(t, err)
		took := step.Seconds()
		require.True(t, 0 < took.Low && took.Low <= took.Likely && took.Likely <= took.High, "%s %+v", name, took)
		return took.High / took.Low
	}
	product := gemm(Float32, 1, 4096, 4096, 4096)
	assert.InEpsilon(t, width("A100-40GB PCIe", product), width("A100-80GB PCIe", product), 1e-9, "the same chip")
	assert.Greater(t, width("H100", product), width("A100-40GB PCIe", product), "the fitted card is known better")
	assert.Greater(t, width("L4", product), width("RTX 4090", product), "a slot's power is all it has")
	half := product
	half.DType = Float16
	assert.Greater(t, width("A100-40GB PCIe", half), width("A100-40GB PCIe", product), "the tables are float32")
	strange := elementwise(1e8)
	strange.Kind = "unheard of"
	assert.Greater(t, width("T4", strange), width("T4", elementwise(1e8)))
}

func TestRefusesWhatNoOperationIs(t *testing.T) {
	for name, spoil := range map[string]func(*Operation){
		"NaN bytes":       func(o *Operation) { o.Read = math.NaN() },
		"negative bytes":  func(o *Operation) { o.Written = -1 },
		"infinite bytes":  func(o *Operation) { o.Read = math.Inf(1) },
		"unknown phase":   func(o *Operation) { o.Phase = "sideways" },
		"no bytes":        func(o *Operation) { o.Read, o.Written = 0, 0 },
		"unknown type":    func(o *Operation) { o.DType = "int3" },
		"no m":            func(o *Operation) { o.Kind, o.Batch, o.N, o.K = GEMM, 1, 1, 1 },
		"negative k":      func(o *Operation) { o.K = -1 },
		"a huge n":        func(o *Operation) { o.N = mostElements + 1 },
		"negative times":  func(o *Operation) { o.Times = -1 },
		"negative row":    func(o *Operation) { o.Row = -1 },
		"negative kernel": func(o *Operation) { o.Kernels = -1 },
	} {
		o := elementwise(1e6)
		o.Name = "the culprit"
		spoil(&o)
		_, err := modelOf(t, "T4").Step([]Operation{o})
		require.Error(t, err, name)
		assert.Equal(t, fault.InvalidArgument, fault.From(err).Code, name)
		assert.Contains(t, err.Error(), "the culprit", name)
	}
}

func TestCardsWithoutFiguresAreRefused(t *testing.T) {
	rate, bandwidth := 1.0, 1.0
	for _, entry := range []gpus.Entry{
		{Key: "A", ComputeCapability: "8.0", BandwidthGBs: &bandwidth, Multiprocessors: 10}, {Key: "B", ComputeCapability: "8.0", FP32TFLOPS: &rate, Multiprocessors: 10},
		{Key: "C", ComputeCapability: "5.2", FP32TFLOPS: &rate, BandwidthGBs: &bandwidth, Multiprocessors: 10},
		{Key: "D", FP32TFLOPS: &rate, BandwidthGBs: &bandwidth, Multiprocessors: 10}, {Key: "E", ComputeCapability: "8.0", FP32TFLOPS: &rate, BandwidthGBs: &bandwidth},
	} {
		_, err := CardOf(entry)
		require.ErrorContains(t, err, "for "+entry.Key)
	}
}

func FuzzSeconds(f *testing.F) {
	f.Add("gemm", "float16", int64(1), int64(128), int64(128), int64(64), 0.0, 0.0)
	f.Add("softmax", "float32", int64(0), int64(0), int64(0), int64(0), 1e6, 1e6)
	f.Fuzz(func(t *testing.T, kind, d string, batch, m, n, k int64, read, written float64) {
		o := Operation{Kind: Kind(kind), Phase: Forward, DType: DType(d), Batch: batch, M: m, N: n, K: k, Read: read, Written: written}
		took, err := modelOf(t, "A100-80GB PCIe").Seconds(o)
		if err == nil && !(took > 0 && !math.IsInf(took, 1)) {
			t.Fatalf("%+v takes %v s", o, took)
		}
	})
}
