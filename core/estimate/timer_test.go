package estimate

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

func timerOf(t *testing.T, card string) *Timer {
	t.Helper()
	entry, _, err := gpus.Parse(card)
	require.NoError(t, err)
	timer, err := TimerOf(entry.GPU())
	require.NoError(t, err)
	return timer
}

// TestMicroIsTheKernelModelsStep: arithmetic, tensors and waits add up to what the operations take, and the Trainer's time comes on top.
func TestMicroIsTheKernelModelsStep(t *testing.T) {
	timer := timerOf(t, "A100-40GB")
	product := kernel.Operation{Name: "product", Kind: kernel.GEMM, Phase: kernel.Forward, DType: kernel.BFloat16, Batch: 1, M: 8192, N: 4096, K: 4096, Times: 50}
	gelu := kernel.Operation{Name: "gelu", Kind: kernel.Elementwise, Phase: kernel.Backward, DType: kernel.BFloat16, Read: 4e8, Written: 2e8, Kernels: 1, Times: 50}
	tiny := kernel.Operation{Name: "tiny", Kind: kernel.Elementwise, Phase: kernel.Recomputation, DType: kernel.BFloat16, Read: 512, Written: 512, Kernels: 1, Times: 1000}
	p, err := timer.Micro(analytic.Work{Operations: []kernel.Operation{product, gelu, tiny}})
	require.NoError(t, err)
	entry, _, err := gpus.Parse("A100-40GB")
	require.NoError(t, err)
	card, err := kernel.CardOf(entry)
	require.NoError(t, err)
	seconds := func(o kernel.Operation) float64 {
		took, err := kernel.New(card, kernel.Terms{}).Seconds(o)
		require.NoError(t, err)
		return took
	}
	assert.InDelta(t, seconds(product), p.Compute.Likely, 1e-12)
	assert.InDelta(t, seconds(gelu)+seconds(tiny), p.Memory.Likely, 1e-12)
	assert.InDelta(t, 1000*kernel.Dispatch-seconds(tiny), p.Launches.Likely, 1e-12, "only small kernels are waited for")
	assert.Equal(t, microTime, p.Overhead)
	whole := p.Sum()
	assert.True(t, whole.Low < whole.Likely && whole.Likely < whole.High)
	product.Name, product.M = "culprit", -1
	_, err = timer.Micro(analytic.Work{Operations: []kernel.Operation{product}})
	require.ErrorContains(t, err, "culprit")
}

// TestUpdateByHand: 28 B a parameter for fused AdamW and 12 for clipping on a V100's 94 % of 900 GB/s; three micro-batches are added to the first.
func TestUpdateByHand(t *testing.T) {
	const parameters = 1_000_000_000
	w := analytic.Work{TrainedParameters: parameters, TrainedTensors: 400}
	timer := timerOf(t, "V100")
	update, err := timer.Update(w, "adamw_torch_fused", "fp32", 1)
	require.NoError(t, err)
	once := update.After(1)
	assert.InDelta(t, 1.05, once.Optimizer.Likely/(40*parameters/(0.94*900e9)), 0.05, "issuing elements takes a little longer")
	assert.InDelta(t, 1.05, (update.After(4).Optimizer.Likely-once.Optimizer.Likely)/(36*parameters/(0.94*900e9)), 0.05)
	assert.Equal(t, once, update.After(0))
	assert.Zero(t, once.Exchange)
	assert.Equal(t, stepTime, once.Overhead)
	two, err := timer.Update(w, "adamw_torch_fused", "fp32", 2)
	require.NoError(t, err)
	assert.Equal(t, timing.Exchange(timer.gpu, 4*parameters, 2), two.After(1).Exchange)
	_, err = timer.Update(w, "lion", "fp32", 1)
	require.ErrorContains(t, err, "lion")
	none, err := timer.Update(analytic.Work{}, "sgd", "fp16", 2)
	require.NoError(t, err)
	assert.Zero(t, none.After(3).Optimizer, "nothing trains")
}

func TestNoFiguresNoTime(t *testing.T) {
	entry, _, err := gpus.Parse("T4")
	require.NoError(t, err)
	unpublished := entry.GPU()
	unpublished.BandwidthGBs = nil
	for _, g := range []profile.GPU{{Name: "NVIDIA X"}, unpublished} {
		_, err := TimerOf(g)
		require.ErrorContains(t, err, "no published figures for "+g.Name)
		require.Equal(t, fault.Unsupported, fault.From(err).Code)
	}
	faster := entry.GPU()
	*faster.BandwidthGBs *= 2
	timer, err := TimerOf(faster)
	require.NoError(t, err)
	copying := analytic.Work{Operations: []kernel.Operation{{Kind: kernel.Copy, Phase: kernel.Forward, DType: kernel.Float32, Read: 1e9, Written: 1e9}}}
	slow, err := timerOf(t, "T4").Micro(copying)
	require.NoError(t, err)
	fast, err := timer.Micro(copying)
	require.NoError(t, err)
	assert.Less(t, fast.Memory.Likely, 0.6*slow.Memory.Likely, "the profile's figures count")
}

// TestCurveIsNearWhatItsLengthTakes: between the samples a micro-batch is off by at most 12 %, nine of ten by 5 %, the median by 1 %, whatever model, card and batch.
func TestCurveIsNearWhatItsLengthTakes(t *testing.T) {
	var errors []float64
	for _, name := range []string{"facebook/wav2vec2-xls-r-300m", "openai/whisper-small", "facebook/w2v-bert-2.0"} {
		o := Of(model.Request{Name: name})
		for _, card := range []string{"T4", "A100-40GB", "H100"} {
			timer := timerOf(t, card)
			for _, batch := range []int{1, 4, 16} {
				q := ask(0)
				q.Batch, q.Class = batch, Class(timer.gpu)
				curve, err := o.Times(timer, q, 30)
				require.NoError(t, err)
				for _, seconds := range []float64{1, 1.7, 2.3, 4, 5.5, 7.7, 11, 14, 17, 23, 29} {
					q.Seconds = seconds
					w, err := o.Work(q)
					require.NoError(t, err)
					exact, err := timer.Micro(w)
					require.NoError(t, err)
					off := math.Abs(curve.At(seconds).Sum().Likely/exact.Sum().Likely - 1)
					assert.Less(t, off, 0.12, "%s on %s: %d × %v s", name, card, batch, seconds)
					errors = append(errors, off)
				}
			}
		}
	}
	slices.Sort(errors)
	assert.Less(t, errors[len(errors)/2], 0.01)
	assert.Less(t, errors[len(errors)*9/10], 0.05)
}

func TestCurveEnds(t *testing.T) {
	o, q := xlsr(), ask(0)
	curve, err := o.Times(timerOf(t, "T4"), q, 20)
	require.NoError(t, err)
	assert.Equal(t, curve.At(Shortest), curve.At(0.01), "shorter clips count as this long")
	assert.Equal(t, curve.At(20), curve.At(40))
	short, err := o.Times(timerOf(t, "T4"), q, 0.1)
	require.NoError(t, err)
	assert.Equal(t, curve.At(Shortest), short.At(Shortest))
	q.Batch = -1
	_, err = o.Times(timerOf(t, "T4"), q, 20)
	require.ErrorContains(t, err, "batch")
}
