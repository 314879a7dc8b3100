package batching

import (
	"math/rand/v2"
	"slices"
)

// Epoch is the clips of an epoch in the order of its steps.
type Epoch struct {
	Steps int   `json:"steps"` // full ones
	Tail  []int `json:"tail"`  // sizes of the shorter steps after them
	// clips of each process: in a full step, then in each of the shorter ones
	Shares  [][]int  `json:"shares"`
	Buckets []Bucket `json:"buckets"`
	Notes   []string `json:"notes"`
	// numbers of clips. Each process's share of a step lies together, the longest clip first
	Order []uint32 `json:"-"`
}

// MakeEpoch orders the clips of one epoch: every clip once, or at most once with DropLast, by the
// options' seed and epoch.
func MakeEpoch(seconds []float64, r Options) (*Epoch, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	c, err := sortClips(seconds, r.Memory)
	if err != nil {
		return nil, err
	}
	e, err := c.epoch(r)
	if err != nil {
		return nil, err
	}
	for i, p := range e.Order {
		e.Order[i] = c.number[p]
	}
	return e, nil
}

// epoch is MakeEpoch with positions in the order.
func (c *sortedClips) epoch(r Options) (*Epoch, error) {
	n := len(c.sorted)
	tail, err := r.tail(n)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(r.Seed, r.Epoch))
	boundaries := []int{n}
	if r.Mode == Bucketed {
		boundaries = c.buckets(r.Buckets, r.perRank(), r.Cost, bucketSteps*r.StepSamples)
	}
	order := shuffled(n, random)
	behind := 0
	for _, size := range tail {
		behind += size
	}
	full := order[:n-behind]
	switch r.Mode {
	case Stratified:
		c.stratified(full, r, random)
	case Bucketed:
		c.bucketed(full, r, boundaries, random)
	}
	to := places(r.counts(r.StepSamples))
	for step := range slices.Chunk(full, r.StepSamples) {
		distribute(step, to)
	}
	if r.DropLast {
		order, tail = full, []int{}
	}
	shares, start := [][]int{r.counts(r.StepSamples)}, len(full)
	for _, size := range tail { // any clips, so that no length is always among the last
		counts := r.counts(size)
		distribute(order[start:start+size], places(counts))
		shares, start = append(shares, counts), start+size
	}
	return &Epoch{len(full) / r.StepSamples, tail, shares, c.describe(boundaries),
		r.notes(n, len(boundaries)), order}, nil
}

// byBucket returns the clips, in their order, to the buckets that end at these positions.
func byBucket(order []uint32, boundaries []int) [][]uint32 {
	bucketOf := make([]uint8, boundaries[len(boundaries)-1])
	buckets, from := make([][]uint32, len(boundaries)), 0
	for b, to := range boundaries {
		buckets[b] = make([]uint32, 0, to-from)
		for p := from; p < to; p++ {
			bucketOf[p] = uint8(b)
		}
		from = to
	}
	for _, p := range order {
		buckets[bucketOf[p]] = append(buckets[bucketOf[p]], p)
	}
	return buckets
}

// bucketed puts shuffled clips into steps of one bucket each; where a bucket ends, a step has clips
// of the next one too.
func (c *sortedClips) bucketed(order []uint32, r Options, boundaries []int, random *rand.Rand) {
	all := slices.Concat(byBucket(order, boundaries)...)
	steps := slices.Collect(slices.Chunk(all, r.StepSamples))
	shuffle(steps, random)
	copy(order, slices.Concat(steps...))
}
