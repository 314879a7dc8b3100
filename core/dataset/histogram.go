package dataset

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// histogramBins is about how many bins there are: 10 to 21, so that their edges can be round numbers.
const histogramBins = 20

// histogram counts sorted durations in bins of equal width 1, 2, 2.5 or 5 times a power of ten.
func histogram(sorted []float64) profile.Histogram {
	low, high := sorted[0], sorted[len(sorted)-1]
	span := high - low
	if span <= high*1e-9 || high < 1e-6 { // all the same: one bin of a second
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

// roundStep gives the smallest step unit/per of at least width seconds; unit and per are whole numbers where that is exact.
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
