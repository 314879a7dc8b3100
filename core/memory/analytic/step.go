package analytic

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Make reads the model of a request and estimates its step.
func Make(r Request) (Estimate, error) {
	r.Model.FreezeFeatureEncoder = r.Model.FreezeFeatureEncoder || r.FreezeFeatureEncoder
	m, err := Read(r.Model)
	if err != nil {
		return Estimate{}, err
	}
	return m.Estimate(r)
}

// Estimate plays one training step of a steady run: the optimizer's state is there, and with accumulation the gradients
// of earlier micro-batches too. The request's model is not looked at, and neither is freeze_feature_encoder. Errors:
// InvalidArgument for a value out of range and for a clip that the model cannot take, Unsupported for an optimizer.
func (m *Model) Estimate(r Request) (Estimate, error) {
	set, err := r.settings()
	if err != nil {
		return Estimate{}, err
	}
	if m, err = m.WithLoRA(set.rank); err != nil {
		return Estimate{}, err
	}
	s := Shape{r.Batch, r.Seconds, profile.Or(r.Labels, m.labels(r.Seconds))}
	t := newTracker(set)
	highest, err := m.playStep(t, s)
	if err != nil {
		return Estimate{}, err
	}
	e := m.describe(r, set, t, highest)
	if r.Simulate {
		err = m.simulate(&e, r, set, s)
	}
	return e, err
}

// playStep plays forward pass, backward pass and optimizer step on a new tracker; it returns the highest moment of each.
func (m *Model) playStep(t *tracker, s Shape) (highest [phases]*highWater, err error) {
	m.resident(t)
	if t.accumulating {
		t.allocate(parameterGradients, of(dim{"trained parameters", m.profile.TrainableParameters}), float32s, gradients, "of earlier micro-batches")
	}
	loss, err := m.play(t, s)
	if err != nil {
		return highest, err
	}
	t.endForward()
	highest[0], t.highest = t.highest, &highWater{}
	t.runBackward(loss)
	highest[1], t.highest = t.highest, &highWater{}
	m.optimize(t)
	highest[2] = t.highest
	if t.tooLarge {
		return highest, fault.New(fault.InvalidArgument, "check batch and seconds", "a batch of %d clips of %v s needs single tensors of more than 2^42 elements", s.Batch, s.Seconds)
	}
	return highest, nil
}

// resident is what is there before a step begins.
func (m *Model) resident(t *tracker) {
	t.allocate("parameters", of(dim{"parameters", m.profile.TotalParameters}), float32s, parameters, "core/model: exact")
	if state := t.optimizer.stateBytes(m.profile); state > 0 {
		t.allocate("optimizer state", of(dim{t.optimizer.name, state}), bools, optimizer, t.optimizer.why)
	}
	t.workspaces()
}

// optimize is the optimizer's step; the gradients are there.
func (m *Model) optimize(t *tracker) {
	t.module = "optimizer"
	bytes := t.optimizer.stepBytes(m.profile, t.largestParameter)
	t.release(t.allocate("step", of(dim{t.optimizer.name, bytes}), bools, temporaries, t.optimizer.why))
}
