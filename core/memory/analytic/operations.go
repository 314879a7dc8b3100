package analytic

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// operations are those of a micro-batch, equal ones together.
type operations struct {
	list []kernel.Operation
	next []int32          // of each, the one before it with its hash; none
	last map[uint64]int32 // by hash
}

func newOperations() *operations {
	return &operations{make([]kernel.Operation, 0, 320), make([]int32, 0, 320), make(map[uint64]int32, 320)}
}

func (o *operations) add(operation kernel.Operation, times float64) {
	hash := hashOf(operation)
	last, known := o.last[hash]
	if !known {
		last = none
	}
	for i := last; i != none; i = o.next[i] {
		operation.Times = o.list[i].Times
		if o.list[i] == operation {
			o.list[i].Times += times
			return
		}
	}
	operation.Times = times
	o.last[hash] = int32(len(o.list))
	o.list, o.next = append(o.list, operation), append(o.next, last)
}

// hashOf is quick where a map's own hash of all the strings takes longer than the play: sizes tell nearly all operations apart.
func hashOf(o kernel.Operation) uint64 {
	hash := uint64(len(o.Name))
	for _, x := range [...]uint64{uint64(len(o.Phase)), uint64(o.M), uint64(o.N), uint64(o.K), math.Float64bits(o.Read), math.Float64bits(o.Written)} {
		hash = (hash ^ x) * 0x9e3779b97f4a7c15
		hash ^= hash >> 32
	}
	return hash
}

// activity is what the kernels of an operation do, and those of its backward pass: how many there are, and how often they go over what they read and write.
type activity struct {
	forward  kernel.Kind
	backward kernel.Activity
}

var (
	multiplying = &activity{} // recorded by multiply and attendFused
	elementwise = &activity{kernel.Elementwise, kernel.Once(kernel.Elementwise)}
	copying     = &activity{kernel.Copy, kernel.Once(kernel.Copy)}
	reducing    = &activity{kernel.Reduction, kernel.Once(kernel.Elementwise)}
	gathering   = &activity{kernel.Gather, kernel.EmbeddingGradient}
	normalizing = &activity{kernel.Normalization, kernel.NormGradient}

	softening    = &activity{kernel.Softmax, kernel.SoftmaxGradient}
	logSoftening = &activity{kernel.Softmax, kernel.Once(kernel.Softmax)}
)

// bytes of a value's elements.
func (v value) bytes() float64 { return float64(v.shape.elements() * v.kind.bytes()) }

// passPhases are the phases of a step by pass.
var passPhases = [...]kernel.Phase{forward: kernel.Forward, recomputed: kernel.Recomputation, backward: kernel.Backward}

// unit is the type of a kernel. Masks and indices count as the type of about their size.
func (t *tracker) unit(d dtype) kernel.DType {
	switch {
	case d == halves && t.bfloat:
		return kernel.BFloat16
	case d == halves || d == bools:
		return kernel.Float16
	}
	return kernel.Float32
}

// multiplied is the type in which a product runs: float32 goes to the tensor cores where they have TF32, which a plan turns on.
func (t *tracker) multiplied(d dtype) kernel.DType {
	if d != halves && t.gpu.ampere() {
		return kernel.TF32
	}
	return t.unit(d)
}

// operate records an operation of the pass at work.
func (t *tracker) operate(o kernel.Operation) { t.operateIn(t.pass, o) }

func (t *tracker) operateIn(p pass, o kernel.Operation) {
	t.made = 0
	if t.recorded == nil {
		return
	}
	o.Phase, o.Times = passPhases[p], float64(t.workRepeats)*t.kept
	if p == recomputed {
		t.unsaved = append(t.unsaved, o)
		return
	}
	t.recorded.add(o, o.Times)
}

// needed records what was recomputed up to here, since something of it is saved. Behind the last tensor that backward needs,
// recomputation ends (torch/utils/checkpoint.py, early stop).
func (t *tracker) needed() {
	for _, o := range t.unsaved {
		t.recorded.add(o, o.Times)
	}
	t.unsaved = t.unsaved[:0]
}

