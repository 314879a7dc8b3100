package kernel

import "math"

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

// uniformShare replaces all classes in the ablation.
const uniformShare = 1.0

// moving is the time of an operation's bytes: at a share of the bandwidth by its class, faster
// where they stay in the L2 cache, and slower where the multiprocessors cannot issue as many
// elements as the memory delivers, which 16-bit tensors on fast memory come to.
func (m *Model) moving(o Operation) float64 {
	bandwidth := m.card.Bandwidth * m.share(o)
	if m.card.Bandwidth > fastMemory && !m.without.NoBandwidthClasses {
		bandwidth *= fastMemoryShare
	}
	if !m.without.NoL2 && o.Bytes() < cachedPart*m.card.L2 {
		bandwidth *= cacheGain
	}
	loading := o.Bytes() / bandwidth
	if m.without.NoIssue {
		return loading
	}
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
	if m.without.NoBandwidthClasses {
		return uniformShare
	}
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
