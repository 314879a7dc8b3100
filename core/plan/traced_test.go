package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asrconfig/asrconfig-go/core/batching"
)

func TestLargestBeyondAShareFollowsTheRiseOfEqualSteps(t *testing.T) {
	const gib = int64(1) << 30
	// Two micro-batches of 16 keep 3 GiB of gradients beside each other; one of 32 keeps none.
	traced := Traced{
		BudgetBytes: 40 * gib,
		Memory:      batching.Limits{{Seconds: 10, Batch: 32}},
		Peaks:       []TracedPeak{{Batch: 16, Bytes: 15 * gib}, {Batch: 32, Bytes: 20 * gib}},
	}
	half := gib / 2
	for name, test := range map[string]struct {
		rise *int64
		want int
	}{
		"as the peaks rise": {nil, 96},
		"of equal steps":    {&half, 72},
	} {
		t.Run(name, func(t *testing.T) {
			traced.RiseBytes = test.rise
			assert.Equal(t, test.want, traced.Largest(10))
		})
	}
}
