package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// TestTargets holds the model to what it must reach on the points that its constants were chosen on.
func TestTargets(t *testing.T) {
	fp32, squad, err := truths()
	require.NoError(t, err)
	iterations, err := fp32.predict()
	require.NoError(t, err)
	require.Len(t, iterations, 29)
	all := iterations.errors(ours)
	assert.LessOrEqual(t, at(all, 0.5), 5.0)
	assert.LessOrEqual(t, at(all, 0.9), 20.0)
	most := map[string]float64{"Tesla_P100-PCIE-16GB": 8, "Tesla_V100-PCIE-32GB": 8, "NVIDIA_A100_80GB_PCIe": 8, "Tesla_T4": 15}
	groups := iterations.grouped(group)
	require.Len(t, groups, len(most))
	for card, points := range groups {
		assert.LessOrEqual(t, at(points.errors(ours), 0.5), most[card], card)
	}
	assert.LessOrEqual(t, at(iterations.transferred(), 0.5), 4.0)
	for _, card := range []string{"Tesla_P100-PCIE-16GB", "Tesla_V100-PCIE-32GB"} { // a T4's clock follows its temperature, this A100 waits for its host
		assert.LessOrEqual(t, slices.Max(groups[card].transferred()), 10.0, card)
	}
	assert.LessOrEqual(t, slices.Max(iterations.backwards().transferred()), 10.0)
	questions, err := squad.predict()
	require.NoError(t, err)
	require.Len(t, questions, 28)
	off := questions.errors(ours)
	assert.LessOrEqual(t, at(off, 0.5), 6.0)
	assert.LessOrEqual(t, off[len(off)-1], 25.0)
}

// TestRecordedWork holds the recorded products to the usual count: two operations for each weight and token forward, four backward, and the attention's.
func TestRecordedWork(t *testing.T) {
	s := shape{Family: "bert", Hidden: 1024, Layers: 24, Heads: 16, FeedForward: 4096, Vocabulary: 30522}
	flops := map[kernel.Phase]float64{}
	recorded := record(s, 8, 512, kernel.Float32, true, false)
	for _, o := range recorded.operations {
		require.NoError(t, o.Check(), o.Name)
		if o.Kind == kernel.GEMM {
			flops[o.Phase] += o.FLOPs() * max(1, o.Times)
		}
	}
	tokens, weights := 8.0*512, 24*(4*1024*1024+2*1024*4096)+1024*30522+1024*1024.0
	attention := 24 * 2 * 2 * 8 * 512 * 512 * 1024.0
	pooler := 2 * 8 * 1024 * 1024.0
	assert.InEpsilon(t, 2*tokens*weights+attention+pooler, flops[kernel.Forward], 1e-9)
	assert.InEpsilon(t, 2*flops[kernel.Forward], flops[kernel.Backward], 1e-9)
	assert.InEpsilon(t, 366e6, recorded.parameters, 0.02, "340 million, and the vocabulary's weights, which are not tied here")
}

func TestInferenceRecordsNoBackward(t *testing.T) {
	s := shape{Family: "opt", Hidden: 64, Layers: 2, Heads: 2, FeedForward: 128, Vocabulary: 100}
	for _, o := range record(s, 2, 16, kernel.Float32, false, false).operations {
		assert.Equal(t, kernel.Forward, o.Phase, o.Name)
	}
}
