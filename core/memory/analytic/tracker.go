package analytic

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// tracker plays a training step of a model, forward and backward, the way PyTorch's autograd runs it, and counts the bytes
// that live after each operation. A storage lives while something refers to it: a variable of the model's code, a node
// of the graph that saved it for backward, autocast's cache, or a gradient on its way. Nothing is computed.
type tracker struct {
	settings
	device *simulator // follows every allocation and free in a simulated allocator; nil without one

	storages                          []storage
	nodes                             []node
	blocks                            []block
	rows                              []row
	rowOf                             map[rowKey]int32
	live                              account
	highest                           *highWater
	tooLarge                          bool               // a storage beyond maxElements was asked for
	largestParameter                  int64              // bytes of the largest trained parameter
	largestStorage                    int64              // bytes of the largest storage that the model makes
	recorded                          *operations        // what runs; nil where nobody asks for it
	made                              int64              // bytes of tensors made since the last operation was recorded
	unsaved                           []kernel.Operation // recomputed since something was saved
	trainedTensors, trainedParameters int64

	module          string // the part of the model at work
	pass            pass
	frozen          bool     // the parameters at work do not train
	trainsUnderLoRA bool     // they train though LoRA freezes the model: adapters and a new head
	checkpointDepth int      // inside a checkpointed forward, where nothing is saved
	repeats         int64    // how many equal layers the one at work stands for
	workRepeats     int64    // the same for counting work, also while a layer is recomputed
	pinned          int64    // bytes of host memory that hold offloaded checkpoints
	layersSeen      int      // that could be checkpointed, in the order of the model's modules
	kept            float64  // how often the layer at work runs, on average: below 1 where some are skipped at random
	sharedFreed     []int32  // storages that were freed during such a layer, though all of those layers shared them
	cache           []cached // 16-bit copies of parameters that autocast keeps until its context ends
	held            []value  // variables of the model's code, until the function that they belong to returns
	result          []cached // what the model gives back, beside logits and loss
	logits          value
	batch           []int32 // the inputs of this micro-batch
	trained         []int32 // the parameters' gradients
}

// storage is a block of memory.
type storage struct {
	bytes  int64
	refs   int32
	row    int32
	part   part
	shared bool // by equal layers: it is freed once, with the last of them
}

// cached is a storage that outlives the layer that made it, and as many like it as layers that this one stands for.
type cached struct {
	at      int32
	repeats int64
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

	transposed bool // the dimensions lie in memory in another order than here, as after transpose()
}

// nothing is a value that is not there.
var nothing = value{at: none, node: none}

func newTracker(set settings) *tracker {
	return &tracker{settings: set, rowOf: make(map[rowKey]int32, 256), storages: make([]storage, 0, 1024), nodes: make([]node, 0, 256),
		rows: make([]row, 0, 256), highest: &highWater{}, repeats: 1, workRepeats: 1, kept: 1, logits: nothing}
}

// rowFor finds or makes the row of a storage.
func (t *tracker) rowFor(what string, p pass, s shape, d dtype, source string) int32 {
	elements := s.elements()
	t.tooLarge = t.tooLarge || elements > maxElements
	key := rowKey{t.module, what, allocated(elements * d.bytes()), p}
	i, known := t.rowOf[key]
	if !known {
		i = int32(len(t.rows))
		t.rows = append(t.rows, row{key, s, d, source})
		t.rowOf[key] = i
		t.live.rows = append(t.live.rows, 0)
	}
	return i
}

// allocateRow makes a storage with one reference.
func (t *tracker) allocateRow(r int32, p part, module, op string) int32 {
	bytes := t.rows[r].key.bytes
	t.storages = append(t.storages, storage{bytes: bytes, refs: 1, row: r, part: p})
	t.count(r, p, bytes)
	t.highest.note(t.live.total, module, op)
	if t.device != nil {
		t.device.allocateRow(&t.rows[r], module, op)
	}
	return int32(len(t.storages) - 1)
}

// produce is allocateRow for a tensor that the operation at work writes.
func (t *tracker) produce(r int32, p part, module, op string) int32 {
	t.made += t.rows[r].key.bytes
	return t.allocateRow(r, p, module, op)
}

// allocate makes a storage with one reference.
func (t *tracker) allocate(what string, s shape, d dtype, p part, source string) int32 {
	return t.allocateRow(t.rowFor(what, t.pass, s, d, source), p, t.module, what)
}

func (t *tracker) count(r int32, p part, bytes int64) {
	t.live.total += bytes
	t.live.rows[r] += bytes
	t.live.parts[p] += bytes
}

func (t *tracker) retain(at int32) {
	if at != none {
		t.storages[at].refs++
	}
}

func (t *tracker) release(at int32) {
	if at == none {
		return
	}
	s := &t.storages[at]
	if s.refs--; s.refs > 0 {
		return
	}
	t.highest.copyPending(&t.live)
	t.count(s.row, s.part, -s.bytes)
	if s.shared && t.repeats > 1 {
		t.sharedFreed = append(t.sharedFreed, at)
	}
	if t.device != nil {
		t.device.free(at)
	}
}

// keep is a reference of the graph's: what the forward pass made counts as an activation from now on.
func (t *tracker) keep(at int32) {
	if at == none {
		return
	}
	t.retain(at)
	if s := &t.storages[at]; s.part == temporaries && t.pass == forward {
		t.live.parts[temporaries] -= s.bytes
		t.live.parts[activations] += s.bytes
		s.part = activations
	}
}
