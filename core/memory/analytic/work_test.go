package analytic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// TestWorkOfAnEncoder counts wav2vec2-base's matrix products by hand: 12 layers of four projections and two feed-forward
// products, the projection of 512 features, the head, and attention's two products; backward is twice that, and 2.5 times
// for fused attention. A tenth of the layers is skipped. The convolutions are seven, and the positional one in 16 groups.
func TestWorkOfAnEncoder(t *testing.T) {
	m, err := Read(model.Request{Name: "facebook/wav2vec2-base-960h", FreezeFeatureEncoder: true})
	require.NoError(t, err)
	w, err := m.Work(Request{Batch: 2, Seconds: 10, Precision: "fp16"})
	require.NoError(t, err)
	const batch, frames, hidden = 2, 499, 768
	rows := float64(batch * frames)
	linear := 2 * rows * (12*0.9*(4*hidden*hidden+2*hidden*3072) + 512*hidden + hidden*32)
	attention := 12 * 0.9 * 2 * 2 * batch * frames * frames * hidden
	require.InEpsilon(t, linear+attention, w.In(kernel.Forward).Products, 1e-12)
	require.InEpsilon(t, 2*linear+2.5*attention, w.In(kernel.Backward).Products, 1e-12)
	convolutions := 0.0
	for i, length := range []float64{31999, 15999, 7999, 3999, 1999, 999, 499} {
		in, taps := []float64{1, 512, 512, 512, 512, 512, 512}[i], []float64{10, 3, 3, 3, 3, 2, 2}[i]
		convolutions += 2 * batch * length * 512 * in * taps
	}
	positional := 2.0 * batch * (frames + 1) * hidden * hidden / 16 * 128
	require.InEpsilon(t, convolutions+positional, w.In(kernel.Forward).Convolutions, 1e-12)
	require.InEpsilon(t, 2*positional, w.In(kernel.Backward).Convolutions, 1e-12, "the feature encoder is frozen")
	require.Zero(t, w.In(kernel.Recomputation))
	require.Zero(t, w.Sum().WideProducts)
}

// TestWorkGrowsAsItShould holds every model to what must be: linear in the batch, one forward pass more with checkpointing
// of what it covers, the same arithmetic in float32, and every trained parameter with a gradient.
func TestWorkGrowsAsItShould(t *testing.T) {
	everyModel(t, func(t *testing.T, m *Model) {
		work := func(batch int64, precision string, checkpointing bool) kernel.Work {
			w, err := m.Work(Request{Batch: batch, Seconds: 6, Precision: precision, Checkpointing: checkpointing})
			require.NoError(t, err)
			return w
		}
		two, four := work(2, "fp16", false), work(4, "fp16", false)
		require.InEpsilon(t, 2*two.In(kernel.Forward).Products, four.In(kernel.Forward).Products, 0.01)
		require.Less(t, four.Sum().MovedBytes, 2*two.Sum().MovedBytes, "weights are cast once")
		require.Greater(t, two.In(kernel.Backward).Products, 1.5*two.In(kernel.Forward).Products)
		require.Less(t, two.In(kernel.Backward).Products, 2.6*two.In(kernel.Forward).Products)
		wide := work(2, "fp32", false)
		require.Zero(t, wide.Sum().Products)
		require.InEpsilon(t, two.In(kernel.Forward).Products, wide.In(kernel.Forward).WideProducts, 1e-9)
		checkpointed := work(2, "fp16", true)
		require.InEpsilon(t, two.In(kernel.Forward).Products, checkpointed.In(kernel.Forward).Products, 1e-9)
		require.InEpsilon(t, two.In(kernel.Backward).Products, checkpointed.In(kernel.Backward).Products, 1e-9)
		require.Greater(t, checkpointed.In(kernel.Recomputation).Products, 0.3*two.In(kernel.Forward).Products)
		require.LessOrEqual(t, checkpointed.In(kernel.Recomputation).Products, two.In(kernel.Forward).Products)
		require.Equal(t, m.profile.TrainableParameters, two.TrainedParameters)
		require.Equal(t, m.profile.TrainableParameters, checkpointed.TrainedParameters)
	})
}

// TestLoRA counts adapters by hand, and what they spare.
func TestLoRA(t *testing.T) {
	m, err := Read(model.Request{Name: "openai/whisper-small"})
	require.NoError(t, err)
	r := Request{Batch: 8, Seconds: 20, Precision: "fp16", Simulate: true}
	full, err := m.Estimate(r)
	require.NoError(t, err)
	r.LoRARank = 32
	low, err := m.Estimate(r)
	require.NoError(t, err)
	prediction, err := m.Predict(r)
	require.NoError(t, err)
	const trained = (12 + 2*12) * 2 * 2 * 768 * 32
	require.EqualValues(t, trained, prediction.TrainedParameters)
	require.InDelta(t, 8*trained, low.AtPeak.Components["optimizer"], 512)
	require.Less(t, low.PeakReserved, full.PeakReserved-uint64(8*m.profile.TrainableParameters-8*trained), "optimizer state and more")
	require.Greater(t, low.PeakReserved, uint64(4*m.profile.TotalParameters))
	r.LoRARank = -1
	_, err = m.Predict(r)
	require.ErrorContains(t, err, "lora_rank is -1")
}

// TestLoRALeavesNothing plays every model with adapters in every way: what is left are their gradients and a head's.
func TestLoRALeavesNothing(t *testing.T) {
	everyModel(t, func(t *testing.T, m *Model) {
		for _, set := range everySetting() {
			set.rank = 8
			p := newTracker(set)
			loss, err := m.play(p, Shape{Batch: 3, Seconds: 2.3, Labels: 7})
			require.NoError(t, err)
			p.endForward()
			p.runBackward(loss)
			for _, at := range p.batch {
				p.release(at)
			}
			require.Equal(t, p.live.parts[gradients], p.live.total, "%+v", set)
			require.Positive(t, p.live.total)
			require.Less(t, p.live.total, 4*m.profile.TotalParameters/5)
		}
	})
}
