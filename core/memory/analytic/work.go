package analytic

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Prediction is an estimate without its terms: what a search over many steps asks for.
type Prediction struct {
	PeakAllocated     uint64
	PeakReserved      uint64 // by the rule
	TrainedParameters int64
	PinnedBytes       uint64 // of the host, for offloaded checkpoints
}

// Predict plays a step as Estimate does. Errors: those of Estimate.
func (m *Model) Predict(r Request) (Prediction, error) {
	t, highest, err := m.played(r, nil, false)
	if err != nil {
		return Prediction{}, err
	}
	peak := int64(0)
	for _, w := range highest {
		peak = max(peak, w.peak.total)
	}
	return Prediction{uint64(peak), t.reserved(peak), t.trainedParameters, uint64(t.pinned)}, nil
}

// Work plays a step as Estimate does, and records what it runs. Errors: those of Estimate.
func (m *Model) Work(r Request) (kernel.Work, error) {
	return m.work(r, false)
}

// ForwardPass is the operations of an evaluation's forward pass: no layer is skipped, and nothing dropped. Errors: those of Estimate.
func (m *Model) ForwardPass(r Request) ([]kernel.Operation, error) {
	w, err := m.work(r, true)
	return w.ForwardPass(), err
}

func (m *Model) work(r Request, evaluating bool) (kernel.Work, error) {
	recorded := newOperations()
	t, _, err := m.played(r, recorded, evaluating)
	if err != nil {
		return kernel.Work{}, err
	}
	return kernel.Work{Operations: slices.Clip(recorded.list), TrainedParameters: t.trainedParameters, TrainedTensors: t.trainedTensors}, nil
}

// played is the tracker of a step by the rule.
func (m *Model) played(r Request, recorded *operations, evaluating bool) (t *tracker, highest [phases]*highWater, err error) {
	set, err := r.settings()
	if err != nil {
		return nil, highest, err
	}
	set.evaluating = evaluating
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
