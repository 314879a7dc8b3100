package analytic

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// TestCheckpointingByDepth: groups of layers that stand for all give what playing every layer gives, and each depth between all and none.
func TestCheckpointingByDepth(t *testing.T) {
	everyModel(t, func(t *testing.T, m *Model) {
		recomputed := math.Inf(1)
		for _, n := range []int64{1, 2, 3, 5} {
			r := Request{Batch: 4, Seconds: 6, Precision: "fp16", Checkpointing: true, EveryNLayers: n}
			plain, err := m.Estimate(r)
			require.NoError(t, err)
			w, err := m.Work(r)
			require.NoError(t, err)
			r.Simulate = true
			all, err := m.Estimate(r)
			require.NoError(t, err)
			require.InEpsilon(t, float64(plain.PeakAllocated), float64(all.PeakAllocated), 0.03)
			require.Equal(t, plain.Terms, all.Terms)
			again := w.In(kernel.Recomputation).Products
			require.LessOrEqual(t, again, recomputed, "fewer layers are computed again")
			require.True(t, again > 0 || n > 1)
			recomputed = again
		}
	})
}

// TestOffloadedCheckpoints: they take host memory instead of the device's, and copies there and back; deeper ones take less of both.
func TestOffloadedCheckpoints(t *testing.T) {
	everyModel(t, func(t *testing.T, m *Model) {
		pinned := uint64(math.MaxUint64)
		for _, n := range []int64{1, 2} {
			r := Request{Batch: 8, Seconds: 6, Precision: "fp16", Checkpointing: true, EveryNLayers: n}
			kept, err := m.Estimate(r)
			require.NoError(t, err)
			require.Zero(t, *kept.PinnedBytes)
			r.OffloadCheckpoints = true
			moved, err := m.Estimate(r)
			require.NoError(t, err)
			require.LessOrEqual(t, moved.PeakAllocated, kept.PeakAllocated+8*6*16000*4, "the waveforms of the batch stay beside their copy")
			require.Less(t, *moved.PinnedBytes, pinned)
			pinned = *moved.PinnedBytes
			p, err := m.Predict(r)
			require.NoError(t, err)
			require.Equal(t, pinned, p.PinnedBytes)
			w, err := m.Work(r)
			require.NoError(t, err)
			there, back := transferred(w, kernel.Forward), transferred(w, kernel.Backward)
			require.Greater(t, there, 0.4*float64(pinned), "rounding to a power of two takes less than twice as much")
			require.LessOrEqual(t, there, float64(pinned))
			require.LessOrEqual(t, back, there)
			require.True(t, m.freeze || back > 0.999*there, "what is not frozen comes back")
		}
	})
}

func transferred(w kernel.Work, phase kernel.Phase) (sum float64) {
	for _, o := range w.Operations {
		if o.Kind == kernel.Transfer && o.Phase == phase {
			sum += o.Times * o.Read
		}
	}
	return sum
}

func TestSimulatedSteps(t *testing.T) {
	everyModel(t, func(t *testing.T, m *Model) {
		r := Request{Batch: 4, Seconds: 6, Precision: "fp16", Checkpointing: true}
		plain, err := m.Estimate(r)
		require.NoError(t, err)
		r.Simulate = true
		e, err := m.Estimate(r)
		require.NoError(t, err)
		require.InEpsilon(t, float64(plain.PeakAllocated), float64(e.PeakAllocated), 0.03, "blocks that are not split count whole")
		require.GreaterOrEqual(t, e.PeakReserved, e.PeakAllocated)
		require.Zero(t, e.PeakReserved%(2<<20), "segments are multiples of 2 MiB")
		require.Equal(t, plain.Terms, e.Terms)
		again, err := m.Estimate(r)
		require.NoError(t, err)
		require.Equal(t, e, again)
		kinds := []string{}
		for _, p := range e.Phases {
			kinds = append(kinds, p.Segment+" "+p.Phase)
		}
		require.Equal(t, []string{"load load", "micro forward", "micro backward", "step optimizer"}, kinds)
	})
}

// TestSimulatedLimit runs out of memory where the limit says, and not a byte before.
func TestSimulatedLimit(t *testing.T) {
	r := Request{Model: named("wav2vec2-base"), Batch: 4, Seconds: 6, Simulate: true, Accumulation: 2}
	free, err := Make(r)
	require.NoError(t, err)
	r.LimitBytes = ptr(int64(free.PeakReserved))
	e, err := Make(r)
	require.NoError(t, err)
	require.True(t, *e.Fits)
	require.Nil(t, e.OutOfMemory)
	require.Zero(t, e.Retries)

	r.LimitBytes = ptr(int64(free.PeakAllocated * 9 / 10))
	e, err = Make(r)
	require.NoError(t, err)
	require.False(t, *e.Fits)
	require.Positive(t, e.Retries, "the cache was given back first")
	require.NotNil(t, e.OutOfMemory)
	require.NotEmpty(t, e.OutOfMemory.Module)
	require.LessOrEqual(t, e.OutOfMemory.Reserved, uint64(*r.LimitBytes))
	require.Greater(t, e.OutOfMemory.Reserved+e.OutOfMemory.Wanted, uint64(*r.LimitBytes)*8/10)
}

func TestSimulatedSettings(t *testing.T) {
	r := Request{Model: named("wav2vec2-base"), Batch: 8, Seconds: 15, Simulate: true}
	native, err := Make(r)
	require.NoError(t, err)
	r.Settings = "expandable_segments:True"
	expandable, err := Make(r)
	require.NoError(t, err)
	require.Less(t, expandable.PeakReserved, native.PeakReserved, "no holes at the ends of segments")
}

// TestSimulatedOptimizers compares the state that each optimizer makes, piece by piece, with what is reckoned at once.
func TestSimulatedOptimizers(t *testing.T) {
	for _, name := range Optimizers() {
		r := Request{Model: named("wav2vec2-base"), Batch: 1, Seconds: 1, Optimizer: name}
		plain, err := Make(r)
		require.NoError(t, err)
		r.Simulate = true
		e, err := Make(r)
		require.NoError(t, err)
		require.InEpsilon(t, float64(plain.PeakAllocated), float64(e.PeakAllocated), 0.02, name)
	}
}
