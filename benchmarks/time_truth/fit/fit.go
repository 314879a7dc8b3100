package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// heldOut is how many rows there are for each that is kept from the fit.
const heldOut = 5

// launching is what the measurement takes without work: nine tenths of the shortest row.
func launching(rows []row) float64 {
	least := math.Inf(1)
	for _, r := range rows {
		least = min(least, r.seconds)
	}
	return 0.9 * least
}

// split keeps every fifth of the rows that work for longer than the measurement's own time, in a random order that is always the same.
func split(rows []row, keep func(row) bool) (fitted, held []row) {
	launch := launching(rows)
	var working []row
	for _, r := range rows {
		if r.seconds > 2.5*launch && keep(r) {
			r.seconds -= launch
			working = append(working, r)
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(working), func(i, j int) { working[i], working[j] = working[j], working[i] })
	cut := len(working) / heldOut
	return working[cut:min(len(working), cut+mostRows)], working[:cut]
}

// mostRows bounds how long a fit takes.
const mostRows = 2000

func spread(rows []row, predict func(row) float64) profile.Range {
	ratios := make([]float64, len(rows))
	for i, r := range rows {
		ratios[i] = r.seconds / predict(r)
	}
	slices.Sort(ratios)
	at := func(share float64) float64 { return rounded(ratios[int(share*float64(len(ratios)-1))]) }
	return profile.Range{Low: at(0.1), Likely: at(0.5), High: at(0.9)}
}

func rounded(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// off is the mean absolute logarithm of predicted over measured.
func off(rows []row, predict func(row) float64) float64 {
	sum := 0.0
	for _, r := range rows {
		sum += math.Abs(math.Log(predict(r) / r.seconds))
	}
	return sum / float64(len(rows))
}

// aligned and longestSum are what sums of models' products look like: a multiple of 16 bytes, which cuBLAS loads at once, and at most as long as in a
// feed-forward layer. Longer ones cost a P100 up to three times as much in this layout; gradients of weights, which have them, have another.
const aligned, longestSum = 4, 8192

// typical products have 0.5 GFLOP and more.
func typical(r row) bool {
	o := r.operation
	return o.FLOPs() > 5e8 && o.M*o.N > 16000 && o.K%aligned == 0 && o.K <= longestSum
}

// fitProducts finds the shares with which typical products come closest.
func fitProducts(rows []row, card kernel.Card) (kernel.Efficiency, profile.Range) {
	fitted, held := split(rows, typical)
	at := func(z []float64) func(row) float64 {
		e := efficiency(z)
		return func(r row) float64 { return e.Seconds(r.operation, card, card.FP32) }
	}
	start := []float64{0.7, 0.6, 0.5, 0.4, 0.3, 16, 0.7}
	best := search(start, func(z []float64) float64 { return off(fitted, at(z)) + implausible(z) })
	return efficiency(best), spread(held, at(best))
}

func efficiency(z []float64) kernel.Efficiency {
	return kernel.Efficiency{Tiles: [5]float64{rounded(z[0]), rounded(z[1]), rounded(z[2]), rounded(z[3]), rounded(z[4])}, Prologue: rounded(z[5]), Bandwidth: rounded(z[6])}
}

// implausible keeps shares below 1, and smaller tiles from reaching far more than larger ones.
func implausible(z []float64) float64 {
	penalty := 0.0
	for i := range 5 {
		penalty += 10 * max(0, math.Log(z[i]))
		if i > 0 {
			penalty += 2 * max(0, math.Log(z[i]/z[i-1])-0.2)
		}
	}
	return penalty + 10*max(0, math.Log(z[6]))
}

// search changes the numbers at random, in logarithms, and keeps what is better: its steps grow with success and shrink without.
func search(start []float64, loss func([]float64) float64) []float64 {
	const rounds, patience = 4, 900
	random := rand.New(rand.NewPCG(3, 4))
	best, least := slices.Clone(start), loss(start)
	for range rounds {
		width := 0.4
		for range patience {
			next := slices.Clone(best)
			for i := range next {
				if random.Float64() < 0.5 {
					next[i] *= math.Exp(width * random.NormFloat64())
				}
			}
			if now := loss(next); now < least {
				best, least, width = next, now, width*1.3
			} else {
				width = max(0.005, width*0.985)
			}
		}
	}
	return best
}
