package analytic

const (
	maxSaved = 8
	maxEdges = 6
)

// edge is one gradient that a node hands back.
type edge struct {
	to   int32 // node that made the input; none for a parameter
	row  int32 // of the gradient; none: the incoming gradient itself is handed on
	part part
}

// node is one operation of the graph: what it saved, and the gradients that its backward makes.
type node struct {
	op     string
	place  string
	grad   int32 // gradient of the output, gathered so far; none before the first
	saved  [maxSaved]int32
	edges  [maxEdges]edge
	saves  uint8
	leads  uint8
	extra  int32 // row of memory that backward needs for the moment; none
	replay func() value
}

// block is a stretch of nodes that stands for several equal ones in a row.
type block struct {
	from, to int
	times    int64
}

// graph starts the node of an operation that made y; nil where no gradient will flow or nothing is saved.
func (t *tape) graph(op string, y *value, from ...*value) *node {
	for _, x := range from {
		y.grad = y.grad || x.grad
	}
	if !y.grad || t.quiet > 0 {
		return nil
	}
	t.nodes = append(t.nodes, node{op: op, place: t.place, grad: none, extra: none})
	y.node = int32(len(t.nodes) - 1)
	return &t.nodes[y.node]
}

// save keeps values for the node's backward.
func (t *tape) save(n *node, values ...value) {
	if n == nil {
		return
	}
	for _, v := range values {
		t.keep(v.at)
		n.saved[n.saves] = v.at
		n.saves++
	}
}

// back says that the node makes a gradient of its own for x.
func (t *tape) back(n *node, x value) {
	if n == nil || !x.grad {
		return
	}
	n.edges[n.leads] = edge{to: x.node, row: t.gradientRow("gradient of "+n.op+" input", x.shape, x.kind), part: temporaries}
	n.leads++
}

// pass says that the node hands its gradient on to x, cast when x has another type.
func (t *tape) pass(n *node, x value, from dtype) {
	switch {
	case n == nil || !x.grad:
	case x.kind != from:
		t.back(n, x)
	default:
		n.edges[n.leads] = edge{to: x.node, row: none}
		n.leads++
	}
}

// leaf says that the node makes the gradient of a parameter, which stays.
func (t *tape) leaf(n *node, s shape) {
	if n == nil {
		return
	}
	r := t.gradientRow("parameter gradients", s, float32s)
	t.widest = max(t.widest, t.rows[r].key.bytes)
	n.edges[n.leads] = edge{to: none, row: r, part: gradients}
	n.leads++
}

// leafAgain says that the node makes a further gradient of a parameter that has one already: it is added and gone.
func (t *tape) leafAgain(n *node, s shape) {
	t.leaf(n, s)
	if n != nil {
		n.edges[n.leads-1].part = temporaries
	}
}

// needs says that the node's backward takes memory for the moment, beside its results.
func (t *tape) needs(n *node, what string, s shape, d dtype) {
	if n != nil {
		n.extra = t.gradientRow(what, s, d)
	}
}

// gradientRow is a row of the backward pass, whenever it is asked for.
func (t *tape) gradientRow(what string, s shape, d dtype) int32 {
	before := t.backward
	t.backward = true
	r := t.rowFor(what, s, d, "")
	t.backward = before
	return r
}

// repeat plays n equal layers. The first and the last are played; one between them stands for all the others, since
// each adds the same, in both directions.
func (t *tape) repeat(n int, layer func(i int)) {
	for i := range min(n, 3) {
		times := int64(1)
		if n > 3 && i == 1 {
			times = int64(n - 2)
		}
		from := len(t.nodes)
		t.standing(times, func() { layer(i) })
		t.blocks = append(t.blocks, block{from, len(t.nodes), times})
	}
}

// standing plays a stretch once and counts it as often as asked: what it adds is added that often, and the highest moment
// is that of the first or of the last.
func (t *tape) standing(times int64, play func()) {
	if times == 1 {
		play()
		return
	}
	outer, inner := t.window, &window{}
	outer.settle(&t.live)
	var grown account
	grown.add(&t.live, -1)
	t.window, t.times = inner, times
	play()
	t.times = 1
	inner.settle(&t.live)
	grown.add(&t.live, 1)
	t.live.add(&grown, times-1)
	for _, at := range t.once {
		s := t.storages[at]
		t.count(s.row, s.part, (times-1)*s.bytes)
	}
	t.once = t.once[:0]
	outer.consider(inner, &grown, 0)
	outer.consider(inner, &grown, times-1)
	t.window = outer
}

// checkpointed plays a layer that transformers may recompute: forward keeps its input and further arguments only, and
// backward plays it again. torch/utils/checkpoint.py, without reentrance, which is the Trainer's default.
func (t *tape) checkpointed(x value, layer func(x value) value, arguments ...value) value {
	if !t.checkpointing || t.quiet > 0 {
		return layer(x)
	}
	t.quiet++
	y := layer(x)
	t.quiet--
	y.node = none
	n := t.graph("checkpoint", &y, &x)
	if n != nil {
		t.save(n, x)
		t.save(n, arguments...)
		for _, a := range arguments {
			t.storages[a.at].shared = true
		}
		n.replay = func() value { return layer(x) }
	}
	return y
}
