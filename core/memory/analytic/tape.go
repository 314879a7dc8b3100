package analytic

// tape plays a training step of a model, forward and backward, the way PyTorch's autograd runs it, and counts the bytes
// that live after each operation. A storage lives while something refers to it: a variable of the model's code, a node
// of the graph that saved it for backward, autocast's cache, or a gradient on its way. Nothing is computed.
type tape struct {
	settings
	device *simulator // follows every birth and death in a simulated allocator; nil without one

	storages []storage
	nodes    []node
	blocks   []block
	rows     []row
	rowOf    map[rowKey]int32
	live     account
	window   *window
	absurd   bool  // a storage beyond maxElements was asked for
	widest   int64 // bytes of the largest trained parameter
	largest  int64 // bytes of the largest storage that the model makes
	work     Work

	place   string // the part of the model at work
	moment  moment
	frozen  bool     // the parameters at work do not train
	apart   bool     // they train though LoRA freezes the model: adapters and a new head
	quiet   int      // inside a checkpointed forward, where nothing is saved
	times   int64    // how many equal layers the one at work stands for
	equal   int64    // the same for counting work, also while a layer is recomputed
	once    []int32  // storages that died during such a layer, though all of those layers shared them
	cache   []cached // 16-bit copies of parameters that autocast keeps until its context ends
	held    []value  // variables of the model's code, until the function that they belong to returns
	result  []cached // what the model gives back, beside logits and loss
	logits  value
	batch   []int32 // the inputs of this micro-batch
	trained []int32 // the parameters' gradients
}

// storage is a block of memory.
type storage struct {
	bytes  int64
	refs   int32
	row    int32
	part   part
	shared bool // by equal layers: it dies once, with the last of them
}

// cached is a storage that outlives the layer that made it, and as many like it as layers that this one stands for.
type cached struct {
	at    int32
	times int64
}

// none stands for no storage, no node and no row.
const none = -1

// value is a tensor as the model's code holds it: a view of a storage, the node that made it, and whether a gradient
// will come back for it.
type value struct {
	at    int32
	node  int32
	grad  bool
	shape shape
	kind  dtype

	turned bool // the dimensions lie in memory in another order than here, as after transpose()
}

// nothing is a value that is not there.
var nothing = value{at: none, node: none}

func newTape(set settings) *tape {
	return &tape{settings: set, rowOf: make(map[rowKey]int32, 256), storages: make([]storage, 0, 1024), nodes: make([]node, 0, 512),
		rows: make([]row, 0, 256), window: &window{}, times: 1, equal: 1, logits: nothing}
}

// rowFor finds or makes the row of a storage.
func (t *tape) rowFor(what string, m moment, s shape, d dtype, source string) int32 {
	elements := s.elements()
	t.absurd = t.absurd || elements > maxElements
	key := rowKey{t.place, what, allocated(elements * d.bytes()), m}
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
func (t *tape) birth(r int32, p part, place, op string) int32 {
	bytes := t.rows[r].key.bytes
	t.storages = append(t.storages, storage{bytes: bytes, refs: 1, row: r, part: p})
	t.count(r, p, bytes)
	if p != workspaces {
		t.makes(bytes)
	}
	t.window.rise(t.live.total, place, op)
	if t.device != nil {
		t.device.birth(&t.rows[r], place, op)
	}
	return int32(len(t.storages) - 1)
}

// standing makes a storage that is there whatever the model does.
func (t *tape) standing(what string, s shape, d dtype, p part, source string) int32 {
	return t.birth(t.rowFor(what, t.moment, s, d, source), p, t.place, what)
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
	if t.device != nil {
		t.device.death(at)
	}
}

// keep is a reference of the graph's: what the forward pass made counts as an activation from now on.
func (t *tape) keep(at int32) {
	if at == none {
		return
	}
	t.retain(at)
	if s := &t.storages[at]; s.part == temporaries && t.moment == forward {
		t.live.parts[temporaries] -= s.bytes
		t.live.parts[activations] += s.bytes
		s.part = activations
	}
}
