package estimate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

func modelOf(t *testing.T, name string) *analytic.Model {
	t.Helper()
	m, err := analytic.Read(model.Request{Name: name})
	require.NoError(t, err)
	return m
}

// TestAnEvaluationIsForwardPasses, with the Trainer's time for each batch and the summary at the end.
func TestAnEvaluationIsForwardPasses(t *testing.T) {
	timer, m := timerOf(t, "T4"), modelOf(t, "facebook/wav2vec2-base")
	r := analytic.Request{Batch: 8, Seconds: 10, Precision: "fp16", ComputeCapability: "7.5"}
	found, err := timer.Evaluate(m, Evaluation{Request: r, Batches: 50})
	require.NoError(t, err)
	operations, err := m.ForwardPass(r)
	require.NoError(t, err)
	step, err := timer.kernels.Step(operations, nil)
	require.NoError(t, err)
	assert.Equal(t, step[kernel.Forward].Seconds().Plus(microTime).Times(50).Plus(summaryTime), found)
	w, err := m.Work(r)
	require.NoError(t, err)
	whole, err := timer.Micro(w)
	require.NoError(t, err)
	assert.Less(t, found.Likely, 50*whole.Sum().Likely/2.5+summaryTime.Likely, "backward takes twice as long as forward")
	r.Batch = 0
	_, err = timer.Evaluate(m, Evaluation{Request: r, Batches: 1})
	require.ErrorContains(t, err, "batch is 0")
}

// TestAnEvaluationSkipsNoLayer, however many a training step skips.
func TestAnEvaluationSkipsNoLayer(t *testing.T) {
	times := func(layerDrop float64) (evaluation timing.Range, training float64) {
		m, err := analytic.Read(model.Request{Config: []byte(fmt.Sprintf(`{"model_type": "wav2vec2", "layerdrop": %v}`, layerDrop))})
		require.NoError(t, err)
		timer, r := timerOf(t, "T4"), analytic.Request{Batch: 8, Seconds: 10, Precision: "fp16", ComputeCapability: "7.5"}
		evaluation, err = timer.Evaluate(m, Evaluation{Request: r, Batches: 10})
		require.NoError(t, err)
		w, err := m.Work(r)
		require.NoError(t, err)
		step, err := timer.Micro(w)
		require.NoError(t, err)
		return evaluation, step.Sum().Likely
	}
	all, whole := times(0)
	same, shorter := times(0.5)
	assert.InEpsilon(t, all.Likely, same.Likely, 1e-9)
	assert.Less(t, shorter, 0.8*whole)
}

// TestTokensWaitForTheCPU: a token of a small decoder takes its launches, whatever the card; a text takes as long as its tokens.
func TestTokensWaitForTheCPU(t *testing.T) {
	m := modelOf(t, "openai/whisper-small")
	r := analytic.Request{Batch: 8, Seconds: 30, Precision: "fp16", ComputeCapability: "8.0"}
	of := func(card string, g *Generation) timing.Range {
		found, err := timerOf(t, card).Evaluate(m, Evaluation{Request: r, Batches: 1, Generation: g})
		require.NoError(t, err)
		return found
	}
	operations, err := m.GenerationStep(r, 1, 50)
	require.NoError(t, err)
	kernels := 0.0
	for _, o := range operations {
		kernels += float64(o.Kernels) * o.Times
	}
	for _, card := range []string{"A100-80GB", "H100"} {
		none, short, long := of(card, nil), of(card, &Generation{Tokens: 50, MaxTokens: 100, Beams: 1}), of(card, &Generation{Tokens: 100, MaxTokens: 100, Beams: 1})
		assert.InDelta(t, 50*(kernels*dispatchTime.Likely+tokenTime.Likely), long.Likely-short.Likely, 1e-9, card)
		assert.Greater(t, short.Likely, none.Likely)
		assert.Equal(t, long.High, short.High, "a text that does not end")
	}
	one, five := of("T4", &Generation{Tokens: 100, MaxTokens: 100, Beams: 1}), of("T4", &Generation{Tokens: 100, MaxTokens: 100, Beams: 5})
	assert.Greater(t, five.Likely, one.Likely, "keys and values of five texts a clip are read")
	assert.Greater(t, of("T4", &Generation{Tokens: 1, MaxTokens: 1, Beams: 1}).Likely-of("T4", nil).Likely,
		of("A100-40GB", &Generation{Tokens: 1, MaxTokens: 1, Beams: 1}).Likely-of("A100-40GB", nil).Likely, "the encoder runs in float32, which a T4 has no tensor cores for")
	_, err = timerOf(t, "T4").Evaluate(modelOf(t, "facebook/wav2vec2-base"), Evaluation{Request: r, Batches: 1, Generation: &Generation{Tokens: 1, MaxTokens: 1, Beams: 1}})
	require.ErrorContains(t, err, "no decoder that generates")
}

func TestSavingAndStarting(t *testing.T) {
	assert.Equal(t, timing.Range{Low: 4e9 / 1.5e9, Likely: 10, High: 40}, Saving(4e9))
	assert.Greater(t, StartUp(1).Likely, StartUp(0).Likely)
	assert.Equal(t, []int{2, 3, 1, 0}, []int{Occasions(8, 4), Occasions(9, 4), Occasions(3, 4), Occasions(8, 0)}, "and at the end")
}
