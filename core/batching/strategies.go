package batching

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/parallel"
)

// How a step is split into micro-batches.
const (
	Fixed   = "fixed"   // one size: for all steps, or for those of a bucket; clips as they come
	Optimal = "optimal" // the cheapest of all that fit, as the guard splits
)

// Figures are what one epoch costs in one order of clips, with one kind of split.
type Figures struct {
	// "random", "grouped" (as group_by_length of transformers), "stratified" or "bucketed": see
	// StepSampler
	Order string `json:"order"`
	// "fixed" (one size for all, or for a bucket) or "optimal" (the cheapest that fits, as the
	// guard splits)
	Split      string `json:"split"`
	MicroBatch *int   `json:"micro_batch"` // the size where there is one for all
	// of all processes, as the steps
	MicroBatches int `json:"micro_batches"`
	Steps        int `json:"steps"`
	// seconds that the model computes: clips × the longest of them, over all micro-batches
	PaddedS float64 `json:"padded_s"`
	Padding float64 `json:"padding"` // the share of them that is not audio
	// mean over micro-batches of clips / clips that would fit at that length
	Use       float64 `json:"use"`
	UseByTime float64 `json:"use_by_time"` // the same, weighted by what each micro-batch costs
	// padded seconds and the overhead of each micro-batch, in seconds of audio, of all processes
	CostS float64 `json:"cost_s"`
	// the same of the slowest process of each step: what the epoch takes
	SlowestS   float64 `json:"slowest_s"`
	OverMemory int     `json:"over_memory"` // micro-batches larger than what fits: none
	// how many times faster than random order with one size
	Speed float64 `json:"speed"`

	// the micro-batches with the most clips: of those with about the longest clips, and of all
	Longest MicroBatch `json:"-"`
	Largest MicroBatch `json:"-"`
}

// MicroBatch is clips that are computed at once, padded to the longest of them.
type MicroBatch struct {
	Clips   int
	Seconds float64 // of the longest
}

// Comparison is an epoch by every strategy. The first is the Trainer's default.
type Comparison struct {
	Clips      int       `json:"clips"`
	AudioS     float64   `json:"audio_s"`
	LongestS   float64   `json:"longest_s"`
	Strategies []Figures `json:"strategies"`
	Buckets    []Bucket  `json:"buckets"` // those of bucketed steps
	Notes      []string  `json:"notes"`   // warnings about too little data
}

func compare(seconds []float64, r Options) (*Comparison, error) {
	r.Mode = Stratified // whatever the caller has: all are compared
	if err := r.Check(); err != nil {
		return nil, err
	}
	if err := r.Memory.Check(); err != nil { // steps are split, so that a table must be there
		return nil, err
	}
	c, err := sortClips(seconds, r.Memory)
	if err != nil {
		return nil, err
	}
	if _, err := r.tail(len(seconds)); err != nil {
		return nil, err
	}
	sample := c.sample(simulated / r.StepSamples * r.StepSamples)
	figures, err := sample.everyStrategy(r)
	if err != nil {
		return nil, err
	}
	for i := range figures {
		figures[i].scaleTo(len(seconds), r)
		figures[i].Speed = 1
		if figures[i].SlowestS > 0 {
			figures[i].Speed = figures[0].SlowestS / figures[i].SlowestS
		}
	}
	r.Mode = Bucketed
	boundaries := c.buckets(r.Buckets, r.perRank(), r.Cost, bucketSteps*r.StepSamples)
	return &Comparison{len(seconds), sum(c.sorted), c.sorted[len(seconds)-1], figures,
		c.describe(boundaries), r.notes(len(seconds), len(boundaries))}, nil
}

// simulated is how many clips are simulated at most.
const simulated = 1 << 18

// sample returns at most limit clips: the longest one, and others evenly spaced in the order of
// length.
func (c *sortedClips) sample(limit int) *sortedClips {
	n := len(c.sorted)
	if n <= limit {
		return c
	}
	few := &sortedClips{memory: c.memory, sorted: make([]float64, limit),
		largest: make([]int32, limit)}
	for i := range limit {
		pos := n - 1 - int(int64(limit-1-i)*int64(n)/int64(limit))
		few.sorted[i], few.largest[i] = c.sorted[pos], c.largest[pos]
	}
	return few
}

