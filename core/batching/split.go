package batching

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// splitter splits clips, the longest first, into micro-batches of neighbours. A micro-batch has
// clips × longest padded seconds.
type splitter struct {
	sorted  []float64 // of all clips
	largest []int32   // that fits for each of them
	price   Cost
	sizes   []int
	best    []float64
	chosen  []int32
	audio   []float64
}

func (c *splitter) split(strategy string, clips []uint32) []int {
	if strategy == Optimal {
		return c.optimal(clips)
	}
	return c.fixed(clips)
}

// fixed is one size, which the longest clip allows.
func (c *splitter) fixed(clips []uint32) []int {
	c.sizes = c.sizes[:0]
	size := int(c.largest[clips[0]])
	for remaining := len(clips); remaining > 0; remaining -= size {
		c.sizes = append(c.sizes, min(size, remaining))
	}
	return c.sizes
}

// optimal is the cheapest split there is, by dynamic programming from the shortest clip on.
// Neighbours suffice: any split can be rearranged into one of neighbours with the same sizes, whose
// longest clips are no longer. Of splits that cost the same, the one whose first micro-batches are
// largest, as the guard has it. The sizes are valid until the next split.
func (c *splitter) optimal(clips []uint32) []int {
	n := len(clips)
	c.best, c.chosen = slices.Grow(c.best[:0], n+1)[:n+1], slices.Grow(c.chosen[:0], n+1)[:n+1]
	c.audio = slices.Grow(c.audio[:0], n+1)[:n+1]
	c.best[n], c.audio[n] = 0, 0
	for i := n - 1; i >= 0; i-- {
		longest := c.sorted[clips[i]]
		c.audio[i] = c.audio[i+1] + longest
		c.best[i], c.chosen[i] = c.price.Of(longest)+c.best[i+1], 1
		for size := 2; size <= min(n-i, int(c.largest[clips[i]])); size++ {
			padded := float64(size) * longest
			// No split of the rest costs less than its audio, and with the size this bound only
			// grows.
			if c.price.OverheadS+padded+c.audio[i+size] > c.best[i] {
				break
			}
			if cost := c.price.Of(padded) + c.best[i+size]; cost <= c.best[i] {
				c.best[i], c.chosen[i] = cost, int32(size)
			}
		}
	}
	c.sizes = c.sizes[:0]
	for i := 0; i < n; i += int(c.chosen[i]) {
		c.sizes = append(c.sizes, int(c.chosen[i]))
	}
	return c.sizes
}

// Split is the cheapest way to split these clips into micro-batches: each as the numbers of its
// clips, the longest first. A micro-batch has clips × longest padded seconds.
func Split(seconds []float64, memory Limits, cost Cost) ([][]int, error) {
	if memory == nil {
		return nil, fault.New(fault.InvalidArgument,
			"pass what fits: rows of seconds and the largest micro-batch",
			"splitting steps requires a memory table")
	}
	if err := cost.Check(); err != nil {
		return nil, err
	}
	c, err := sortClips(seconds, memory)
	if err != nil {
		return nil, err
	}
	order := positions(len(seconds))
	slices.Reverse(order)
	s, batches := splitter{sorted: c.sorted, largest: c.largest, price: cost}, [][]int{}
	for _, size := range s.optimal(order) {
		batch := make([]int, size)
		for i, p := range order[:size] {
			batch[i] = int(c.number[p])
		}
		batches, order = append(batches, batch), order[size:]
	}
	return batches, nil
}

func (c *splitter) cost(clips []uint32, sizes []int) (cost float64) {
	for _, size := range sizes {
		cost += c.price.Of(float64(size) * c.sorted[clips[0]])
		clips = clips[size:]
	}
	return cost
}
