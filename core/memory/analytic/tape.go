package analytic

// tape plays one training step of a model, forward and backward, the way PyTorch's autograd runs it, and counts the
// bytes that live after each operation. A storage lives while something refers to it: a variable of the model's code, a
// node of the graph that saved it for backward, autocast's cache, or a gradient on its way. Nothing is computed.
type tape struct {
	settings
	frozen bool  // the parameters at work do not train
	widest int64 // bytes of the largest trained parameter

	storages []storage
	nodes    []node
	blocks   []block
	rows     []row
	rowOf    map[rowKey]int32
	live     account
	window   *window
	place    string // the part of the model at work
	quiet    int    // inside a checkpointed forward, where nothing is saved
	backward bool
	cache    []cached // 16-bit copies of parameters that autocast keeps until its context ends
	times    int64    // how many equal layers the one at work stands for
	once     []int32  // storages that went during such a layer, though all of them shared it
	held     []value  // variables of the model's code that live as long as the forward pass
	results  []value  // what the model gives back, beside the logits
	logits   value
}

type storage struct {
	bytes  int64
	refs   int32
	row    int32
	part   part
	shared bool // by equal layers: it goes once, with the last of them
}

// cached is a storage that autocast keeps, for as many layers as the one that made it stands for.
type cached struct {
	at    int32
	times int64
}

// none stands for no storage and for no node.
const none = -1

// nothing is a value that is not there.
var nothing = value{at: none, node: none}

// value is a tensor as the model's code holds it: a view of a storage, the node that made it, and whether a gradient
// will come back for it.
type value struct {
	at    int32
	node  int32
	grad  bool
	shape shape
	kind  dtype
}

func newTape(set settings) *tape {
	return &tape{settings: set, rowOf: make(map[rowKey]int32, 256), storages: make([]storage, 0, 1024),
		nodes: make([]node, 0, 512), rows: make([]row, 0, 256), window: &window{}, times: 1}
}

// rowFor finds or makes the row of a storage.
func (t *tape) rowFor(what string, s shape, d dtype, source string) int32 {
	key := rowKey{t.place, what, allocated(s.elements() * d.bytes()), t.backward}
	i, known := t.rowOf[key]
	if !known {
		i = int32(len(t.rows))
		t.rows = append(t.rows, row{key, s, d, source})
		t.rowOf[key] = i
		t.live.rows = append(t.live.rows, 0)
	}
	return i
}

// birth makes a storage with one reference.
func (t *tape) birth(what string, s shape, d dtype, p part, source string) int32 {
	r := t.rowFor(what, s, d, source)
	bytes := t.rows[r].key.bytes
	t.storages = append(t.storages, storage{bytes: bytes, refs: 1, row: r, part: p})
	t.count(r, p, bytes)
	if w := t.window; t.live.total > w.peak.total {
		w.peak.total, w.rising, w.place, w.op = t.live.total, true, t.place, what
	}
	return int32(len(t.storages) - 1)
}

func (t *tape) count(r int32, p part, bytes int64) {
	t.live.total += bytes
	t.live.rows[r] += bytes
	t.live.parts[p] += bytes
}

func (t *tape) retain(at int32) {
	if at != none {
		t.storages[at].refs++
	}
}

func (t *tape) release(at int32) {
	if at == none {
		return
	}
	s := &t.storages[at]
	if s.refs--; s.refs > 0 {
		return
	}
	t.window.settle(&t.live)
	t.count(s.row, s.part, -s.bytes)
	if s.shared && t.times > 1 {
		t.once = append(t.once, at)
	}
}

// keep marks a storage as saved for backward: from now on it counts as an activation.
func (t *tape) keep(at int32) {
	if at == none {
		return
	}
	t.retain(at)
	if s := &t.storages[at]; s.part == temporaries && !t.backward {
		t.live.parts[temporaries] -= s.bytes
		t.live.parts[activations] += s.bytes
		s.part = activations
	}
}

// fresh is a new tensor, made by the operation at work.
func (t *tape) fresh(what string, s shape, d dtype, source string) value {
	return value{at: t.birth(what, s, d, temporaries, source), node: none, shape: s, kind: d}
}

// drop ends a variable's hold on values.
func (t *tape) drop(values ...value) {
	for _, v := range values {
		t.release(v.at)
	}
}

// then is "x = f(x)": the variable's old value goes once the new one is there.
func (t *tape) then(old, made value) value {
	t.drop(old)
	return made
}

// same is another hold on a value: a function that gives back its argument.
func (t *tape) same(v value) value {
	t.retain(v.at)
	return v
}

// hold keeps variables until the model returns.
func (t *tape) hold(values ...value) { t.held = append(t.held, values...) }

// call plays a function of the model's code: the variables that it holds go when it returns.
func (t *tape) call(place string, play func()) {
	from := len(t.held)
	t.at(place, play)
	t.drop(t.held[from:]...)
	t.held = t.held[:from]
}

// result keeps values that the model gives back, until the loss has been taken out.
func (t *tape) result(values ...value) { t.results = append(t.results, values...) }

// endForward is what follows when the model returns: its variables go, autocast's context ends, accelerate makes float32
// copies of the results (convert_outputs_to_fp32), and all but the loss is dropped.
func (t *tape) endForward() {
	t.drop(t.held...)
	t.endAutocast(0)
	t.place = "head"
	if t.logits.kind == halves {
		t.drop(t.fresh("logits in float32", t.logits.shape, float32s, "accelerate.utils.convert_outputs_to_fp32"))
	}
	t.drop(t.logits)
	t.drop(t.results...)
	t.window.settle(&t.live)
}

// endAutocast empties the cache of what came after a moment.
func (t *tape) endAutocast(from int) {
	for _, c := range t.cache[from:] {
		s := t.storages[c.at]
		t.release(c.at)
		if s.refs == 1 { // the copies of the layers that this one stands for go with it
			t.count(s.row, s.part, -(c.times-1)*s.bytes)
		}
	}
	t.cache = t.cache[:from]
}

// at names the part of the model that plays, for the rows of what it makes.
func (t *tape) at(place string, play func()) {
	outer := t.place
	t.place = place
	play()
	t.place = outer
}
