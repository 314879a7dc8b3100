package analytic

// runBackward walks the graph from the loss to the inputs, last operation first, as autograd's engine does.
func (t *tape) runBackward(loss value) {
	t.moment, t.place = backward, "head"
	t.drop(loss)
	t.nodes[loss.node].grad = t.standing("gradient of the loss", of(dim{"loss", 1}), float32s, temporaries, "")
	end := len(t.nodes)
	for i := len(t.blocks) - 1; i >= 0; i-- {
		b := t.blocks[i]
		t.walk(b.to, end)
		t.multiplied(b.times, func() { t.walk(b.from, b.to) })
		end = b.from
	}
	t.walk(0, end)
	t.window.settle(&t.live)
	t.nodes, t.blocks, t.moment = t.nodes[:0], t.blocks[:0], forward
}

func (t *tape) walk(from, to int) {
	for i := to - 1; i >= from; i-- {
		t.apply(i)
	}
}

// apply runs one node: its results are made, its input and what it saved go, and the results move on
// (torch/csrc/autograd/engine.cpp, Engine::evaluate_function).
func (t *tape) apply(i int) {
	n := t.nodes[i] // a copy: playing a layer again adds nodes
	t.place = n.place
	switch {
	case n.grad == none:
		t.forget(&n)
		return
	case n.replay != nil:
		t.recompute(&n)
		return
	}
	var made [maxEdges]int32
	in, grad := t.copied(&n, n.inCopy), t.copied(&n, n.gradCopy)
	for j, e := range n.edges[:n.leads] {
		made[j] = t.gradient(&n, e)
	}
	t.release(grad)
	for _, e := range n.passing[:n.passes] {
		t.release(t.birth(e.row, e.part, n.place, n.op+" backward"))
	}
	t.release(in)
	t.release(n.grad)
	t.forget(&n)
	for j, e := range n.edges[:n.leads] {
		t.deliver(e, made[j])
	}
}

// copied is a contiguous copy that a node makes before its results.
func (t *tape) copied(n *node, row int32) int32 {
	if row == none {
		return none
	}
	return t.birth(row, temporaries, n.place, n.op+" backward")
}

func (t *tape) forget(n *node) {
	for _, at := range n.saved[:n.saves] {
		t.reads(at)
		t.release(at)
	}
}

func (t *tape) gradient(n *node, e edge) int32 {
	if e.row == none {
		t.retain(n.grad)
		return n.grad
	}
	p := e.part
	if t.accumulating {
		p = temporaries
	}
	return t.birth(e.row, p, n.place, n.op+" backward")
}

// deliver adds a gradient to what its receiver has so far, in place when nobody else looks at that
// (torch/csrc/autograd/input_buffer.cpp, accumulate), and to a parameter's .grad, which takes the first as it is.
func (t *tape) deliver(e edge, made int32) {
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
	if s := t.storages[to.grad]; s.refs > 1 {
		sum := t.birth(s.row, temporaries, to.place, "sum of gradients")
		t.release(to.grad)
		to.grad = sum
	}
	t.release(made)
}

// recompute plays a checkpointed layer again, now saving, and walks it. Its autocast context ends with it.
func (t *tape) recompute(n *node) {
	from, kept, times := len(t.nodes), len(t.cache), t.times
	t.moment, t.times = recomputed, 1
	made := n.replay()
	t.endAutocast(kept)
	t.drop(made)
	t.moment, t.times = backward, times
	last := &t.nodes[made.node]
	last.grad, last.gradCopy = n.grad, n.gradCopy
	t.walk(from, len(t.nodes))
	t.nodes = t.nodes[:from]
	t.forget(n)
}
