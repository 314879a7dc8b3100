package memory

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// sampler draws the samples of a run.
type sampler struct {
	lengths, labels []int64
	batch, group    int  // samples of a micro-batch, and of an optimizer step
	grouped         bool // by length, as transformers' LengthGroupedSampler does
}

// epoch returns the order of one pass over all samples.
func (c *sampler) epoch(r *rand.Rand) []int {
	order := r.Perm(len(c.lengths))
	if c.grouped {
		c.sortGroups(order)
	}
	return order
}

// sortGroups follows get_length_grouped_indices of transformers.trainer_pt_utils: groups of 50
// steps, or of a quarter of the samples where there are fewer, each sorted from the longest, and
// the longest sample of all at the very start.
func (c *sampler) sortGroups(order []int) {
	size := c.group * max(min(len(order)/(4*c.group), 50), 1)
	longest := 0
	for start := 0; start < len(order); start += size {
		slices.SortStableFunc(order[start:min(start+size, len(order))], func(a, b int) int {
			return cmp.Compare(c.lengths[b], c.lengths[a])
		})
		if c.lengths[order[start]] > c.lengths[order[longest]] {
			longest = start
		}
	}
	order[0], order[longest] = order[longest], order[0]
}

// shapes returns the micro-batches of a run, epoch after epoch; a rest that fills no batch is
// dropped.
func (c *sampler) shapes(seed uint64) func() trace.Shape {
	r := rand.New(rand.NewPCG(seed, 0))
	var order []int
	return func() trace.Shape {
		if len(order) < c.batch {
			order = c.epoch(r)
		}
		shape := trace.Shape{Batch: int64(c.batch)}
		for _, i := range order[:c.batch] {
			shape.Length, shape.Labels =
				max(shape.Length, c.lengths[i]), max(shape.Labels, c.labels[i])
		}
		order = order[c.batch:]
		return shape
	}
}

// windows returns the optimizer steps of a run.
func (c *sampler) windows(seed uint64, steps, accumulation int) iter.Seq2[int, []trace.Shape] {
	next := c.shapes(seed)
	return func(yield func(int, []trace.Shape) bool) {
		for number := range steps {
			window := make([]trace.Shape, accumulation)
			for i := range window {
				window[i] = next()
			}
			if !yield(number, window) {
				return
			}
		}
	}
}
