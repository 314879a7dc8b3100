package analytic

import (
	"math/bits"

	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// checkpointed plays a layer that transformers may recompute: forward keeps its input and further arguments only, and
// backward plays it again (torch/utils/checkpoint.py without reentrance, the Trainer's default). The layer reads its second
// argument by position, which is saved like the first, from beside; nil without one. Arguments by keyword stay as they are.
func (t *tracker) checkpointed(x value, beside *value, layer func(x value) value, keywords ...value) value {
	if !t.checkpointing || t.checkpointDepth > 0 {
		return layer(x)
	}
	t.layersSeen++
	if (t.layersSeen-1)%max(1, t.everyN) != 0 {
		return layer(x)
	}
	given := []value{x}
	if beside != nil {
		given = append(given, *beside)
	}
	if t.offload {
		t.toHost(given...)
	}
	t.checkpointDepth++
	y := layer(x)
	t.checkpointDepth--
	y.node = none
	var n *node
	t.unfrozen(func() { n = t.graph(multiplying, "checkpoint", &y, y.grad, x) })
	if n == nil {
		return y
	}
	n.replay = func() value { return layer(x) }
	if t.offload {
		n.replay = func() value { return t.fromHost(x, beside, layer) }
		given = nil
	}
	given = append(given, keywords...)
	t.save(n, given...)
	for _, v := range given {
		t.storages[v.at].shared = v.at != x.at
	}
	return y
}

// toHost copies values into pinned host memory, of which each takes a power of two (aten/src/ATen/core/CachingHostAllocator.h).
func (t *tracker) toHost(values ...value) {
	for _, v := range values {
		t.drop(t.contiguous(v)) // which a copy to the host needs (aten/src/ATen/native/cuda/Copy.cu)
		t.transfers(v)
		t.pinned += t.workRepeats << bits.Len64(uint64(v.bytes())-1)
	}
}

// fromHost plays a layer again, on copies of what lies on the host (torch.autograd.graph.save_on_cpu).
func (t *tracker) fromHost(x value, beside *value, layer func(x value) value) value {
	back := func(v value) value {
		here := t.fresh("copy from the host", v.shape, v.kind, "torch.autograd.graph.save_on_cpu")
		here.node, here.grad = v.node, v.grad
		t.transfers(here)
		return here
	}
	here := back(x)
	if beside == nil {
		y := layer(here)
		t.drop(here)
		return y
	}
	there := *beside
	*beside = back(there)
	y := layer(here)
	t.drop(here, *beside)
	*beside = there
	return y
}

// transfers records a copy between the device and the host.
func (t *tracker) transfers(v value) {
	p := t.pass
	if p == recomputed { // whatever of the layer is needed
		p = backward
	}
	t.operateIn(p, kernel.Operation{Name: "offloaded checkpoint", Kind: kernel.Transfer, DType: t.unit(v.kind), Read: v.bytes(), Written: v.bytes(), Kernels: 1})
}
