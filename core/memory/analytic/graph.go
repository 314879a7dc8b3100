package analytic

// The graph that autograd builds during the forward pass.

const (
	maxSaved   = 8
	maxEdges   = 6
	maxScratch = 2
)

// edge is one gradient that a node hands back.
type edge struct {
	to   int32 // node that made the input; none for a parameter
	row  int32 // of the gradient; none: the incoming gradient itself is handed on
	part part  // gradients for a parameter's first
}

// node is one operation of the graph: what it saved, and the gradients that its backward makes.
type node struct {
	op         string
	does       *activity
	module     string
	grad       int32 // gradient of the output, gathered so far; none before the first
	saved      [maxSaved]int32
	edges      [maxEdges]edge
	savedCount uint8
	edgeCount  uint8
	replay     func() value

	scratch             [maxScratch]edge // what backward takes temporarily, one after the other; without receivers
	scratchCount        uint8
	work                int32 // row of the workspace that follows each of the first gradients; none
	working             uint8 // how many these are
	savedCopy, gradCopy int32 // rows of contiguous copies of the saved input and of the gradient, which backward makes first; none
}

// graph records what ran, and starts the node of an operation that made y of x; nil where no gradient will flow, or nothing is saved.
// The operation's own parameters count with trains.
func (t *tracker) graph(does *activity, op string, y *value, trains bool, x ...value) *node {
	t.runs(does, op, *y, x)
	y.grad = trains && !t.fixed()
	for _, each := range x {
		y.grad = y.grad || each.grad
	}
	if !y.grad || t.checkpointDepth > 0 {
		return nil
	}
	t.nodes = append(t.nodes, node{op: op, does: does, module: t.module, grad: none, work: none, savedCopy: none, gradCopy: none})
	y.node = int32(len(t.nodes) - 1)
	return &t.nodes[y.node]
}

// save keeps values for the node's backward.
func (t *tracker) save(n *node, values ...value) {
	if n == nil {
		return
	}
	t.needed()
	for _, v := range values {
		t.keep(v.at)
		n.saved[n.savedCount] = v.at
		n.savedCount++
	}
}

func (n *node) addEdge(e edge) {
	n.edges[n.edgeCount] = e
	n.edgeCount++
}

// gradientsFor says that the node makes gradients of its own for its inputs.
func (t *tracker) gradientsFor(n *node, inputs ...value) {
	if n == nil {
		return
	}
	for _, x := range inputs {
		if x.grad {
			n.addEdge(edge{to: x.node, row: t.rowFor(n.op, backward, x.shape, x.kind, ""), part: temporaries})
		}
	}
}

// passGradient says that the node hands its gradient on to x, in a cast when x has another type.
func (t *tracker) passGradient(n *node, x value, from dtype) {
	switch {
	case n == nil || !x.grad:
	case x.kind != from:
		t.gradientsFor(n, x)
	default:
		n.addEdge(edge{to: x.node, row: none})
	}
}

// parameterGradients is the row of gradients that stay.
const parameterGradients = "parameter gradients"

// leaf says that the node makes the gradients of parameters of these shapes.
func (t *tracker) leaf(n *node, shapes ...shape) {
	if n == nil || t.fixed() {
		return
	}
	for _, s := range shapes {
		r := t.rowFor(parameterGradients, backward, s, float32s, "one for each trained parameter")
		t.largestParameter = max(t.largestParameter, t.rows[r].key.bytes)
		t.trainedParameters += s.elements() * t.workRepeats
		t.trainedTensors += t.workRepeats
		n.addEdge(edge{to: none, row: r, part: gradients})
	}
}

// leafAgain says that the node makes a further gradient of a parameter that has one already: it is added and gone.
func (t *tracker) leafAgain(n *node, s shape) {
	t.leaf(n, s)
	if n != nil && !t.fixed() {
		n.edges[n.edgeCount-1].part = temporaries
		t.trainedParameters -= s.elements() * t.workRepeats
		t.trainedTensors -= t.workRepeats
	}
}

// takesScratch says that the node's backward takes memory temporarily, besides its results.
func (t *tracker) takesScratch(n *node, what string, s shape, source string) {
	if n != nil {
		n.addScratch(edge{row: t.rowFor(what, scratch, s, float32s, source), part: temporaries})
	}
}

// works says that each gradient so far is made with a workspace.
func (n *node) works(row int32) {
	if n != nil {
		n.work, n.working = row, n.edgeCount
	}
}

func (n *node) addScratch(e edge) {
	n.scratch[n.scratchCount] = e
	n.scratchCount++
}
