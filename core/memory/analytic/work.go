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

// amount is what the work of this pass counts to.
func (t *tracker) amount() *Amount {
	switch t.pass {
	case forward:
		return &t.work.Forward
	case recomputed:
		return &t.work.Recomputed
	}
	return &t.work.Backward
}

// countProducts counts an operation now and, where a node will run it backward, a further product for each operand with a gradient.
func (t *tracker) countProducts(n *node, c computation, d dtype, operations float64, gradients ...bool) {
	operations *= float64(t.workRepeats)
	t.amount().compute(c, d, operations)
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

// countFusedAttention counts fused attention; operations are those of one of its two products.
func (t *tracker) countFusedAttention(n *node, d dtype, operations float64) {
	operations *= 2 * float64(t.workRepeats)
	t.amount().compute(product, d, operations)
	if n != nil {
		t.work.Backward.compute(product, d, fusedBackward*operations)
	}
}

// countWrite counts the traffic of a tensor that an operation makes.
func (t *tracker) countWrite(bytes int64) {
	a := t.amount()
	a.MovedBytes += 2 * float64(bytes) * float64(t.workRepeats)
	a.Kernels += float64(t.workRepeats)
}

// countRead counts the traffic of a saved tensor that backward looks at.
func (t *tracker) countRead(at int32) {
	if at != none && t.pass == backward {
		t.work.Backward.MovedBytes += float64(t.storages[at].bytes) * float64(t.workRepeats)
	}
}

// flops are the operations of a product with this result, each element of which sums over so many terms.
func (s shape) flops(inner int64) float64 { return 2 * float64(s.elements()) * float64(inner) }

// Prediction is an estimate without its terms: what a search over many steps asks for.
type Prediction struct {
	PeakAllocated uint64
	PeakReserved  uint64 // by the rule
	Work          Work
}

// Predict plays a step as Estimate does. Errors are those of Estimate.
func (m *Model) Predict(r Request) (Prediction, error) {
	set, err := r.settings()
	if err != nil {
		return Prediction{}, err
	}
	if m, err = m.WithLoRA(set.rank); err != nil {
		return Prediction{}, err
	}
	t, highest, err := m.playStep(set, Shape{r.Batch, r.Seconds, profile.Or(r.Labels, m.labels(r.Seconds))})
	if err != nil {
		return Prediction{}, err
	}
	peak := int64(0)
	for _, w := range highest {
		peak = max(peak, w.peak.total)
	}
	return Prediction{uint64(peak), t.reserved(peak), t.work}, nil
}

// Profile is what is known of the model's size.
func (m *Model) Profile() profile.Model { return m.profile }

// NormalizesOverTime tells whether results depend on how much a clip is padded, whatever the attention mask: the group norm
// of wav2vec2-base's first convolution takes its mean over all of the time axis.
func (m *Model) NormalizesOverTime() bool { return m.overTime }

// LongestSeconds is the longest clip that the model's positions allow; 0 without end.
func (m *Model) LongestSeconds() float64 { return m.longest }
