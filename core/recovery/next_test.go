package recovery

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func pointer[T any](value T) *T { return &value }

func TestNextHalvesAndKeepsTheEffectiveBatch(t *testing.T) {
	for _, s := range []struct{ micro, accumulation, wantMicro, wantAccumulation int }{
		{8, 4, 4, 8}, {64, 1, 32, 2}, {2, 16, 1, 32}, {5, 2, 2, 5}, {7, 1, 1, 7}, {7, 2, 2, 7}, {6, 5, 3, 10}, {9, 2, 3, 6}, {15, 4, 6, 10}, {3, 1, 1, 3},
	} {
		d, err := Next(State{Class: GPUOOM, MicroBatch: s.micro, Accumulation: s.accumulation})
		require.NoError(t, err)
		assert.True(t, d.Retry)
		assert.Equal(t, []int{s.wantMicro, s.wantAccumulation, 1}, []int{d.MicroBatch, d.Accumulation, d.Retries}, "%d x %d", s.micro, s.accumulation)
	}
}

func TestNextSequenceEndsAfterThreeRetries(t *testing.T) {
	s := State{Class: GPUOOM, MicroBatch: 64, Accumulation: 2}
	var sizes []int
	for {
		d, err := Next(s)
		require.NoError(t, err)
		if !d.Retry {
			assert.Contains(t, d.Reason, "3 of 3 retries are used up at a micro-batch of 8")
			break
		}
		sizes = append(sizes, d.MicroBatch)
		s.MicroBatch, s.Accumulation, s.Retries = d.MicroBatch, d.Accumulation, d.Retries
	}
	assert.Equal(t, []int{32, 16, 8}, sizes)
	assert.Equal(t, 128, s.MicroBatch*s.Accumulation)
}

func TestNextReasonHasTheNumbers(t *testing.T) {
	d, err := Next(State{Class: GPUOOM, MicroBatch: 8, Accumulation: 4, Retries: 1, MaxRetries: pointer(5)})
	require.NoError(t, err)
	assert.Equal(t, "retry 2 of 5: micro-batch 8 → 4, accumulation 4 → 8, effective batch still 32 a device", d.Reason)
}

func TestNextWhereBatchesAreCut(t *testing.T) {
	s := State{Class: GPUOOM, MicroBatch: 11, Accumulation: 3, Cut: true}
	var sizes []int
	for range DefaultMaxRetries {
		d, err := Next(s)
		require.NoError(t, err)
		require.True(t, d.Retry)
		require.Equal(t, 3, d.Accumulation)
		sizes = append(sizes, d.MicroBatch)
		s.MicroBatch, s.Retries = d.MicroBatch, d.Retries
	}
	assert.Equal(t, []int{5, 2, 1}, sizes)
	d, err := Next(State{Class: GPUOOM, MicroBatch: 11, Accumulation: 1, Cut: true})
	require.NoError(t, err)
	assert.Equal(t, "retry 1 of 3: micro-batch 11 → 5", d.Reason)
}

func TestNextGivesUp(t *testing.T) {
	for _, s := range []struct {
		name  string
		state State
		text  string
	}{
		{"at 1", State{Class: GPUOOM, MicroBatch: 1, Accumulation: 32}, "micro-batch is 1 already"},
		{"no retries allowed", State{Class: GPUOOM, MicroBatch: 8, Accumulation: 4, MaxRetries: pointer(0)}, "0 of 0 retries"},
		{"host memory", State{Class: HostOOM, MicroBatch: 8, Accumulation: 4}, "dataloader_num_workers"},
		{"poisoned", State{Class: Poisoned, MicroBatch: 8, Accumulation: 4}, "restart"},
		{"other", State{Class: Other, MicroBatch: 8, Accumulation: 4}, "not a lack of memory"},
		{"second maybe", State{Class: Maybe, MicroBatch: 8, Accumulation: 4, Retries: 1, MaybeRetries: 1}, "did not help"},
	} {
		t.Run(s.name, func(t *testing.T) {
			d, err := Next(s.state)
			require.NoError(t, err)
			assert.False(t, d.Retry)
			assert.Equal(t, []int{s.state.MicroBatch, s.state.Accumulation, s.state.Retries}, []int{d.MicroBatch, d.Accumulation, d.Retries})
			assert.Contains(t, d.Reason, s.text)
		})
	}
}

func TestMaybeIsTriedOnceEvenAfterAnOOM(t *testing.T) {
	d, err := Next(State{Class: Maybe, MicroBatch: 8, Accumulation: 4, Retries: 1})
	require.NoError(t, err)
	assert.True(t, d.Retry)
	assert.Equal(t, 1, d.MaybeRetries)
	d, err = Next(State{Class: GPUOOM, MicroBatch: 4, Accumulation: 8, Retries: 2, MaybeRetries: 1}) // a clear one still counts on
	require.NoError(t, err)
	assert.True(t, d.Retry)
	assert.Equal(t, 1, d.MaybeRetries)
}

func TestNextRefusesBadStates(t *testing.T) {
	for text, s := range map[string]State{
		"micro_batch is 0":    {Class: GPUOOM, Accumulation: 1},
		"accumulation is -1":  {Class: GPUOOM, MicroBatch: 1, Accumulation: -1},
		"retries is -1":       {Class: GPUOOM, MicroBatch: 1, Accumulation: 1, Retries: -1},
		"maybe_retries is 2":  {Class: GPUOOM, MicroBatch: 1, Accumulation: 1, Retries: 1, MaybeRetries: 2},
		"max_retries is 101":  {Class: GPUOOM, MicroBatch: 1, Accumulation: 1, MaxRetries: pointer(101)},
		"micro_batch is 2000": {Class: GPUOOM, MicroBatch: 2000000, Accumulation: 1},
		`class is "oom"`:      {Class: "oom", MicroBatch: 1, Accumulation: 1},
	} {
		_, err := Next(s)
		var f *fault.Error
		require.ErrorAs(t, err, &f)
		assert.Equal(t, fault.InvalidArgument, f.Code)
		assert.Contains(t, f.Message, text)
		assert.NotEmpty(t, f.Hint)
	}
}

func FuzzNext(f *testing.F) {
	f.Add(8, 4, 0, 3)
	f.Add(5, 2, 0, 3)
	f.Add(1, 1, 0, 0)
	f.Add(1<<20, 1<<20, 0, 100)
	f.Add(1048573, 1, 2, 3)
	f.Fuzz(func(t *testing.T, micro, accumulation, retries, limit int) {
		d, err := Next(State{Class: GPUOOM, MicroBatch: micro, Accumulation: accumulation, Retries: retries, MaxRetries: &limit})
		if err != nil {
			return
		}
		if d.MicroBatch*d.Accumulation != micro*accumulation {
			t.Fatalf("%d x %d became %d x %d", micro, accumulation, d.MicroBatch, d.Accumulation)
		}
		if d.Retry && (d.MicroBatch < 1 || d.MicroBatch > micro/2) {
			t.Fatalf("micro-batch %d after %d", d.MicroBatch, micro)
		}
	})
}
