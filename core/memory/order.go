package memory

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// clips are the samples of a run.
type clips struct {
	lengths, labels []int64
	batch, group    int  // samples of a micro-batch, and of an optimizer step
	grouped         bool // by length, as transformers' LengthGroupedSampler does
}

// epoch gives the order of one pass over all samples.
func (c *clips) epoch(r *rand.Rand) []int {
	order := r.Perm(len(c.lengths))
	if c.grouped {
		c.sortGroups(order)
	}
	return order
}

// sortGroups follows get_length_grouped_indices of transformers.trainer_pt_utils: groups of 50 steps, or of a quarter of
// the samples where there are fewer, each sorted from the longest, and the longest sample of all at the very start.
func (c *clips) sortGroups(order []int) {
	size := c.group * max(min(len(order)/(4*c.group), 50), 1)
	longest := 0
	for start := 0; start < len(order); start += size {
		slices.SortStableFunc(order[start:min(start+size, len(order))], func(a, b int) int { return cmp.Compare(c.lengths[b], c.lengths[a]) })
		if c.lengths[order[start]] > c.lengths[order[longest]] {
			longest = start
		}
	}
	order[0], order[longest] = order[longest], order[0]
}

// shapes gives the micro-batches of a run, epoch after epoch; a rest that fills no batch is dropped.
func (c *clips) shapes(seed uint64) func() trace.Shape {
	r := rand.New(rand.NewPCG(seed, 0))
	var order []int
	return func() trace.Shape {
		if len(order) < c.batch {
			order = c.epoch(r)
		}
		shape := trace.Shape{Batch: int64(c.batch)}
		for _, i := range order[:c.batch] {
			shape.Length, shape.Labels = max(shape.Length, c.lengths[i]), max(shape.Labels, c.labels[i])
		}
		order = order[c.batch:]
		return shape
	}
}

// windows gives the optimizer steps of a run.
func (c *clips) windows(seed uint64, accumulation int) func() []trace.Shape {
	next := c.shapes(seed)
	return func() []trace.Shape {
		window := make([]trace.Shape, accumulation)
		for i := range window {
			window[i] = next()
		}
		return window
	}
}
