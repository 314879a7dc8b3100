package batching

import (
	"math/rand/v2"
	"slices"
)

// batches that a group is made of, as transformers' LengthGroupedSampler has it
const megabatches = 50

// Expected is the mean over all orders of the seconds that batches of b of the sorted clips hold:
// of n clips, the longest of b lasts sum over i of x_i C(i-1, b-1) / C(n, b) on average, with x
// ascending; likewise for what is left for the last batch.
func Expected(sorted []float64, b int) float64 {
	n := len(sorted)
	return float64(n/b*b)*meanLongest(sorted, b) + float64(n%b)*meanLongest(sorted, n%b)
}

// meanLongest is the mean of the longest of b clips, over all choices; 0 of none.
func meanLongest(sorted []float64, b int) (mean float64) {
	n := len(sorted)
	if b == 0 || b > n {
		return 0
	}
	chance := float64(b) / float64(n) // that the i-th is the longest
	for i := n; i >= b && chance > 0; i-- {
		mean += chance * sorted[i-1]
		if i > 1 {
			chance *= float64(i-b) / float64(i-1)
		}
	}
	return mean
}

// Grouped is an order of the sorted clips, by their positions, that follows
// get_length_grouped_indices of transformers: shuffled, split into groups of 50 batches (fewer,
// where there are not four such groups), each sorted, the longest clip moved to the front; its
// random numbers are others.
func Grouped(sorted []float64, b int, seed uint64) []uint32 {
	order := shuffled(len(sorted), rand.New(rand.NewPCG(seed, 1)))
	size := max(1, min(len(order)/(b*4), megabatches)) * b
	longest := 0
	for start := 0; start < len(order); start += size {
		group := order[start:min(start+size, len(order))]
		longestFirst(group)
		if sorted[group[0]] > sorted[order[longest]] {
			longest = start
		}
	}
	if len(order) > 0 {
		order[0], order[longest] = order[longest], order[0]
	}
	return order
}

// shuffled is the positions from 0 to n-1 in random order.
func shuffled(n int, random *rand.Rand) []uint32 {
	order := positions(n)
	shuffle(order, random)
	return order
}

func positions(n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

func shuffle[T any](all []T, random *rand.Rand) {
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// longestFirst sorts positions among sorted clips.
func longestFirst(positions []uint32) {
	slices.Sort(positions)
	slices.Reverse(positions)
}
