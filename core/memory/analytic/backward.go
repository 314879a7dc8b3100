package analytic

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// runBackward walks the graph from the loss to the inputs, last operation first, as autograd's engine does.
func (t *tracker) runBackward(loss value) {
	t.pass, t.module = backward, "head"
	t.drop(loss)
	t.nodes[loss.node].grad = t.allocate("gradient of the loss", of(dim{"loss", 1}), float32s, temporaries, "")
	end := len(t.nodes)
	for i := len(t.blocks) - 1; i >= 0; i-- {
		b := t.blocks[i]
		t.walk(b.to, end)
		t.playedAs(b, func() { t.walk(b.from, b.to) })
		end = b.from
	}
	t.walk(0, end)
	t.highest.copyPending(&t.live)
	t.nodes, t.blocks, t.pass, t.layersSeen = t.nodes[:0], t.blocks[:0], forward, 0
}

func (t *tracker) walk(from, to int) {
	for i := to - 1; i >= from; i-- {
		t.apply(i)
	}
}

// apply runs one node: its results are made, its input and what it saved go, and the results move on
// (torch/csrc/autograd/engine.cpp, Engine::evaluate_function).
func (t *tracker) apply(i int) {
	n := t.nodes[i] // a copy: playing a layer again adds nodes
	t.module = n.module
	switch {
	case n.grad == none:
		t.releaseSaved(&n)
		return
	case n.replay != nil:
		t.recompute(&n)
		return
	}
	var made [maxEdges]int32
	t.made = 0
	in, grad := t.copied(&n, n.savedCopy), t.copied(&n, n.gradCopy)
	for j, e := range n.edges[:n.edgeCount] {
		made[j] = t.gradient(&n, e)
		if n.work != none && j < int(n.working) {
			t.release(t.allocateRow(n.work, workspaces, n.module, n.op+" backward"))
		}
	}
	t.release(grad)
	for _, e := range n.scratch[:n.scratchCount] {
		at := t.allocateRow(e.row, e.part, n.module, n.op+" backward")
		if e.part != workspaces {
			t.made += t.storages[at].bytes
		}
		t.release(at)
	}
	t.runsBackward(&n)
	t.release(in)
	t.release(n.grad)
	t.releaseSaved(&n)
	for j, e := range n.edges[:n.edgeCount] {
		t.accumulate(e, made[j])
	}
}

// copied is a contiguous copy that a node makes before its results.
func (t *tracker) copied(n *node, row int32) int32 {
	if row == none {
		return none
	}
	at := t.produce(row, temporaries, n.module, n.op+" backward")
	t.copies(kernel.Copy, contiguousCopy, t.rows[row].kind, float64(t.made))
	return at
}

func (t *tracker) releaseSaved(n *node) {
	for _, at := range n.saved[:n.savedCount] {
		t.release(at)
	}
}

func (t *tracker) gradient(n *node, e edge) int32 {
	if e.row == none {
		t.retain(n.grad)
		return n.grad
	}
	p := e.part
	if t.accumulating {
		p = temporaries
	}
	return t.produce(e.row, p, n.module, n.op+" backward")
}

// accumulate adds a gradient to what its receiver has so far, in place when nobody else looks at that
// (torch/csrc/autograd/input_buffer.cpp, accumulate), and to a parameter's .grad, which takes the first as it is.
func (t *tracker) accumulate(e edge, made int32) {
	switch {
	case e.to == none && e.part == gradients && !t.accumulating:
		t.trained = append(t.trained, made)
		return
	case e.to == none:
		t.release(made)
		return
	}
	to := &t.nodes[e.to]
	if to.grad == none {
		to.grad = made
		return
	}
	s := t.storages[to.grad]
	t.operate(kernel.Operation{Name: "sum of gradients", Kind: kernel.Elementwise, DType: t.unit(t.rows[s.row].kind), Read: 2 * float64(s.bytes), Written: float64(s.bytes), Kernels: 1})
	if s.refs > 1 {
		sum := t.allocateRow(s.row, temporaries, to.module, "sum of gradients")
		t.release(to.grad)
		to.grad = sum
	}
	t.release(made)
}

// recompute plays a checkpointed layer again, now saving, and walks it. Its autocast context ends with it.
func (t *tracker) recompute(n *node) {
	from, kept, times := len(t.nodes), len(t.cache), t.repeats
	t.pass, t.repeats = recomputed, 1
	made := n.replay()
	t.unsaved = t.unsaved[:0]
	t.endAutocast(kept)
	t.drop(made)
	t.pass, t.repeats = backward, times
	last := &t.nodes[made.node]
	last.grad, last.gradCopy = n.grad, n.gradCopy
	t.walk(from, len(t.nodes))
	t.nodes = t.nodes[:from]
	t.releaseSaved(n)
}