// runs records the forward kernel that made y of x, and whatever else was made since the one before; a view makes nothing.
func (t *tracker) runs(a *activity, what string, y value, x []value) {
	if t.recorded == nil || a == multiplying || t.made == 0 {
		return
	}
	o := kernel.Operation{Name: what, Kind: a.forward, DType: t.unit(y.kind), Written: float64(t.made), Kernels: 1}
	for _, each := range x {
		o.Read += each.bytes()
	}
	if a.forward == kernel.Softmax {
		o.Row = y.shape.last().n
	}
	t.operate(o)
}

// runsBackward records a node's kernels: they read the gradient and what was saved, and wrote what was made.
func (t *tracker) runsBackward(n *node) {
	if t.recorded == nil || n.does == multiplying || t.made == 0 {
		t.made = 0
		return
	}
	gradient, a := &t.storages[n.grad], n.does.backward
	o := kernel.Operation{Name: n.op, Kind: a.Kind, DType: t.unit(t.rows[gradient.row].kind), Written: float64(a.Writes * t.made), Kernels: a.Kernels}
	read := gradient.bytes
	for _, at := range n.saved[:n.savedCount] {
		if at != none {
			read += t.storages[at].bytes
		}
	}
	o.Read = float64(a.Reads * read)
	if a.Kind == kernel.Softmax {
		o.Row = t.rows[gradient.row].shape.last().n
	}
	t.operate(o)
}

// copies records a kernel that reads and writes about as many bytes: in another layout, type or place.
func (t *tracker) copies(kind kernel.Kind, what string, d dtype, read float64) {
	t.operate(kernel.Operation{Name: what, Kind: kind, DType: t.unit(d), Read: read, Written: float64(t.made), Kernels: 1})
}

// product is batch times m×k by k×n.
type product struct {
	kind           kernel.Kind
	batch, m, n, k int64
}

// multiply records a product now and, where a node will run it backward, a further one for each operand with a gradient.
func (t *tracker) multiply(n *node, what string, p product, left, right, y value) {
	if t.recorded == nil {
		return
	}
	o := kernel.Operation{Name: what, Kind: p.kind, DType: t.multiplied(left.kind), Batch: p.batch, M: p.m, N: p.n, K: p.k,
		Read: left.bytes() + right.bytes(), Written: y.bytes(), Kernels: 1}
	t.operate(o)
	if n == nil {
		return
	}
	if left.grad {
		o.M, o.N, o.K, o.Read, o.Written = p.m, p.k, p.n, y.bytes()+right.bytes(), left.bytes()
		t.operateIn(backward, o)
	}
	if right.grad {
		o.M, o.N, o.K, o.Read, o.Written = p.k, p.n, p.m, y.bytes()+left.bytes(), right.bytes()
		t.operateIn(backward, o)
	}
}

// sumBias records the gradient of a bias, which sums that of the result.
func (t *tracker) sumBias(n *node, what string, y, bias value) {
	if n != nil && bias.grad {
		t.operateIn(backward, kernel.Operation{Name: what + " bias", Kind: kernel.Reduction, DType: t.unit(y.kind), Read: y.bytes(), Written: bias.bytes(), Kernels: 1})
	}
}

// attendFused records fused attention; scratch is bytes that its backward pass writes beside the gradients.
func (t *tracker) attendFused(n *node, what string, h heads, scratch float64, q, k, v, y value, masks []value) {
	operands := q.bytes() + k.bytes() + v.bytes()
	o := kernel.Operation{Name: what, Kind: kernel.Attention, DType: t.multiplied(q.kind), Batch: q.shape[0].n * h.n.n, M: h.queries.n, N: h.keys.n, K: h.size.n,
		Read: operands, Written: float64(t.made), Kernels: 1}
	for _, mask := range masks {
		o.Read += mask.bytes()
	}
	t.operate(o)
	if n != nil {
		o.Read, o.Written, o.Kernels = o.Read+2*y.bytes(), operands+scratch, kernel.FusedAttentionGradient.Kernels
		t.operateIn(backward, o)
	}
}
