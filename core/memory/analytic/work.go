package analytic

import "github.com/asrconfig/asrconfig-go/core/profile"

// Work is what the kernels of one micro-batch do, counted while its step is played.
type Work struct {
	Forward    Amount `json:"forward"`
	Recomputed Amount `json:"recomputed"` // the forward pass of checkpointed layers, again
	Backward   Amount `json:"backward"`
	// TrainedParameters are those with a gradient, which the optimizer updates.
	TrainedParameters int64 `json:"trained_parameters"`
}

// Amount is one pass. An operation counts a multiplication and an addition as two.
type Amount struct {
	Products         float64 `json:"products"`          // operations of matrix products in 16 bits
	WideProducts     float64 `json:"wide_products"`     // of those in float32
	Convolutions     float64 `json:"convolutions"`      // of convolutions in 16 bits
	WideConvolutions float64 `json:"wide_convolutions"` // of those in float32
	MovedBytes       float64 `json:"moved_bytes"`       // each tensor made, written and read once; what was saved, read again
	Kernels          float64 `json:"kernels"`           // about one for each tensor made
}

// Sum adds up the passes.
func (w Work) Sum() Amount { return w.Forward.Plus(w.Recomputed, 1).Plus(w.Backward, 1) }

// Plus adds another amount some times over.
func (a Amount) Plus(b Amount, times float64) Amount {
	return Amount{a.Products + times*b.Products, a.WideProducts + times*b.WideProducts, a.Convolutions + times*b.Convolutions,
		a.WideConvolutions + times*b.WideConvolutions, a.MovedBytes + times*b.MovedBytes, a.Kernels + times*b.Kernels}
}

// computation is a kind of arithmetic; convolutions reach less of a GPU's rate than matrix products do.
type computation uint8

const (
	product computation = iota
	convolution
)

func (a *Amount) compute(c computation, d dtype, operations float64) {
	switch {
	case c == product && d == halves:
		a.Products += operations
	case c == product:
		a.WideProducts += operations
	case d == halves:
		a.Convolutions += operations
	default:
		a.WideConvolutions += operations
	}
}

// doing is the amount that the work of this moment counts to.
func (t *tape) doing() *Amount {
	switch t.moment {
	case forward:
		return &t.work.Forward
	case recomputed:
		return &t.work.Recomputed
	}
	return &t.work.Backward
}

// computes counts an operation now and, where a node will run it backward, a further product for each operand with a gradient.
func (t *tape) computes(n *node, c computation, d dtype, operations float64, gradients ...bool) {
	operations *= float64(t.equal)
	t.doing().compute(c, d, operations)
	if n == nil {
		return
	}
	for _, wanted := range gradients {
		if wanted {
			t.work.Backward.compute(c, d, operations)
		}
	}
}

// fusedBackward is the products of a fused attention's backward pass, as a share of its forward pass's two: scores once
// more, and a gradient each for scores, queries, keys and values.
const fusedBackward = 2.5

// computesFused counts fused attention; operations are those of one of its two products.
func (t *tape) computesFused(n *node, d dtype, operations float64) {
	operations *= 2 * float64(t.equal)
	t.doing().compute(product, d, operations)
	if n != nil {
		t.work.Backward.compute(product, d, fusedBackward*operations)
	}
}

// makes counts the traffic of a tensor that an operation makes.
func (t *tape) makes(bytes int64) {
	a := t.doing()
	a.MovedBytes += 2 * float64(bytes) * float64(t.equal)
	a.Kernels += float64(t.equal)
}

// reads counts the traffic of a saved tensor that backward looks at.
func (t *tape) reads(at int32) {
	if at != none && t.moment == backward {
		t.work.Backward.MovedBytes += float64(t.storages[at].bytes) * float64(t.equal)
	}
}

// flops are the operations of a product with this result, each element of which sums over so many terms.
func (s shape) flops(inner int64) float64 { return 2 * float64(s.elements()) * float64(inner) }

// Sketch is an estimate without its account: what a search over many steps asks.
type Sketch struct {
	PeakAllocated uint64
	PeakReserved  uint64 // by the rule
	Work          Work
}

// Sketch plays a step as Estimate does. Errors are those of Estimate.
func (m *Model) Sketch(r Request) (Sketch, error) {
	set, err := r.settings()
	if err != nil {
		return Sketch{}, err
	}
	if m, err = m.adapting(set); err != nil {
		return Sketch{}, err
	}
	t, windows, err := m.playStep(set, Shape{r.Batch, r.Seconds, profile.Or(r.Labels, m.labels(r.Seconds))})
	if err != nil {
		return Sketch{}, err
	}
	peak := int64(0)
	for _, w := range windows {
		peak = max(peak, w.peak.total)
	}
	return Sketch{uint64(peak), t.reserved(peak), t.work}, nil
}

// Profile is what is known of the model's size.
func (m *Model) Profile() profile.Model { return m.profile }

// NormalizesOverTime tells whether results depend on how much a clip is padded, whatever the attention mask: the group norm
// of wav2vec2-base's first convolution takes its mean over all of the time axis.
func (m *Model) NormalizesOverTime() bool { return m.overTime }

// LongestSeconds is the longest clip that the model's positions allow; 0 without end.
func (m *Model) LongestSeconds() float64 { return m.longest }
