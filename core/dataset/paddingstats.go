package dataset

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	defaultBatch = 8
	maxBatch     = 1 << 16
	bucketCount  = 10
)

// paddings tells what four ways of making batches of b clips cost, from the sorted durations. A
// batch lasts as long as its longest clip; the last one may be smaller.
//   - random: in expectation, exactly (see batching.Expected);
//   - grouped: as transformers' LengthGroupedSampler does: shuffled, split into groups of 50
//     batches (fewer, where there are not four such groups), each sorted, the longest clip moved to
//     the front; for one shuffle, by the seed;
//   - bucketed: ten buckets that last equally long, as Lhotse and NeMo cut them, random batches
//     within each, in expectation;
//   - sorted: from the longest to the shortest.
func paddings(sorted []float64, b int, seed int64) []profile.Padding {
	if len(sorted) == 0 {
		return []profile.Padding{}
	}
	audio := inOrder(sorted, 1) // batches of one are not padded
	descending := slices.Clone(sorted)
	slices.Reverse(descending)
	one := func(order string, padded float64) profile.Padding {
		return profile.Padding{Order: order, PaddedS: padded, Waste: max(0, 1-audio/padded)}
	}
	return []profile.Padding{
		one("random", batching.Expected(sorted, b)),
		one("grouped", grouped(sorted, b, seed)),
		one("bucketed", bucketed(sorted, b, audio)),
		one("sorted", inOrder(descending, b)),
	}
}

// inOrder is how many seconds the batches of an order hold.
func inOrder(order []float64, b int) (padded float64) {
	for batch := range slices.Chunk(order, b) {
		padded += float64(len(batch)) * slices.Max(batch)
	}
	return padded
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
	from, seconds := 0, 0.0
	for k := 1; k <= bucketCount; k++ {
		to := from
		for to < len(sorted) && (seconds < audio*float64(k)/bucketCount || k == bucketCount) {
			seconds += sorted[to]
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

// outliers finds few long clips without which random batches would hold far fewer seconds: those
// over 30 s, or else the longest hundredth. There are none when they take less than three times
// their share of the clips.
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

// histogramBins is about how many bins there are: 10 to 21, so that their edges can be round
// numbers.
const histogramBins = 20

// histogram counts sorted durations in bins of equal width 1, 2, 2.5 or 5 times a power of ten.
func histogram(sorted []float64) profile.Histogram {
	low, high := sorted[0], sorted[len(sorted)-1]
	span := high - low
	if span <= high*1e-9 || high < 1e-6 { // all equal: one bin of a second
		low, high, span = math.Floor(low), math.Floor(high)+1, histogramBins
	}
	unit, per := roundStep(span / histogramBins)
	// Edges are whole multiples, a division away from the decimal number: 3/10, not 3*0.1.
	edge := func(i float64) float64 {
		if per > 1 {
			return i * unit / per
		}
		return i * unit
	}
	first := math.Floor(low / edge(1))
	if edge(first) > low { // the division was rounded
		first--
	}
	edges := []float64{edge(first)}
	for i := first + 1; edges[len(edges)-1] < high; i++ {
		edges = append(edges, edge(i))
	}
	counts := make([]int, len(edges)-1)
	for _, s := range sorted {
		bin, exact := slices.BinarySearch(edges, s)
		if !exact {
			bin--
		}
		counts[max(0, min(bin, len(counts)-1))]++
	}
	return profile.Histogram{EdgesS: edges, Counts: counts}
}

// roundStep returns the smallest step unit/per of at least width seconds; unit and per are whole
// numbers where that is exact.
func roundStep(width float64) (unit, per float64) {
	power := math.Floor(math.Log10(width))
	for _, m := range []float64{10, 20, 25, 50, 100} { // tenths, so that 2.5 is whole
		unit, per = m, math.Pow(10, 1-power)
		if power >= 1 {
			unit, per = m*math.Pow(10, power-1), 1
		}
		if unit/per >= width*(1-1e-12) {
			break
		}
	}
	return unit, per
}
