package plan

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// standIn is a model as its traces show it: what a second of a clip keeps of memory and computes.
// The figures are about those of the recordings that come with the package, which the Python tests
// plan with; here they need not be exact, but answers to all questions agree with each other.
type standIn struct {
	parameters int64
	// bytes of a clip's second until its backward pass, in half precision: all, and with each layer
	// computed again
	kept, checkpointed float64
	flops, square      float64 // of a forward pass over a second, and over a second squared
	layers             int
	fixed              float64
	overTime           bool
	decoder            float64 // its share of the layers
}

var standIns = map[string]standIn{
	xlsr:                          {parameters: 315_471_520, kept: 300e6, checkpointed: 40e6, flops: 42e9, square: 0.25e9, layers: 24},
	"facebook/wav2vec2-base":      {parameters: 94_396_320, kept: 56e6, checkpointed: 20e6, flops: 17e9, square: 0.1e9, layers: 12, overTime: true},
	xlsr1B:                        {parameters: 962_538_400, kept: 330e6, checkpointed: 30e6, flops: 110e9, square: 0.6e9, layers: 48},
	"facebook/hubert-large-ll60k": {parameters: 315_471_520, kept: 300e6, checkpointed: 40e6, flops: 42e9, square: 0.25e9, layers: 24},
	"microsoft/wavlm-base-plus":   {parameters: 94_406_544, kept: 90e6, checkpointed: 30e6, flops: 18e9, square: 0.2e9, layers: 12, overTime: true},
	"facebook/w2v-bert-2.0":       {parameters: 580_525_920, kept: 420e6, checkpointed: 18e6, flops: 62e9, square: 0.4e9, layers: 24},
	parakeet:                      {parameters: 608_799_745, kept: 34e6, checkpointed: 5e6, flops: 16e9, square: 0.02e9, layers: 24},
	"openai/whisper-tiny":         {parameters: 37_760_640, kept: 12e6, checkpointed: 4e6, flops: 1e9, layers: 8, fixed: 30, decoder: 0.5},
	whisperSmall:                  {parameters: 241_734_912, kept: 60e6, checkpointed: 10e6, flops: 11e9, layers: 24, fixed: 30, decoder: 0.5},
	"openai/whisper-medium":       {parameters: 763_857_920, kept: 160e6, checkpointed: 20e6, flops: 40e9, layers: 48, fixed: 30, decoder: 0.5},
	"openai/whisper-large-v3":     {parameters: 1_543_490_560, kept: 290e6, checkpointed: 30e6, flops: 85e9, layers: 64, fixed: 30, decoder: 0.5},
}

const standInExtra = 400 << 20 // of workspaces and of what a step takes for the moment

// profile is the counts of the model.
func (m standIn) profile(name string) profile.Model {
	n := m.parameters
	return profile.Model{Name: name, Architecture: "wav2vec2", ClassName: "Wav2Vec2ForCTC", TotalParameters: n, TrainableParameters: n, ParameterBytes: 4 * n,
		GradientBytes: 4 * n, OptimizerBytes: map[string]int64{"adamw": 8 * n, "adamw_8bit": 2 * n, "adafactor": n / 10, "sgd": 0}, Source: "catalogue"}
}

// clipSecond is the bytes of a clip's second with the settings of a request, on the GPU and pinned.
func (m standIn) clipSecond(w TraceRequest) (bytes, pinned float64) {
	bytes = m.kept
	if w.Checkpointing {
		again := 1 / float64(w.EveryNLayers)
		bytes = (1-again)*m.kept + again*m.checkpointed
		if w.Offload {
			pinned = 0.6 * again * m.checkpointed
			bytes -= pinned
		}
	}
	if w.Precision == "fp32" {
		bytes, pinned = 1.6*bytes, 1.6*pinned
	}
	return bytes, pinned
}

// trained is the parameters that train.
func (m standIn) trained(o Options) int64 {
	if o.LoRARank > 0 {
		return m.parameters / 100
	}
	return m.parameters
}

// held is the bytes of the device without any clip.
func (m standIn) held(in Inputs, w TraceRequest) int64 {
	trained := m.trained(in.Options)
	state := int64(8)
	if w.Optimizer == estimate.EightBit {
		state = 2
	} else if w.Optimizer == "adamw_torch" {
		state = 12 // with the temporary lists of a step
	}
	outside := uint64(hostProcess)
	if len(in.Hardware.GPUs) > 0 {
		outside = 450 << 20
	}
	return 4*m.parameters + 4*trained + state*trained + standInExtra + int64(outside) + w.BesideBytes
}

const hostProcess = 1e9

