package analytic

import (
	"os"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

func readModel(t *testing.T, name string) *Model {
	t.Helper()
	m, err := Read(named(name))
	require.NoError(t, err)
	return m
}

// TestAGeneratedTokenByHand: whisper-tiny's decoder has 4 layers of 384 with 6 heads, 1536 inside and 51865 tokens; 5 rows, the eleventh token.
func TestAGeneratedTokenByHand(t *testing.T) {
	m := readModel(t, "openai/whisper-tiny")
	operations, err := m.GenerationStep(Request{Batch: 5, Seconds: 30}, 1, 10)
	require.NoError(t, err)
	type product struct{ batch, m, n, k int64 }
	products := map[product]float64{}
	copies := func(operations []kernel.Operation) (written float64) {
		for _, o := range operations {
			if o.Kind == kernel.Copy {
				written += o.Times * o.Written
			}
		}
		return written
	}
	for _, o := range operations {
		require.Equal(t, kernel.Forward, o.Phase)
		require.NoError(t, o.Check())
		switch o.Kind {
		case kernel.GEMM, kernel.Attention:
			products[product{o.Batch, o.M, o.N, o.K}] += o.Times
		}
	}
	assert.Equal(t, map[product]float64{
		{1, 5, 384, 384}:   4 * 6, // queries, keys, values and projection, and queries and projection over the audio
		{1, 5, 1536, 384}:  4,
		{1, 5, 384, 1536}:  4,
		{30, 1, 10, 64}:    4,
		{30, 1, 1500, 64}:  4,
		{1, 5, 51865, 384}: 1,
	}, products)
	assert.InDelta(t, 4*2*5*10*384*4, copies(operations), 0.3*4*2*5*10*384*4, "keys and values of the tokens so far, appended to; results of the attentions")
	searching, err := m.GenerationStep(Request{Batch: 1, Seconds: 30}, 5, 10)
	require.NoError(t, err)
	assert.InDelta(t, 4*2*5*(1500+10)*384*4, copies(searching)-copies(operations), 1e-6, "keys and values of all beams, which change places")
}

func TestTokensAreDecodedInAutocast(t *testing.T) {
	m, casts := readModel(t, "openai/whisper-tiny"), int64(0)
	operations, err := m.GenerationStep(Request{Batch: 2, Seconds: 30, Precision: "fp16"}, 1, 1)
	require.NoError(t, err)
	for _, o := range operations {
		if o.Name == "weight cast" {
			casts += int64(o.Times)
		}
	}
	assert.GreaterOrEqual(t, casts, int64(4*8+1), "each call of forward has an autocast of its own, and so casts of its own")
}

func TestWhatGenerates(t *testing.T) {
	whisper, ctc := readModel(t, "openai/whisper-tiny"), readModel(t, "facebook/wav2vec2-base")
	assert.True(t, whisper.Generates())
	assert.Equal(t, int64(448), whisper.MostLabels())
	assert.Equal(t, int64(40), whisper.UsualLabels(10))
	assert.False(t, ctc.Generates())
	_, err := ctc.GenerationStep(Request{Batch: 1, Seconds: 1}, 1, 1)
	require.Equal(t, fault.Unsupported, fault.From(err).Code)
	_, err = whisper.GenerationStep(Request{Batch: 0, Seconds: 1}, 1, 1)
	require.ErrorContains(t, err, "batch is 0")
}

// TestAForwardPassAlone is the forward operations of a step but for dropout.
func TestAForwardPassAlone(t *testing.T) {
	m, r := readModel(t, "facebook/wav2vec2-base"), Request{Batch: 2, Seconds: 3}
	w, err := m.Work(r)
	require.NoError(t, err)
	alone := w.ForwardPass()
	dropped := false
	var kept []kernel.Operation
	for _, o := range w.Operations {
		dropped = dropped || o.Name == "dropout"
		if o.Phase == kernel.Forward && o.Name != "dropout" {
			kept = append(kept, o)
		}
	}
	assert.True(t, dropped)
	assert.Equal(t, kept, alone)
	again, err := m.Work(r)
	require.NoError(t, err)
	assert.Equal(t, again, w, "the step stays whole")
}

// TestGenerationMatchesTorch holds predicted peaks to those of torch.cuda.max_memory_allocated while Seq2SeqTrainer.evaluate generates for 8 clips, after a
// training with adamw_torch_fused: transformers 5.23 and torch 2.15 on the stand-in CUDA runtime of build/cuda_standin, an A100-40GB with expandable
// segments. python/tests/cuda/test_cuda_generation.py holds torch to the same record.
func TestGenerationMatchesTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/generation.json")
	require.NoError(t, err)
	var rows []struct {
		Model, Precision    string
		Beams, Tokens, Peak int64
	}
	require.NoError(t, json.Unmarshal(text, &rows))
	require.Len(t, rows, 7)
	for _, row := range rows {
		r := Request{Batch: 8, Seconds: 30, Precision: row.Precision, Labels: ptr(int64(40)), Settings: "expandable_segments:True"}
		found, err := readModel(t, row.Model).GenerationPeak(r, row.Beams, row.Tokens)
		require.NoError(t, err)
		t.Logf("%+v: %+.3f %%", row, 100*(float64(found.PeakAllocated)/float64(row.Peak)-1))
		assert.InEpsilon(t, row.Peak, found.PeakAllocated, 0.01, "%+v", row)
		assert.Greater(t, found.PeakReserved, found.PeakAllocated)
	}
}

// TestTheCacheOfAGeneration by hand: whisper-tiny's 4 decoder layers keep keys and values of 384 for 1500 frames and each token, in 16 bits.
func TestTheCacheOfAGeneration(t *testing.T) {
	m := readModel(t, "openai/whisper-tiny")
	for _, row := range []struct{ clips, beams, tokens int64 }{{1, 1, 1}, {8, 1, 225}, {8, 5, 448}} {
		found, err := m.GenerationPeak(Request{Batch: row.clips, Seconds: 30, Precision: "bf16"}, row.beams, row.tokens)
		require.NoError(t, err)
		assert.InEpsilon(t, 4*2*(1500+row.tokens)*384*2*row.clips*row.beams, found.CacheBytes, 1e-3, "%+v: each tensor is rounded up to 512 bytes", row)
	}
	_, err := readModel(t, "facebook/wav2vec2-base").GenerationPeak(Request{Batch: 1, Seconds: 1}, 1, 1)
	require.Equal(t, fault.Unsupported, fault.From(err).Code)
}
