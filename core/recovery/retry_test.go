package recovery

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func pointer[T any](value T) *T { return &value }

func TestNextHalves(t *testing.T) {
	for micro, want := range map[int]int{8: 4, 64: 32, 2: 1, 5: 2, 7: 3, 9: 4, 15: 7, 3: 1} {
		d, err := Next(State{Class: GPUOOM, MicroBatch: micro})
		require.NoError(t, err)
		assert.Equal(t, Shrink, d.Action)
		assert.Equal(t, []int{want, 1}, []int{d.MicroBatch, d.Retries}, "from %d", micro)
	}
}

func TestNextSequenceEndsAfterThreeRetries(t *testing.T) {
	s := State{Class: GPUOOM, MicroBatch: 64}
	var sizes []int
	for {
		d, err := Next(s)
		require.NoError(t, err)
		if d.Action == GiveUp {
			assert.Contains(t, d.Reason, "3 of 3 retries are used up at a micro-batch of 8; "+
				"attach(trainer, max_halvings=6) tries down to one clip, or plan")
			break
		}
		sizes = append(sizes, d.MicroBatch)
		s.MicroBatch, s.Retries = d.MicroBatch, d.Retries
	}
	assert.Equal(t, []int{32, 16, 8}, sizes)
}

func TestNextReasonHasTheNumbers(t *testing.T) {
	d, err := Next(State{Class: GPUOOM, MicroBatch: 8, Retries: 1, MaxRetries: pointer(5)})
	require.NoError(t, err)
	assert.Equal(t, "retry 2 of 5: micro-batch 8 → 4", d.Reason)
}

func TestNextWithoutASmallerMicroBatch(t *testing.T) {
	for _, s := range []struct {
		name   string
		state  State
		action Action
		text   string
	}{
		{"at 1", State{Class: GPUOOM, MicroBatch: 1}, Repeat, "retry unchanged"},
		{"at 1 again", State{Class: GPUOOM, MicroBatch: 1, Repeated: true}, LeaveOut, "micro-batch is 1 already"},
		{"evaluation at 1 again", State{Class: GPUOOM, Evaluation: true, MicroBatch: 1, Repeated: true}, LeaveOut,
			"if your own code evaluates"},
		{"evaluation not to be split",
			State{Class: GPUOOM, Evaluation: true, MicroBatch: 8, CannotSplit: true, Repeated: true}, GiveUp,
			"per_device_eval_batch_size"},
		{"at 1 without retries", State{Class: GPUOOM, MicroBatch: 1, Retries: 3}, Repeat, "retry unchanged"},
		{"no retries allowed", State{Class: GPUOOM, MicroBatch: 8, MaxRetries: pointer(0)}, GiveUp, "0 of 0 retries"},
		{"not to be split", State{Class: GPUOOM, MicroBatch: 8, CannotSplit: true}, Repeat, "retry unchanged"},
		{"not to be split, maybe", State{Class: Maybe, MicroBatch: 8, CannotSplit: true}, Repeat, "retry unchanged"},
		{"not to be split, again", State{Class: GPUOOM, MicroBatch: 8, CannotSplit: true, Repeated: true}, GiveUp,
			"smaller batches"},
		{"host memory", State{Class: HostOOM, MicroBatch: 8}, Raise, "dataloader_num_workers"},
		{"poisoned", State{Class: Poisoned, MicroBatch: 8}, Raise, "restart"},
		{"other", State{Class: Other, MicroBatch: 8}, Raise, "not a lack of memory"},
		{"second maybe", State{Class: Maybe, MicroBatch: 8, Retries: 1, MaybeRetries: 1}, Raise, "did not help"},
		{"maybe at 1", State{Class: Maybe, MicroBatch: 1}, Raise, "micro-batch is 1 already"},
	} {
		t.Run(s.name, func(t *testing.T) {
			d, err := Next(s.state)
			require.NoError(t, err)
			assert.Equal(t, s.action, d.Action)
			assert.Equal(t, []int{s.state.MicroBatch, s.state.Retries}, []int{d.MicroBatch, d.Retries})
			assert.Contains(t, d.Reason, s.text)
		})
	}
}

func TestMaybeIsTriedOnceEvenAfterAnOOM(t *testing.T) {
	d, err := Next(State{Class: Maybe, MicroBatch: 8, Retries: 1})
	require.NoError(t, err)
	assert.Equal(t, Shrink, d.Action)
	assert.Equal(t, 1, d.MaybeRetries)
	// a clear one still counts on
	d, err = Next(State{Class: GPUOOM, MicroBatch: 4, Retries: 2, MaybeRetries: 1})
	require.NoError(t, err)
	assert.Equal(t, Shrink, d.Action)
	assert.Equal(t, 1, d.MaybeRetries)
}

func TestNextRefusesBadStates(t *testing.T) {
	for text, s := range map[string]State{
		"micro_batch is 0":    {Class: GPUOOM},
		"retries is -1":       {Class: GPUOOM, MicroBatch: 1, Retries: -1},
		"maybe_retries is 2":  {Class: GPUOOM, MicroBatch: 1, Retries: 1, MaybeRetries: 2},
		"max_retries is 101":  {Class: GPUOOM, MicroBatch: 1, MaxRetries: pointer(101)},
		"micro_batch is 2000": {Class: GPUOOM, MicroBatch: 2000000},
		`class is "oom"`:      {Class: "oom", MicroBatch: 1},
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
	f.Add(8, 0, 3)
	f.Add(5, 0, 3)
	f.Add(1, 0, 0)
	f.Add(1<<20, 0, 100)
	f.Add(1048573, 2, 3)
	f.Fuzz(func(t *testing.T, micro, retries, limit int) {
		d, err := Next(State{Class: GPUOOM, MicroBatch: micro, Retries: retries, MaxRetries: &limit})
		if err != nil {
			return
		}
		if d.Action == Shrink && (d.MicroBatch < 1 || d.MicroBatch > micro/2) {
			t.Fatalf("micro-batch %d after %d", d.MicroBatch, micro)
		}
	})
}