// answer is the trace of a request.
func (m standIn) answer(in Inputs, w TraceRequest) Traced {
	t := Traced{Precision: w.Precision, Checkpointing: w.Checkpointing, EveryNLayers: w.EveryNLayers, Offload: w.Offload, Optimizer: w.Optimizer, BudgetBytes: w.BudgetBytes,
		FixedS: m.fixed, OverTime: m.overTime}
	durations := slices.Clone(in.Durations)
	if len(durations) == 0 {
		durations = []float64{in.Dataset.MinS, in.Dataset.MaxS}
	}
	durations[0] = max(durations[0], w.LongestS)
	sum := 0.0
	for i, s := range durations {
		durations[i] = math.Min(s, profile.Or(w.MaxLengthS, s))
		if m.fixed == 0 {
			sum += durations[i]
			continue
		}
		sum += min(durations[i], m.fixed)
		durations[i] = m.fixed
	}
	longest, shortest, mean := max(estimate.Shortest, slices.Max(durations)), max(estimate.Shortest, slices.Min(durations)), max(estimate.Shortest, sum/float64(len(durations)))
	perSecond, pinned := m.clipSecond(w)
	modelBytes := m.held(in, w)
	fits := func(seconds float64) int {
		return min(w.Share, int(max(0, float64(w.BudgetBytes-modelBytes)/(perSecond*seconds))))
	}
	const rows = 16
	for i := range rows {
		s := shortest * math.Pow(longest/shortest, float64(i)/(rows-1))
		if row := (batching.Fit{Seconds: s, Batch: fits(s)}); len(t.Memory) == 0 || s > t.Memory[len(t.Memory)-1].Seconds {
			t.Memory = append(t.Memory, row)
		}
	}
	t.Memory[len(t.Memory)-1] = batching.Fit{Seconds: longest, Batch: fits(longest)}
	largest := max(1, fits(longest))
	for size := 1; size <= largest; size++ {
		if size == largest || w.Share%size == 0 {
			clips := int64(perSecond * longest * float64(size))
			t.Peaks = append(t.Peaks, TracedPeak{Batch: size, Bytes: modelBytes + clips, PinnedBytes: int64(pinned * longest * float64(size)),
				Parts: []profile.Part{{Name: "parameters", Bytes: modelBytes}, {Name: "activations", Bytes: clips}}})
		}
	}
	for _, size := range w.Sizes {
		t.SizePeaks = append(t.SizePeaks, TracedPeak{Batch: size, Bytes: modelBytes + int64(perSecond*longest*float64(size))})
	}
	t.EvalBatch = pointer(min(w.Share, 2*largest))
	t.Work = []TracedWork{m.work(in, w, 1, min(estimate.Shortest, mean/2)), m.work(in, w, max(1, fits(max(mean, m.fixed))), mean), m.work(in, w, 1, max(longest, 2*mean))}
	if m.decoder > 0 {
		t.Decoder = &TracedDecoder{Share: m.decoder, Tokens: int64(max(1, 4*longest)), MostTokens: 448}
		if w.Generates {
			clip := int64(w.Beams) * int64(4*1024*m.layers) * int64(w.Tokens+1500)
			for *t.EvalBatch > 1 && modelBytes+clip*int64(*t.EvalBatch) > w.BudgetBytes {
				*t.EvalBatch--
			}
			t.Decoder.CacheBytes = clip * int64(*t.EvalBatch)
		}
	}
	high := t.Peaks[len(t.Peaks)-1].Bytes
	t.HighBytes = &high
	return t
}

// work is that of a micro-batch: products, tensors and small kernels, backward twice as many as
// forward.
func (m standIn) work(in Inputs, w TraceRequest, batch int, seconds float64) TracedWork {
	dtype := map[string]kernel.DType{"fp16": kernel.Float16, "bf16": kernel.BFloat16, "fp32": kernel.Float32}[w.Precision]
	padded := float64(batch) * seconds
	if m.fixed > 0 {
		padded = float64(batch) * m.fixed
	}
	flops := float64(batch) * (m.flops*padded/float64(batch) + m.square*seconds*seconds)
	rows := int64(max(1, padded*50))
	product := kernel.Operation{Name: "product", Kind: kernel.GEMM, DType: dtype, Batch: 1, M: rows, N: 1024, K: 1024, Kernels: 1}
	product.Times = flops / float64(2*rows*1024*1024)
	tensor := kernel.Operation{Name: "tensor", Kind: kernel.Copy, DType: dtype, Read: m.kept * padded / float64(20*m.layers), Written: m.kept * padded / float64(20*m.layers), Kernels: 1, Times: float64(20 * m.layers)}
	softmax := tensor
	softmax.Name, softmax.Kind, softmax.Row, softmax.Times = "softmax", kernel.Softmax, 512, tensor.Times/2
	var all []kernel.Operation
	add := func(phase kernel.Phase, times float64) {
		for _, o := range []kernel.Operation{product, tensor, softmax} {
			o.Phase, o.Times = phase, o.Times*times
			all = append(all, o)
		}
	}
	add(kernel.Forward, 1)
	add(kernel.Backward, 2)
	if w.Checkpointing {
		add(kernel.Recomputation, 1/float64(w.EveryNLayers))
	}
	trained := m.trained(in.Options)
	return TracedWork{Batch: batch, Seconds: seconds, Labels: int64(max(1, 4*seconds)), Work: kernel.Work{Operations: all, TrainedParameters: trained, TrainedTensors: int64(16 * m.layers)}}
}

// traced are the inputs with all traces that a plan asks for, of a stand-in by the model's name.
func traced(in Inputs) (Inputs, error) {
	m, ok := standIns[in.Model.Name]
	if !ok {
		return in, nil
	}
	for range 12 {
		w, err := Next(in)
		if err != nil || w == nil {
			return in, err
		}
		in.Traced = append(slices.Clone(in.Traced), m.answer(in, *w))
	}
	panic("more than 12 traces were asked for")
}

// makePlan traces and plans.
func makePlan(in Inputs) (profile.Config, error) {
	in, err := traced(in)
	if err != nil {
		return profile.Config{}, err
	}
	return Make(in)
}

// described is the inputs for a model on cards of the catalogue.
func described(t *testing.T, name string, durations []float64, cards ...string) Inputs {
	t.Helper()
	m, ok := standIns[name]
	require.True(t, ok, name)
	var measured []profile.GPU
	for _, card := range cards {
		entry, _, err := gpus.Parse(card)
		require.NoError(t, err)
		measured = append(measured, entry.GPU())
	}
	in := Inputs{Hardware: machine(8, 64, measured...), Dataset: dataset(durations), Model: m.profile(name), Durations: durations,
		Options: Options{TargetBatchSize: 32, SafetyMargin: 0.85}}
	for _, card := range gpus.All() {
		in.Cards = append(in.Cards, estimate.Card{Key: card.Key, GPU: card.GPU()})
	}
	return in
}
