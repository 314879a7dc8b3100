package analytic

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Work is what the kernels of one micro-batch do, recorded while its step is played.
type Work struct {
	Operations        []kernel.Operation // of forward pass, recomputation and backward pass, equal ones together
	TrainedParameters int64              // those with a gradient, which the optimizer updates
	TrainedTensors    int64              // how many tensors they are
}

// Amount is what operations add up to. A multiplication and an addition count as two.
type Amount struct {
	Products         float64 // operations of matrix products in 16 bits
	WideProducts     float64 // of those in float32
	Convolutions     float64 // of convolutions in 16 bits
	WideConvolutions float64 // of those in float32
	MovedBytes       float64 // read and written
	Kernels          float64
}

// Sum adds up all operations.
func (w Work) Sum() (a Amount) {
	for _, phase := range passPhases {
		a = a.Plus(w.In(phase), 1)
	}
	return a
}

// In adds up the operations of a phase.
func (w Work) In(phase kernel.Phase) (a Amount) {
	for _, o := range w.Operations {
		if o.Phase == phase {
			a = a.Plus(amountOf(o), o.Times)
		}
	}
	return a
}

// Plus adds another amount some times over.
func (a Amount) Plus(b Amount, times float64) Amount {
	return Amount{a.Products + times*b.Products, a.WideProducts + times*b.WideProducts, a.Convolutions + times*b.Convolutions,
		a.WideConvolutions + times*b.WideConvolutions, a.MovedBytes + times*b.MovedBytes, a.Kernels + times*b.Kernels}
}

func amountOf(o kernel.Operation) Amount {
	a := Amount{MovedBytes: o.Bytes(), Kernels: float64(o.Kernels)}
	half := o.DType == kernel.Float16 || o.DType == kernel.BFloat16
	switch {
	case o.Kind == kernel.Convolution && half:
		a.Convolutions = o.FLOPs()
	case o.Kind == kernel.Convolution:
		a.WideConvolutions = o.FLOPs()
	case half:
		a.Products = o.FLOPs()
	default:
		a.WideProducts = o.FLOPs()
	}
	return a
}

// Prediction is an estimate without its terms: what a search over many steps asks for.
type Prediction struct {
	PeakAllocated     uint64
	PeakReserved      uint64 // by the rule
	TrainedParameters int64
}

// Predict plays a step as Estimate does. Errors: those of Estimate.
func (m *Model) Predict(r Request) (Prediction, error) {
	t, highest, err := m.played(r, nil)
	if err != nil {
		return Prediction{}, err
	}
	peak := int64(0)
	for _, w := range highest {
		peak = max(peak, w.peak.total)
	}
	return Prediction{uint64(peak), t.reserved(peak), t.trainedParameters}, nil
}

// Work plays a step as Estimate does, and records what it runs. Errors: those of Estimate.
func (m *Model) Work(r Request) (Work, error) {
	recorded := newOperations()
	t, _, err := m.played(r, recorded)
	if err != nil {
		return Work{}, err
	}
	return Work{slices.Clip(recorded.list), t.trainedParameters, t.trainedTensors}, nil
}

// played is the tracker of a step by the rule.
func (m *Model) played(r Request, recorded *operations) (t *tracker, highest [phases]*highWater, err error) {
	set, err := r.settings()
	if err != nil {
		return nil, highest, err
	}
	if m, err = m.WithLoRA(set.rank); err != nil {
		return nil, highest, err
	}
	t = newTracker(set)
	t.recorded = recorded
	highest, err = m.playStep(t, Shape{r.Batch, r.Seconds, profile.Or(r.Labels, m.labels(r.Seconds))})
	return t, highest, err
}

// Profile is what is known of the model's size.
func (m *Model) Profile() profile.Model { return m.profile }

// NormalizesOverTime tells whether results depend on how much a clip is padded, whatever the attention mask: the group norm
// of wav2vec2-base's first convolution takes its mean over all of the time axis.
func (m *Model) NormalizesOverTime() bool { return m.overTime }

// LongestSeconds is the longest clip that the model's positions allow; 0 without end.
func (m *Model) LongestSeconds() float64 { return m.longest }
