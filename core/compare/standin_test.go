package compare

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// standIn is a model as its traces show it: what a second of a clip keeps of memory and computes.
// The figures are about those of XLS-R-300M and -1B and of Whisper tiny, small and large-v3; here
// they need not be exact, but answers to all questions agree with each other.
type standIn struct {
	parameters int64
	// bytes of a clip's second until its backward pass: all, and with each layer computed again
	kept, checkpointed float64
	flops              float64 // of a forward pass over a second
	fixed              float64
	decoder            bool
}

const (
	xlsr, xlsr1B              = "facebook/wav2vec2-xls-r-300m", "facebook/wav2vec2-xls-r-1b"
	tiny, small, largeWhisper = "openai/whisper-tiny", "openai/whisper-small", "openai/whisper-large-v3"
)

var standIns = map[string]standIn{
	xlsr:         {parameters: 315_471_520, kept: 300e6, checkpointed: 40e6, flops: 42e9},
	xlsr1B:       {parameters: 962_538_400, kept: 600e6, checkpointed: 60e6, flops: 110e9},
	tiny:         {parameters: 37_760_640, kept: 12e6, checkpointed: 4e6, flops: 1e9, fixed: 30, decoder: true},
	small:        {parameters: 241_734_912, kept: 60e6, checkpointed: 10e6, flops: 11e9, fixed: 30, decoder: true},
	largeWhisper: {parameters: 1_543_490_560, kept: 290e6, checkpointed: 30e6, flops: 85e9, fixed: 30, decoder: true},
}

// sizes are the counts of a stand-in.
func sizes(name string) profile.Model {
	n := standIns[name].parameters
	return profile.Model{Name: name, Architecture: "wav2vec2", ClassName: name, TotalParameters: n, TrainableParameters: n, ParameterBytes: 4 * n,
		GradientBytes: 4 * n, OptimizerBytes: map[string]int64{"adamw": 8 * n, "adamw_8bit": 2 * n, "adafactor": n / 10, "sgd": 0}, Source: "catalogue"}
}

// work is that of a micro-batch.
func (m standIn) work(precision string, trained int64, batch int64, seconds float64, again float64) kernel.Work {
	dtype := map[string]kernel.DType{"fp16": kernel.Float16, "bf16": kernel.BFloat16, "fp32": kernel.Float32}[precision]
	padded := float64(batch) * seconds
	if m.fixed > 0 {
		padded = float64(batch) * m.fixed
	}
	rows := int64(max(1, padded*50))
	product := kernel.Operation{Name: "product", Kind: kernel.GEMM, DType: dtype, Batch: 1, M: rows, N: 1024, K: 1024, Kernels: 1, Times: m.flops * padded / float64(2*rows*1024*1024)}
	tensor := kernel.Operation{Name: "tensor", Kind: kernel.Elementwise, DType: dtype, Read: m.kept * padded / 500, Written: m.kept * padded / 500, Kernels: 1, Times: 500}
	var all []kernel.Operation
	for phase, times := range map[kernel.Phase]float64{kernel.Forward: 1, kernel.Backward: 2, kernel.Recomputation: again} {
		for _, o := range []kernel.Operation{product, tensor} {
			if o.Phase, o.Times = phase, o.Times*times; o.Times > 0 {
				all = append(all, o)
			}
		}
	}
	slices.SortFunc(all, func(a, b kernel.Operation) int { return len(a.Phase) - len(b.Phase) })
	return kernel.Work{Operations: all, TrainedParameters: trained, TrainedTensors: 400}
}

// trace answers what is wanted of one machine.
func (m standIn) trace(t *testing.T, r Request, machine MachineTrace, durations []float64) plan.Traced {
	t.Helper()
	w := machine.Trace
	trained, state, again := m.parameters, int64(8), 0.0
	if r.LoRARank > 0 {
		trained /= 100
	}
	if w.Optimizer == estimate.EightBit {
		state = 2
	}
	perSecond := m.kept
	if w.Checkpointing {
		again = 1 / float64(w.EveryNLayers)
		perSecond = (1-again)*m.kept + again*m.checkpointed
	}
	if w.Offload {
		perSecond *= 0.5
	}
	modelBytes := 4*m.parameters + (4+state)*trained + 400<<20 + 450<<20 + w.BesideBytes
	seconds := func(s float64) float64 {
		if m.fixed > 0 {
			return m.fixed
		}
		return max(estimate.Shortest, min(s, profile.Or(w.MaxLengthS, s)))
	}
	fits := func(s float64) int {
		return min(w.Share, int(max(0, float64(w.BudgetBytes-modelBytes)/(perSecond*s))))
	}
	longest, shortest, mean := seconds(slices.Max(durations)), seconds(slices.Min(durations)), seconds(r.Data.MeanS)
	out := plan.Traced{Precision: w.Precision, Checkpointing: w.Checkpointing, EveryNLayers: w.EveryNLayers, Offload: w.Offload, Optimizer: w.Optimizer, BudgetBytes: w.BudgetBytes, FixedS: m.fixed}
	for i := range 8 {
		s := shortest * math.Pow(longest/shortest, float64(i)/8)
		if s < longest && (i == 0 || s > out.Memory[len(out.Memory)-1].Seconds) {
			out.Memory = append(out.Memory, batching.Fit{Seconds: s, Batch: fits(s)})
		}
	}
	out.Memory = append(out.Memory, batching.Fit{Seconds: longest, Batch: fits(longest)})
	for size := 1; size <= max(1, fits(longest)); size++ {
		out.Peaks = append(out.Peaks, plan.TracedPeak{Batch: size, Bytes: modelBytes + int64(perSecond*longest*float64(size))})
	}
	for _, size := range w.Sizes {
		out.SizePeaks = append(out.SizePeaks, plan.TracedPeak{Batch: size, Bytes: modelBytes + int64(perSecond*longest*float64(size))})
	}
	work := func(batch int, s float64) plan.TracedWork {
		return plan.TracedWork{Batch: batch, Seconds: s, Labels: int64(4 * s), Work: m.work(w.Precision, trained, int64(batch), s, again)}
	}
	out.Work = []plan.TracedWork{work(1, min(estimate.Shortest, mean/2)), work(max(1, fits(mean)), mean), work(1, max(longest, 2*mean))}
	if m.decoder {
		out.Decoder = &plan.TracedDecoder{Share: 0.5, Tokens: 40, MostTokens: 448}
	}
	return out
}

// made traces what is wanted, and compares.
func made(t *testing.T, r Request) Comparison {
	t.Helper()
	for range 24 {
		a, err := Make(r)
		require.NoError(t, err)
		if a.Wanted == nil {
			require.NotEmpty(t, a.Comparison.Rows)
			return *a.Comparison
		}
		traced := make([][]plan.Traced, len(a.Wanted.Machines))
		for i, machine := range a.Wanted.Machines {
			if len(r.Traced) > 0 {
				traced[i] = r.Traced[i]
			}
			if machine.Trace != nil {
				traced[i] = append(slices.Clone(traced[i]), standIns[r.Model.Name].trace(t, r, machine, a.Wanted.Seconds))
			}
		}
		r.Traced = traced
	}
	t.Fatal("more than 24 traces of one machine were asked for")
	return Comparison{}
}
