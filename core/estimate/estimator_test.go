package estimate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/model"
)

func place(t *testing.T, card string, devices int) Budget {
	t.Helper()
	entry, _, err := gpus.Parse(card)
	require.NoError(t, err)
	return Budget{GPU: entry.GPU(), Devices: devices, Bytes: uint64(0.85 * float64(entry.MemoryTotalBytes))}
}

func ask(seconds float64) Question {
	return Question{Setup: Setup{Optimizer: "adamw_torch"}, Class: "7.5", Precision: "fp16", Batch: 1, Accumulating: true, Seconds: seconds}
}

func xlsr() *Estimator { return Of(model.Request{Name: "facebook/wav2vec2-xls-r-300m"}) }

// TestLargestIsTheLastThatFits: as trying one size after the other finds it.
func TestLargestIsTheLastThatFits(t *testing.T) {
	o := xlsr()
	for _, devices := range []int{1, 2} {
		p := place(t, "T4", devices)
		for _, seconds := range []float64{0.1, 2, 7, 30} {
			q, fits := ask(seconds), 0
			q.Seconds = max(seconds, Shortest)
			for q.Batch = 1; q.Batch <= 40; q.Batch++ {
				s, err := o.Predict(q)
				require.NoError(t, err)
				beside, err := p.OutsideAllocator(s.TrainedParameters)
				require.NoError(t, err)
				if int64(s.PeakReserved)+beside > int64(p.Bytes) {
					break
				}
				fits = q.Batch
			}
			assert.Equal(t, fits, o.Largest(ask(seconds), p, 1, 1, 40), "%v s on %d", seconds, devices)
			assert.Equal(t, min(fits, 3), o.Largest(ask(seconds), p, 1, 1, 3))
		}
	}
}

// TestSharingIsCounted: DDP's buckets take the gradients once more, and another way of sharing what it says.
func TestSharingIsCounted(t *testing.T) {
	one, err := place(t, "T4", 1).OutsideAllocator(1000)
	require.NoError(t, err)
	two := place(t, "T4", 2)
	more, err := two.OutsideAllocator(1000)
	require.NoError(t, err)
	saved := int64(-5000)
	two.Shared = &saved
	less, err := two.OutsideAllocator(1000)
	require.NoError(t, err)
	assert.EqualValues(t, 9000, more-less)
	assert.Greater(t, more, one+4000-1, "NCCL's buffers, too")
	host, err := Budget{}.OutsideAllocator(1000)
	require.NoError(t, err)
	assert.EqualValues(t, hostBytes, host)
}

// TestARoughAnswerIsTheExactOne: where the rule leaves doubt, it is simulated.
func TestARoughAnswerIsTheExactOne(t *testing.T) {
	o, p := xlsr(), place(t, "T4", 1)
	for batch := 1; batch <= 6; batch++ {
		q := ask(20)
		q.Batch = batch
		_, exact, err := o.Need(q, p, false)
		require.NoError(t, err)
		_, rough, err := o.Need(q, p, true)
		require.NoError(t, err)
		assert.Equal(t, exact, rough, batch)
	}
}
