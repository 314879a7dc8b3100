package batching

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// checkShares validates explicit shares of a step.
func (r Options) checkShares() error {
	wrong := func(format string, args ...any) error {
		return fault.New(fault.InvalidArgument,
			"give each process at least one clip; the shares must add up to the step",
			format, args...)
	}
	if r.Shares == nil {
		return nil
	}
	if len(r.Shares) != r.Ranks {
		return wrong("shares of %d processes, and there are %d", len(r.Shares), r.Ranks)
	}
	remaining := r.StepSamples
	for rank, share := range r.Shares {
		if share < 1 || share > remaining {
			return wrong("the share of process %d is %d of %d clips", rank, share, remaining)
		}
		remaining -= share
	}
	if remaining > 0 {
		return wrong("shares leave %d of %d clips", remaining, r.StepSamples)
	}
	return nil
}

// share is how many clips of a full step a process gets.
func (r Options) share(rank int) int {
	if r.Shares == nil {
		return r.perRank()
	}
	return r.Shares[rank]
}

// counts is how many clips of a step of this size each process gets: of a shorter step about the
// same proportion, and at least one.
func (r Options) counts(size int) []int {
	counts, paces, remaining := make([]int, r.Ranks), make([]float64, r.Ranks), size
	beyond := max(1, r.StepSamples-r.Ranks) // what a full step has beyond the first clip of each
	for rank := range counts {
		counts[rank], paces[rank] =
			1+(size-r.Ranks)*(r.share(rank)-1)/beyond, 1/float64(r.share(rank))
		remaining -= counts[rank]
	}
	handOut(counts, remaining, paces)
	return counts
}

// places is where the clips of a step go, from the longest to the shortest, in the processes'
// shares side by side: in turns, as often as each has clips, and back and forth, so that all get
// about the same seconds a clip.
func places(counts []int) []int {
	type turn struct {
		order       float64
		side, place int
	}
	var turns []turn
	for rank, count := range counts {
		for i := range count {
			side := rank
			if i%2 == 1 {
				side = -rank
			}
			turns = append(turns, turn{(float64(i) + 0.5) / float64(count), side, len(turns)})
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.side, b.side))
	})
	order := make([]int, len(turns))
	for i, t := range turns {
		order[i] = t.place
	}
	return order
}

// distribute returns the clips of a step to the processes, by their places.
func distribute(step []uint32, places []int) {
	longestFirst(step)
	for i, p := range slices.Clone(step) {
		step[places[i]] = p
	}
}

// pace is how long a process takes for a second of audio, relative to the slowest one.
func (r Options) pace(rank int) float64 {
	if r.Paces == nil {
		return 1
	}
	return r.Paces[rank]
}

// FastestShares divides a step among processes of these paces so that the last one finishes as
// early as possible, each with at least one clip.
func FastestShares(step int, paces []float64) []int {
	shares := slices.Repeat([]int{1}, len(paces))
	handOut(shares, step-len(paces), paces)
	return shares
}

// handOut adds clips one by one, each to the process that would finish it first.
func handOut(shares []int, clips int, paces []float64) {
	for range clips {
		next := 0
		for rank, pace := range paces {
			if pace*float64(shares[rank]+1) < paces[next]*float64(shares[next]+1) {
				next = rank
			}
		}
		shares[next]++
	}
}
