package estimate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

func timerOf(t *testing.T, card string) *Timer {
	t.Helper()
	entry, _, err := gpus.Parse(card)
	require.NoError(t, err)
	timer, err := TimerOf(entry.GPU(), Measured{})
	require.NoError(t, err)
	return timer
}

// TestMicroIsTheKernelModelsStep: arithmetic, tensors and waits add up to what the operations take,
// and the Trainer's time comes on top.
func TestMicroIsTheKernelModelsStep(t *testing.T) {
	timer := timerOf(t, "A100-40GB")
	product := kernel.Operation{Name: "product", Kind: kernel.GEMM, Phase: kernel.Forward, DType: kernel.BFloat16, Batch: 1, M: 8192, N: 4096, K: 4096, Times: 50}
	gelu := kernel.Operation{Name: "gelu", Kind: kernel.Elementwise, Phase: kernel.Backward, DType: kernel.BFloat16, Read: 4e8, Written: 2e8, Kernels: 1, Times: 50}
	tiny := kernel.Operation{Name: "tiny", Kind: kernel.Elementwise, Phase: kernel.Recomputation, DType: kernel.BFloat16, Read: 512, Written: 512, Kernels: 1, Times: 1000}
	p, err := timer.Micro(kernel.Work{Operations: []kernel.Operation{product, gelu, tiny}})
	require.NoError(t, err)
	entry, _, err := gpus.Parse("A100-40GB")
	require.NoError(t, err)
	card, err := kernel.CardOf(entry)
	require.NoError(t, err)
	seconds := func(o kernel.Operation) float64 {
		took, err := kernel.New(card).Seconds(o)
		require.NoError(t, err)
		return took
	}
	assert.InDelta(t, seconds(product), p.Compute.Likely, 1e-12)
	assert.InDelta(t, seconds(gelu)+seconds(tiny), p.Memory.Likely, 1e-12)
	assert.InDelta(t, 1000*kernel.AutocastDispatch.Likely-seconds(tiny), p.Launches.Likely, 1e-12, "only small kernels are waited for")
	assert.Equal(t, microTime, p.Overhead)
	sum := p.Sum()
	assert.True(t, sum.Low < sum.Likely && sum.Likely < sum.High)
	product.Name, product.M = "culprit", -1
	_, err = timer.Micro(kernel.Work{Operations: []kernel.Operation{product}})
	require.ErrorContains(t, err, "culprit")
}

const parameters = 1_000_000_000

var updated = kernel.Work{TrainedParameters: parameters, TrainedTensors: 400}

// TestUpdateByHand: 28 B a parameter for fused AdamW and 12 for clipping on a V100's 94 % of 900
// GB/s; three micro-batches are added to the first.
func TestUpdateByHand(t *testing.T) {
	timer := timerOf(t, "V100")
	update, err := timer.Update(updated, "adamw_torch_fused", "fp32", 1)
	require.NoError(t, err)
	once := update.After(1)
	assert.InDelta(t, 1.05, once.Optimizer.Likely/(40*parameters/(0.94*900e9)), 0.05, "issuing elements takes a little longer")
	assert.InDelta(t, 1.05, (update.After(4).Optimizer.Likely-once.Optimizer.Likely)/(36*parameters/(0.94*900e9)), 0.05)
	assert.Equal(t, once, update.After(0))
	assert.Zero(t, once.Exchange)
	assert.Equal(t, stepTime, once.Overhead)
	two, err := timer.Update(updated, "adamw_torch_fused", "fp32", 2)
	require.NoError(t, err)
	assert.Equal(t, timing.Exchange(timer.GPU, 4*parameters, 2), two.After(1).Exchange)
	_, err = timer.Update(updated, "lion", "fp32", 1)
	require.ErrorContains(t, err, "lion")
	none, err := timer.Update(kernel.Work{}, "sgd", "fp16", 2)
	require.NoError(t, err)
	assert.Zero(t, none.After(3).Optimizer, "nothing trains")
}

// TestWhatShardingSends: in 16 bits adding up gradients takes half as long as in 32; ZeRO-3 and FSDP
// gather all weights twice with each micro-batch.
func TestWhatShardingSends(t *testing.T) {
	timer := timerOf(t, "T4")
	ddp, err := timer.Update(updated, "adamw_torch_fused", "fp16", 4)
	require.NoError(t, err)
	sum := ddp.After(1).Exchange.Likely / 2
	for engine, times := range map[string][2]float64{"zero1": {1, 1}, "zero2": {1, 4.5}, "zero3": {1.5, 12}, "fsdp": {1.5, 8.5}} {
		u := timer.Sharded(ddp, engine, "fp16", parameters, parameters, 4)
		for i, microBatches := range []int{1, 8} {
			assert.InEpsilon(t, times[i]*sum, u.After(microBatches).Exchange.Likely, 1e-9, "%s, %d", engine, microBatches)
		}
		assert.InEpsilon(t, ddp.After(1).Optimizer.Likely/4, u.After(1).Optimizer.Likely, 1e-9, engine)
	}
}

func TestNoFiguresNoTime(t *testing.T) {
	entry, _, err := gpus.Parse("T4")
	require.NoError(t, err)
	unpublished := entry.GPU()
	unpublished.BandwidthGBs = nil
	for _, g := range []profile.GPU{{Name: "NVIDIA X"}, unpublished} {
		_, err := TimerOf(g, Measured{})
		require.ErrorContains(t, err, "no published figures for "+g.Name)
		require.Equal(t, fault.Unsupported, fault.From(err).Code)
	}
	faster := entry.GPU()
	*faster.BandwidthGBs *= 2
	timer, err := TimerOf(faster, Measured{})
	require.NoError(t, err)
	copying := kernel.Work{Operations: []kernel.Operation{{Kind: kernel.Copy, Phase: kernel.Forward, DType: kernel.Float32, Read: 1e9, Written: 1e9}}}
	slow, err := timerOf(t, "T4").Micro(copying)
	require.NoError(t, err)
	fast, err := timer.Micro(copying)
	require.NoError(t, err)
	assert.Less(t, fast.Memory.Likely, 0.6*slow.Memory.Likely, "the profile's figures count")
}
