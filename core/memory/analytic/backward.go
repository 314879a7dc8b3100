package analytic

// runBackward walks the graph from the loss to the inputs, last operation first, as autograd's engine does.
func (t *tape) runBackward(loss value) {
	t.backward = true
	t.drop(loss)
	t.nodes[loss.node].grad = t.birth("gradient of the loss", of(dim{"loss", 1}), float32s, temporaries, "")
	next := len(t.blocks) - 1
	for end := len(t.nodes); end > 0; {
		for next >= 0 && t.blocks[next].from >= end {
			next--
		}
		if next >= 0 && t.blocks[next].to == end {
			b := t.blocks[next]
			next--
			t.standing(b.times, func() { t.walk(b.from, b.to) })
			end = b.from
			continue
		}
		end--
		t.apply(end)
	}
	t.window.settle(&t.live)
}

func (t *tape) walk(from, to int) {
	for i := to - 1; i >= from; i-- {
		t.apply(i)
	}
}

// apply runs one node: its results are made, its inputs and what it saved go, and the results move on.
// torch/csrc/autograd/engine.cpp, Engine::evaluate_function.
func (t *tape) apply(i int) {
	n := t.nodes[i] // a copy: replaying adds nodes
	if n.grad == none {
		t.forget(&n)
		return
	}
	t.place = n.place
	if n.replay != nil {
		t.recompute(&n)
		return
	}
	var made [maxEdges]int32
	for j := range n.leads {
		made[j] = t.gradient(&n, n.edges[j])
	}
	if n.extra != none {
		t.release(t.again(n.extra, temporaries, n.op))
	}
	t.release(n.grad)
	t.forget(&n)
	for j := range n.leads {
		t.deliver(n.edges[j], made[j])
	}
}

func (t *tape) forget(n *node) {
	for j := range n.saves {
		t.release(n.saved[j])
	}
}

func (t *tape) gradient(n *node, e edge) int32 {
	if e.row == none {
		t.retain(n.grad)
		return n.grad
	}
	p := e.part
	if p == gradients && t.accumulating {
		p = temporaries
	}
	return t.again(e.row, p, n.op)
}

// again makes a storage of a known row.
func (t *tape) again(r int32, p part, op string) int32 {
	bytes := t.rows[r].key.bytes
	t.storages = append(t.storages, storage{bytes: bytes, refs: 1, row: r, part: p})
	t.count(r, p, bytes)
	if w := t.window; t.live.total > w.peak.total {
		w.peak.total, w.rising, w.place, w.op = t.live.total, true, t.place, op+" backward"
	}
	return int32(len(t.storages) - 1)
}

// deliver adds a gradient to what its receiver has so far, in place when nobody else looks at that
// (torch/csrc/autograd/input_buffer.cpp, accumulate), and to a parameter's .grad, which takes the first as it is.
func (t *tape) deliver(e edge, made int32) {
	if e.to == none {
		if e.part != gradients || t.accumulating {
			t.release(made)
		}
		return
	}
	to := &t.nodes[e.to]
	if to.grad == none {
		to.grad = made
		return
	}
	if t.storages[to.grad].refs > 1 {
		s := t.storages[to.grad]
		sum := t.again(s.row, temporaries, "sum")
		t.release(to.grad)
		to.grad = sum
	}
	t.release(made)
}

// recompute plays a checkpointed layer again, now saving, and walks it.
func (t *tape) recompute(n *node) {
	from, kept := len(t.nodes), len(t.cache)
	outer := t.times
	t.times = 1 // its autocast context ends right here
	made := n.replay()
	t.endAutocast(kept)
	t.times = outer
	t.drop(made)
	t.nodes[made.node].grad = n.grad
	t.walk(from, len(t.nodes))
	t.nodes = t.nodes[:from]
	t.forget(n)
}
