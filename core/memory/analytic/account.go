package analytic

// part is the kind of memory that a storage counts as, as in a trace: what is saved for the backward pass is an
// activation, what is not is temporary.
type part uint8

const (
	parameters part = iota
	gradients
	optimizer
	activations
	temporaries
	inputs
	workspaces
	parts
)

var partNames = [parts]string{"parameters", "gradients", "optimizer", "activations", "temporaries", "inputs", "workspaces"}

// rowKey tells rows apart: one line of the model's code makes storages of one size for one purpose.
type rowKey struct {
	module, what string
	bytes        int64
	pass         pass
}

// pass is when a storage is made.
type pass uint8

const (
	forward    pass = iota
	recomputed      // the forward pass of a checkpointed layer, again
	backward        // a gradient
	scratch         // what a node's backward takes beside its gradients
)

// row gathers the storages of one key.
type row struct {
	key    rowKey
	shape  shape
	kind   dtype
	source string
}

// account is how many bytes live: in all, by row and by part.
type account struct {
	total int64
	rows  []int64
	parts [parts]int64
}

func (a *account) copyFrom(b *account) {
	a.total, a.parts = b.total, b.parts
	a.rows = append(a.rows[:0], b.rows...)
}

// add counts another account's bytes some times over.
func (a *account) add(b *account, times int64) {
	a.total += times * b.total
	for len(a.rows) < len(b.rows) {
		a.rows = append(a.rows, 0)
	}
	for i, bytes := range b.rows {
		a.rows[i] += times * bytes
	}
	for i, bytes := range b.parts {
		a.parts[i] += times * bytes
	}
}

// highWater finds the highest moment of a stretch of events and keeps what lived then.
type highWater struct {
	peak    account
	pending bool // the account at the peak is still to be copied; it is at the first free after it
	module  string
	op      string
}

// note takes an allocation down.
func (w *highWater) note(live int64, module, op string) {
	if live > w.peak.total {
		w.peak.total, w.pending, w.module, w.op = live, true, module, op
	}
}

// copyPending copies the account of a peak that no free has followed yet.
func (w *highWater) copyPending(live *account) {
	if w.pending {
		w.peak.copyFrom(live)
		w.pending = false
	}
}

// merge takes over another stretch's peak, as it is with some times an account base it, when it is higher.
func (w *highWater) merge(other *highWater, base *account, times int64) {
	if other.peak.total+times*base.total <= w.peak.total {
		return
	}
	w.peak.copyFrom(&other.peak)
	w.peak.add(base, times)
	w.module, w.op = other.module, other.op
}
