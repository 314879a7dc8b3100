package estimate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// TestAnEvaluationIsForwardPasses, with the Trainer's time for each batch and the summary at the
// end.
func TestAnEvaluationIsForwardPasses(t *testing.T) {
	forward := profile.Range{Low: 0.1, Likely: 0.2, High: 0.4}
	assert.Equal(t, forward.Plus(microTime).Times(50).Plus(summaryTime), Evaluation(forward, 50, nil))
}

// TestTheForwardPassIsAShareOfAMicroBatch: without dropout, which only training has, and without
// what is computed again.
func TestTheForwardPassIsAShareOfAMicroBatch(t *testing.T) {
	product := kernel.Operation{Name: "product", Kind: kernel.GEMM, Phase: kernel.Forward, DType: kernel.Float16, Batch: 1, M: 8192, N: 4096, K: 4096, Times: 50}
	backward, again, dropout := product, product, product
	backward.Phase, backward.Times, again.Phase, dropout.Name = kernel.Backward, 100, kernel.Recomputation, "dropout"
	timer := timerOf(t, "T4")
	share, err := timer.Forward(kernel.Work{Operations: []kernel.Operation{product, backward}})
	require.NoError(t, err)
	assert.InDelta(t, 1.0/3, share, 0.01)
	share, err = timer.Forward(kernel.Work{Operations: []kernel.Operation{product, backward, again, dropout}})
	require.NoError(t, err)
	assert.InDelta(t, 1.0/5, share, 0.01)
}

// TestTokensWaitForTheCPU: a token of a decoder takes its launches, whatever the card; a text takes
// as long as its tokens.
func TestTokensWaitForTheCPU(t *testing.T) {
	forward := profile.Range{Low: 0.1, Likely: 0.2, High: 0.4}
	seconds := func(g *Generation) profile.Range { return Evaluation(forward, 1, g) }
	short, long := seconds(&Generation{Tokens: 50, MaxTokens: 100, Kernels: 300}), seconds(&Generation{Tokens: 100, MaxTokens: 100, Kernels: 300})
	assert.InDelta(t, 50*(300*kernel.AutocastDispatch.Likely+tokenTime.Likely), long.Likely-short.Likely, 1e-9)
	assert.Greater(t, short.Likely, seconds(nil).Likely)
	assert.Equal(t, long.High, short.High, "a text that does not end")
}

func TestSavingAndStarting(t *testing.T) {
	assert.Equal(t, profile.Range{Low: 4e9 / 1.5e9, Likely: 10, High: 40}, Saving(4e9))
	assert.Greater(t, StartUp(1).Likely, StartUp(0).Likely)
	assert.Equal(t, []int{2, 3, 1, 0}, []int{Occasions(8, 4), Occasions(9, 4), Occasions(3, 4), Occasions(8, 0)}, "and at the end")
}
