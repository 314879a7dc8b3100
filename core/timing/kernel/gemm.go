package kernel

import "math"

// Efficiency is how well products run on one card: the share of the peak rate that a multiprocessor
// reaches inside tiles of five sizes, the k that a block's start and end are worth, and the share
// of the bandwidth.
type Efficiency struct {
	Tiles     [5]float64 `json:"tiles"` // 128×128, 128×64, 64×64, 128×32, 32×32
	Prologue  float64    `json:"prologue"`
	Bandwidth float64    `json:"bandwidth"`
}

// tiles are those in the names of cuBLAS's kernels, with the efficiency that each takes.
var tiles = []struct {
	m, n  float64
	share int
}{{128, 128, 0}, {128, 64, 1}, {64, 128, 1}, {64, 64, 2}, {128, 32, 3}, {32, 128, 3}, {32, 32, 4}}

// splits are into how many parts of k cuBLAS divides a product that has too few tiles for the card.
var splits = []float64{1, 2, 4, 8}

// partial is bytes of a partial sum of a divided product.
const partial = 4

// Seconds of a product is that of its best tile and split: blocks run in whole rounds over the
// multiprocessors, so that one tile too many costs a round. Without quantization, work divides
// evenly. It is never less than its bytes take. rate is FLOP/s at a share of 1.
func (e Efficiency) Seconds(o Operation, card Card, rate float64, quantized bool) float64 {
	batch, m, n, k := float64(o.Batch), float64(o.M), float64(o.N), float64(o.K)
	bytes := o.Bytes()
	if bytes == 0 {
		bytes = o.DType.size() * batch * (m*k + k*n + m*n)
	}
	moving := bytes / (card.Bandwidth * e.Bandwidth)
	best := math.Inf(1)
	if !quantized {
		for _, share := range e.Tiles {
			best = min(best, o.FLOPs()/(rate*share))
		}
		return max(best, moving)
	}
	for _, tile := range tiles {
		blocks := batch * math.Ceil(m/tile.m) * math.Ceil(n/tile.n)
		for _, split := range splits {
			rounds := math.Ceil(blocks * split / card.Multiprocessors)
			took := rounds * card.Multiprocessors * 2 * tile.m * tile.n * (k/split +
				e.Prologue) / (rate * e.Tiles[tile.share])
			if split > 1 {
				took += (split + 1) * batch * m * n * partial / (card.Bandwidth * e.Bandwidth)
			}
			best = min(best, took)
		}
	}
	return max(best, moving)
}

// scaled is the same with every tile's share times a factor, none above what a multiprocessor can
// do.
func (e Efficiency) scaled(factor float64) Efficiency {
	for i := range e.Tiles {
		e.Tiles[i] = min(e.Tiles[i]*factor, 1)
	}
	return e
}

// peak is the largest share of the rate that any tile reaches.
func (e Efficiency) peak() float64 {
	highest := 0.0
	for _, share := range e.Tiles {
		highest = max(highest, share)
	}
	return highest
}
