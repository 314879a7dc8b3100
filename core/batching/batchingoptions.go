package batching

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	MaxStep    = 1 << 16 // clips in an optimizer step
	maxRanks   = 1 << 12
	maxBuckets = 256

	fewSteps    = 20 // an epoch with fewer steps mixes little
	bucketSteps = 4  // a bucket holds at least so many steps
)

// The modes: which clips make up an optimizer step.
const (
	Random   = "random"   // any
	Bucketed = "bucketed" // of one bucket, that is of similar length
	// of all lengths in proportion: groups of similar length from every range of a few random steps
	Stratified = "stratified"
)

// Modes are all of them.
var Modes = []string{Random, Stratified, Bucketed}

// Options is how the optimizer steps of an epoch are made.
type Options struct {
	Mode string `json:"mode"`
	// clips in an optimizer step, of all processes together
	StepSamples int `json:"step_samples"`
	Ranks       int `json:"ranks"` // processes
	// clips of a full step for each of them; null: evenly
	Shares   []int  `json:"shares"`
	Seed     uint64 `json:"seed"`
	Epoch    uint64 `json:"epoch"`
	Buckets  int    `json:"buckets"` // at most; fewer leave more randomness
	DropLast bool   `json:"drop_last"`
	Cost
	Memory Limits `json:"memory"` // null: not known

	RowKind units.RowKind `json:"row_kind"` // what a step is made of; "": clips

	// of a comparison: how long each process takes, the slowest 1; nil: alike
	Paces []float64 `json:"-"`
	// of a comparison: those that micro-batches of one size may have; nil: the largest that fits
	Sizes []int `json:"-"`
}

// Check returns what is wrong with the options themselves.
func (r Options) Check() error {
	wrong := func(hint, format string, args ...any) error {
		return fault.New(fault.InvalidArgument, hint, format, args...)
	}
	switch {
	case !slices.Contains(Modes, r.Mode):
		return wrong(`choose "`+strings.Join(Modes, `", "`)+`"`, "mode = %q is not known", r.Mode)
	case r.StepSamples < 1 || r.StepSamples > MaxStep:
		return wrong(fmt.Sprintf("choose 1 to %d", MaxStep), "step_samples = %d", r.StepSamples)
	case r.Ranks < 1 || r.Ranks > maxRanks:
		return wrong(fmt.Sprintf("choose 1 to %d", maxRanks), "ranks = %d", r.Ranks)
	case r.StepSamples%r.Ranks != 0:
		return wrong("choose a multiple of the number of processes",
			"%s a step cannot be shared evenly by %d processes", r.RowKind.Count(r.StepSamples),
			r.Ranks)
	case r.Buckets < 1 || r.Buckets > maxBuckets:
		return wrong(fmt.Sprintf("choose 1 to %d", maxBuckets), "buckets = %d", r.Buckets)
	}
	if err := r.checkShares(); err != nil {
		return err
	}
	return r.Cost.Check()
}

// perRank is how many clips of a full step a process gets on average.
func (r Options) perRank() int { return r.StepSamples / r.Ranks }

// tail returns the sizes of the steps after the full ones: the remaining clips make up a shorter
// step, of which every process gets some. When they are fewer than the processes, they share the
// clips of one more step, in two shorter ones.
func (r Options) tail(n int) ([]int, error) {
	remainder := n % r.StepSamples
	switch {
	case remainder == 0:
		return []int{}, nil
	case r.DropLast && n < r.StepSamples:
		return nil, fault.New(fault.InvalidArgument, "take smaller steps, or keep the last one",
			"%s make no step of %d, and the last step is dropped", r.RowKind.Count(n),
			r.StepSamples)
	case r.DropLast, remainder >= r.Ranks:
		return []int{remainder}, nil
	case n > r.StepSamples && r.StepSamples+remainder >= 2*r.Ranks:
		return []int{(r.StepSamples + remainder + 1) / 2, (r.StepSamples + remainder) / 2}, nil
	}
	return nil, fault.New(fault.InvalidArgument, "take fewer processes, other steps, or drop_last",
		"%s in steps of %d leave %d, which cannot be shared by %d processes", r.RowKind.Count(n),
		r.StepSamples, remainder, r.Ranks)
}

// notes warns of too little data.
func (r Options) notes(n, buckets int) []string {
	steps, notes := n/r.StepSamples, []string{}
	if r.Mode == Stratified && steps < 2*minPools {
		notes = append(notes, fmt.Sprintf("an epoch has only %d steps of %s, not %d: they are not "+
			"stratified, and their order is random", steps, r.RowKind.Count(r.StepSamples), 2*minPools))
	}
	if r.Mode != Bucketed {
		return notes
	}
	if steps < fewSteps {
		notes = append(notes, fmt.Sprintf(
			"an epoch has only %d steps of %s: steps of similar %s then hardly change from epoch "+
				"to epoch; "+
				"random steps with micro-batches sized by memory keep the randomness that a small "+
				"dataset needs", steps, r.RowKind.Count(r.StepSamples), r.RowKind.Nouns()))
	}
	if buckets == 1 && r.Buckets > 1 {
		notes = append(notes, fmt.Sprintf(
			"%s do not fill two buckets of %d steps: the order is random", r.RowKind.Count(n),
			bucketSteps))
	}
	return notes
}
