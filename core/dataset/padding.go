package dataset

import (
	"math/rand/v2"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	defaultBatch = 8
	maxBatch     = 1 << 16
	bucketCount  = 10
	megabatches  = 50 // batches that a group is made of, as transformers' LengthGroupedSampler has it
)

// paddings tells what four ways of making batches of b clips cost, from the sorted durations. A batch lasts as long as its
// longest clip; the last one may be smaller.
//   - random: in expectation, exactly (see expected);
//   - grouped: as transformers' LengthGroupedSampler does: shuffled, cut into groups of 50 batches (fewer, where there are not
//     four such groups), each sorted, the longest clip moved to the front; for one shuffle, by the seed;
//   - bucketed: ten buckets that last equally long, as Lhotse and NeMo cut them, random batches within each, in expectation;
//   - sorted: from the longest to the shortest.
func paddings(sorted []float64, b int, seed int64) []profile.Padding {
	if len(sorted) == 0 {
		return []profile.Padding{}
	}
	audio := 0.0
	for _, s := range sorted {
		audio += s
	}
	one := func(order string, padded float64) profile.Padding {
		return profile.Padding{Order: order, PaddedS: padded, Waste: max(0, 1-audio/padded)}
	}
	return []profile.Padding{
		one("random", expected(sorted, b)),
		one("grouped", grouped(sorted, b, seed)),
		one("bucketed", bucketed(sorted, b, audio)),
		one("sorted", inOrder(descending(sorted), b)),
	}
}

// expected is the mean over all orders of the seconds that batches of b hold: of n clips, the longest of b lasts
// sum over i of x_i C(i-1, b-1) / C(n, b) on average, with x ascending; likewise for what is left for the last batch.
func expected(sorted []float64, b int) float64 {
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

// inOrder is how many seconds the batches of an order hold.
func inOrder(order []float64, b int) (padded float64) {
	for batch := range slices.Chunk(order, b) {
		padded += float64(len(batch)) * slices.Max(batch)
	}
	return padded
}

func descending(sorted []float64) []float64 {
	order := slices.Clone(sorted)
	slices.Reverse(order)
	return order
}

// grouped follows get_length_grouped_indices of transformers, with another random order.
func grouped(sorted []float64, b int, seed int64) float64 {
	order := slices.Clone(sorted)
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	size := max(1, min(len(order)/(b*4), megabatches)) * b
	longest := 0
	for at := 0; at < len(order); at += size {
		group := order[at:min(at+size, len(order))]
		slices.Sort(group)
		slices.Reverse(group)
		if group[0] > order[longest] {
			longest = at
		}
	}
	order[0], order[longest] = order[longest], order[0]
	return inOrder(order, b)
}

func bucketed(sorted []float64, b int, audio float64) (padded float64) {
	from, held := 0, 0.0
	for k := 1; k <= bucketCount; k++ {
		to := from
		for to < len(sorted) && (held < audio*float64(k)/bucketCount || k == bucketCount) {
			held += sorted[to]
			to++
		}
		padded += expected(sorted[from:to], b)
		from = to
	}
	return padded
}

// Few clips that take much time: at most a tenth of all, and at least this share of the time.
const (
	fewShare  = 0.1
	muchShare = 0.05
)

// outliers finds few long clips without which random batches would hold far fewer seconds: those over 30 s, or else the
// longest hundredth. There are none when they take less than three times their share of the clips.
func outliers(sorted []float64, b int) *profile.Outliers {
	n := len(sorted)
	if n == 0 {
		return nil
	}
	over := float64(longClipS)
	count := n - firstOver(sorted, over)
	if count == 0 || float64(count) > fewShare*float64(n) {
		over = percentile(sorted, 99)
		count = n - firstOver(sorted, over)
	}
	if count == 0 || count == n {
		return nil
	}
	share := 1 - expected(sorted[:n-count], b)/expected(sorted, b)
	if share < muchShare || share < 3*float64(count)/float64(n) {
		return nil
	}
	return &profile.Outliers{OverS: over, Count: count, PaddedShare: share}
}
