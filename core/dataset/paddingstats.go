package dataset

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	defaultBatch = 8
	maxBatch     = 1 << 16
	bucketCount  = 10
)

// paddings tells what four ways of making batches of b clips cost, from the sorted durations. A batch lasts as long as its
// longest clip; the last one may be smaller.
//   - random: in expectation, exactly (see batching.Expected);
//   - grouped: as transformers' LengthGroupedSampler does: shuffled, split into groups of 50 batches (fewer, where there are not
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
		one("random", batching.Expected(sorted, b)),
		one("grouped", grouped(sorted, b, seed)),
		one("bucketed", bucketed(sorted, b, audio)),
		one("sorted", inOrder(descending(sorted), b)),
	}
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

// grouped is how many seconds the batches of transformers' groups hold.
func grouped(sorted []float64, b int, seed int64) float64 {
	order := make([]float64, 0, len(sorted))
	for _, position := range batching.Grouped(sorted, b, uint64(seed)) {
		order = append(order, sorted[position])
	}
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
		padded += batching.Expected(sorted[from:to], b)
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
	share := 1 - batching.Expected(sorted[:n-count], b)/batching.Expected(sorted, b)
	if share < muchShare || share < 3*float64(count)/float64(n) {
		return nil
	}
	return &profile.Outliers{OverS: over, Count: count, PaddedShare: share}
}
