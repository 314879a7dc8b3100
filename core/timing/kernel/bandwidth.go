package kernel

import (
	"math"
	"slices"
)

// Classes of the fitted shares of the bandwidth.
const (
	classElementwise   = "elementwise"
	classSoftmaxShort  = "softmax_1024" // rows of up to 1024 elements, one warp each
	classSoftmaxLong   = "softmax"
	classNormalization = "normalization"
)

// longestWarpRow is where PyTorch's softmax changes from a warp to a block for each row
// (aten/src/ATen/native/cuda/SoftMax.cu).
const longestWarpRow = 1024

// shares are what kernels without operator tables reach of the elementwise bandwidth: chosen on the
// forward and backward times of single layers that are published with the points of
// transformers_fp32.json. [dev]
var shares = map[Kind]float64{
	Optimizer: 1, Broadcast: 0.68, Copy: 0.88, Reduction: 0.7, Gather: 0.5, NormBackward: 0.72,
	Attention: 1, GEMM: 1, Convolution: 1,
}

// moving is the time of an operation's bytes: at a share of the bandwidth by its class, faster
// where they stay in the L2 cache, and slower where the multiprocessors cannot issue as many
// elements as the memory delivers, which 16-bit tensors on fast memory come to.
func (m *Model) moving(o Operation) float64 {
	bandwidth := m.card.Bandwidth * m.share(o)
	if m.card.Bandwidth > fastMemory {
		bandwidth *= fastMemoryShare
	}
	if o.Bytes() < cachedPart*m.card.L2 {
		bandwidth *= cacheGain
	}
	loading := o.Bytes() / bandwidth
	issuing := o.Bytes() / (2 * o.DType.size()) / (m.card.cycles() * elementsPerCycle)
	return math.Cbrt(loading*loading*loading + issuing*issuing*issuing)
}

// elementsPerCycle is how many elements an elementwise kernel reads and writes in a cycle of one
// multiprocessor. [dev]
const elementsPerCycle = 3.4

// Memory of more than fastMemory bytes/s reaches less of its published bandwidth than that of the
// fitted cards: elementwise kernels of an A100-80GB 79 %, of an A100-40GB 90 % (single layers of
// transformers_fp32.json's source). [dev]
const fastMemory, fastMemoryShare = 1.7e12, 0.87

// cachedPart of the L2 cache is what one operation finds there of the one before.
const cachedPart = 0.5

// cacheGain is how many times the bandwidth of the memory the L2 cache has: 2.2 on P100, 2.4 on
// V100 and 4.0 on T4 when read (Jia et al., arXiv 1804.06826 and 1903.07486). The operator tables
// cannot show it: what fits into the cache finishes before the CPU launches the next kernel.
const cacheGain = 2.5

// share of the published bandwidth. A kind without a rule moves its bytes at the slowest one.
func (m *Model) share(o Operation) float64 {
	if class := o.class(); class != "" {
		return m.memory.Bandwidth[class]
	}
	relative, ok := shares[o.Kind]
	if !ok {
		relative = shares[Gather]
	}
	return m.memory.Bandwidth[classElementwise] * relative
}

// class is the operator table that an operation belongs to; "" for none.
func (o Operation) class() string {
	switch o.Kind {
	case Elementwise:
		return classElementwise
	case Softmax:
		if o.Row <= longestWarpRow {
			return classSoftmaxShort
		}
		return classSoftmaxLong
	case Normalization:
		return classNormalization
	}
	return ""
}

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
// multiprocessors, so that one tile too many costs a round. It is never less than its bytes take.
// rate is FLOP/s at a share of 1.
func (e Efficiency) Seconds(o Operation, card Card, rate float64) float64 {
	batch, m, n, k := float64(o.Batch), float64(o.M), float64(o.N), float64(o.K)
	bytes := o.Bytes()
	if bytes == 0 {
		bytes = o.DType.size() * batch * (m*k + k*n + m*n)
	}
	moving := bytes / (card.Bandwidth * e.Bandwidth)
	best := math.Inf(1)
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
func (e Efficiency) peak() float64 { return slices.Max(e.Tiles[:]) }
