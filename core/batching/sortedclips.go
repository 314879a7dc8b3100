package batching

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

const (
	maxClips = 1 << 30
	// MaxSeconds is the longest clip, and overhead, in seconds: far beyond any, and every sum of
	// them is finite.
	MaxSeconds = 1e7
)

// sortedClips are the durations of a dataset in rising order; a position is a place in it.
type sortedClips struct {
	sorted  []float64
	number  []uint32 // of the clip at each position
	largest []int32  // micro-batch that fits a clip of each position; nil without a table
	memory  Limits
}

// sortClips checks the durations, and that each fits when there is a table. Equal ones keep their
// order.
func sortClips(seconds []float64, memory Limits) (*sortedClips, error) {
	if len(seconds) == 0 || len(seconds) > maxClips {
		return nil, fault.New(fault.EmptyDataset, "pass the duration of every clip",
			"there are %d durations, not 1 to %d", len(seconds), maxClips)
	}
	for i, s := range seconds {
		if !(s >= 0 && s <= MaxSeconds) {
			return nil, fault.New(fault.InvalidArgument,
				"pass 0 to 1e7 seconds for every clip; drop those that cannot be read",
				"clip %d lasts %g s", i, s)
		}
	}
	c := &sortedClips{memory: memory, number: positions(len(seconds))}
	slices.SortFunc(c.number, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(seconds[a], seconds[b]), cmp.Compare(a, b))
	})
	c.sorted = make([]float64, len(seconds))
	for i, n := range c.number {
		c.sorted[i] = seconds[n] + 0 // there is a negative zero
	}
	if memory == nil {
		return c, nil
	}
	if err := memory.Check(); err != nil {
		return nil, err
	}
	c.largest = memory.largestOf(c.sorted)
	return c, memory.checkAll(c.sorted)
}
