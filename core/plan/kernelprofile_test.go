package plan

import (
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// slower is a card of the catalogue that is not as fast as published.
func slower(t *testing.T, name string, bandwidth, tensor, fp32 float64) gpus.Entry {
	t.Helper()
	card, _, err := gpus.Parse(name)
	require.NoError(t, err)
	card.BandwidthGBs, card.TensorTFLOPS, card.FP32TFLOPS = pointer(*card.BandwidthGBs*bandwidth), pointer(*card.TensorTFLOPS*tensor), pointer(*card.FP32TFLOPS*fp32)
	return card
}

// measuredTable is what profile-gpu would write on that card, each time a few percent off.
func measuredTable(t *testing.T, card gpus.Entry, noise float64) kernel.Table {
	t.Helper()
	figures, err := kernel.CardOf(card)
	require.NoError(t, err)
	m, random := kernel.New(figures), rand.New(rand.NewSource(1))
	table := kernel.Table{Version: 1, GPU: card.DriverNames[0], MemoryBytes: card.MemoryTotalBytes, Date: "2026-03-01", LaunchS: 3e-6, DispatchS: 9e-6}
	suite, err := kernel.Suite(kernel.SuiteRequest{ComputeCapability: card.ComputeCapability, MemoryBytes: float64(card.MemoryTotalBytes)})
	require.NoError(t, err)
	for _, s := range suite {
		seconds, err := m.Seconds(s.Operation)
		require.NoError(t, err)
		seconds *= math.Exp(noise * random.NormFloat64())
		table.Kernels = append(table.Kernels, kernel.Row{Operation: s.Operation, Seconds: seconds, Low: 0.98 * seconds, High: 1.05 * seconds})
	}
	return table
}

func TestMeasuredKernelsGiveTheTimesOfTheCard(t *testing.T) {
	for _, test := range []struct {
		card, precision, model  string
		bandwidth, tensor, fp32 float64
	}{
		{"A100-40GB", "bf16", xlsr, 0.8, 0.7, 1},
		{"A100-40GB", "bf16", "openai/whisper-small", 0.65, 0.6, 0.8},
		{"V100-16", "fp16", xlsr, 0.7, 0.8, 1},
		{"T4", "fp32", xlsr, 0.75, 1, 0.7},
		{"H100", "bf16", xlsr, 1.4, 1.5, 1},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			card := slower(t, test.card, test.bandwidth, test.tensor, test.fp32)
			table := measuredTable(t, card, 0.05)
			measured, err := table.Profile()
			require.NoError(t, err)
			in := described(t, test.model, speech(4000, 20, 1), test.card)
			in.Options.Precision, in.Options.TargetBatchSize = test.precision, 64
			in.Options.LoaderRate = pointer(1e6)
			published := planned(t, in).Times
			in.Options.KernelProfile = &measured
			times := planned(t, in).Times
			in.Options.KernelProfile = nil
			in.Hardware.GPUs = []profile.GPU{card.GPU()}
			truth := planned(t, in).Times

			off := func(times *profile.Times) float64 { return times.StepS.Likely/truth.StepS.Likely - 1 }
			t.Logf("%d kernels, %d groups; step %.3f s; off by %+.1f %% without, %+.1f %% with; range ×%.2f and ×%.2f", len(table.Kernels), len(measured.Factors),
				truth.StepS.Likely, 100*off(published), 100*off(times), published.StepS.High/published.StepS.Low, times.StepS.High/times.StepS.Low)
			assert.Greater(t, math.Abs(off(published)), 0.15)
			assert.Less(t, math.Abs(off(times)), 0.05)
			assert.Less(t, times.StepS.High/times.StepS.Low, published.StepS.High/published.StepS.Low)
			assert.Equal(t, "2026-03-01", times.Measured)
			assert.Empty(t, truth.Measured)
		})
	}
}

func TestAKernelProfileOfAnotherCardIsRefused(t *testing.T) {
	measured, err := measuredTable(t, slower(t, "T4", 1, 1, 1), 0).Profile()
	require.NoError(t, err)
	in := described(t, xlsr, speech(400, 20, 1), "L4")
	in.Options.KernelProfile = &measured
	_, err = makePlan(in)
	requireFault(t, err, fault.InvalidArgument, "the kernels were measured on a T4, and the plan is for a L4")
	in.Options.Calibration = &timing.StepCalibration{Calibration: timing.Calibration{Factor: 2, Low: 1.9, High: 2.1, Steps: 20}}
	assert.Empty(t, planned(t, in).Times.Measured, "measured steps are held against times without a profile")
}