func (c *sortedClips) everyStrategy(r Options) ([]Figures, error) {
	jobs := []func() []Figures{
		func() []Figures { return c.trainerDefaults(Random, r) },
		func() []Figures { return c.trainerDefaults("grouped", r) },
		func() []Figures { return c.simulate(Random, r, Optimal) },
		func() []Figures { return c.simulate(Stratified, r, Optimal) },
		func() []Figures { return c.simulate(Bucketed, r, Fixed, Optimal) },
	}
	figures := make([][]Figures, len(jobs))
	err := parallel.Do(len(jobs), func(i int) error {
		figures[i] = jobs[i]()
		return nil
	})
	return slices.Concat(figures...), err
}

// scaleTo scales the figures of a sample to n clips.
func (f *Figures) scaleTo(n int, r Options) {
	steps := (n + r.StepSamples - 1) / r.StepSamples
	if r.DropLast {
		steps = n / r.StepSamples
	}
	if f.Steps == steps {
		return
	}
	scale := float64(n) / float64(f.Steps*r.StepSamples) // the sample is whole steps
	f.MicroBatches = int(math.Round(scale * float64(f.MicroBatches)))
	f.PaddedS, f.CostS, f.SlowestS, f.Steps =
		scale*f.PaddedS, scale*f.CostS, scale*f.SlowestS, steps
}

// oneSize is the largest micro-batch that fits the longest clip and that a process's share of a
// step is a multiple of.
func (c *sortedClips) oneSize(share int) int {
	size := min(share, int(c.largest[len(c.largest)-1]))
	for share%size != 0 {
		size--
	}
	return size
}

// trainerDefaults is one micro-batch size for all, of each that it may have, and batches given to
// the processes in turns, as the Trainer does.
func (c *sortedClips) trainerDefaults(order string, r Options) (all []Figures) {
	var clips []uint32
	if order == Random {
		clips = shuffled(len(c.sorted), rand.New(rand.NewPCG(r.Seed, r.Epoch)))
	} else {
		clips = Grouped(c.sorted, r.StepSamples, r.Seed)
	}
	if r.DropLast {
		clips = clips[:len(clips)/r.StepSamples*r.StepSamples]
	}
	sizes := r.Sizes
	if sizes == nil {
		sizes = []int{c.oneSize(r.perRank())}
	}
	for _, size := range sizes {
		all = append(all, c.trainerDefault(order, clips, size, r))
	}
	return all
}

func (c *sortedClips) trainerDefault(order string, clips []uint32, size int, r Options) Figures {
	t := epochFigures{Figures: Figures{Order: order, Split: Fixed, MicroBatch: &size},
		price: r.Cost}
	for step := range slices.Chunk(clips, r.StepSamples) {
		for rank := range r.Ranks {
			for from := rank * size; from < len(step); from += r.Ranks * size {
				t.add(c, step[from:min(from+size, len(step))])
			}
			t.endRank(r.pace(rank))
		}
		t.endStep()
	}
	return t.figures(c.audio(clips))
}

// simulate is an order of steps, and every process's share of them split in several ways.
func (c *sortedClips) simulate(order string, r Options, splits ...string) []Figures {
	r.Mode = order
	epoch, err := c.epoch(r)
	if err != nil {
		panic(err) // the options have been checked
	}
	random := rand.New(rand.NewPCG(r.Seed, r.Epoch^1<<63))
	figures := make([]Figures, len(splits))
	for i, split := range splits {
		t := epochFigures{Figures: Figures{Order: order, Split: split}, price: r.Cost}
		s := splitter{sorted: c.sorted, largest: c.largest, price: r.Cost}
		epoch.eachRank(func(rank int, share []uint32, last bool) {
			sizes := s.split(split, share)
			if split == Fixed { // within a bucket's step, clips come as they are
				share = append([]uint32(nil), share...)
				shuffle(share, random)
			}
			for _, size := range sizes {
				t.add(c, share[:size])
				share = share[size:]
			}
			t.endRank(r.pace(rank))
			if last {
				t.endStep()
			}
		})
		figures[i] = t.figures(c.audio(epoch.Order))
	}
	return figures
}

// eachRank calls do with every process's part of every step; last means that the step is complete.
func (e *Epoch) eachRank(do func(rank int, share []uint32, last bool)) {
	order := e.Order
	for i := range e.Steps + len(e.Tail) {
		counts := e.Shares[max(0, i-e.Steps+1)]
		for rank, count := range counts {
			do(rank, order[:count], rank == len(counts)-1)
			order = order[count:]
		}
	}
}
