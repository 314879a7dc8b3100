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
	if m, err = m.adapting(set); err != nil {
		return Estimate{}, err
	}
	s := Shape{r.Batch, r.Seconds, profile.Or(r.Labels, m.labels(r.Seconds))}
	t, windows, err := m.playStep(set, s)
	if err != nil {
		return Estimate{}, err
	}
	e := m.describe(r, set, t, windows)
	if r.Simulate {
		err = m.simulate(&e, r, set, s)
	}
	return e, err
}

// playStep plays forward pass, backward pass and optimizer step; a window is the highest moment of each.
func (m *Model) playStep(set settings, s Shape) (t *tape, windows [phases]*window, err error) {
	t = newTape(set)
	m.resident(t)
	if set.accumulating {
		t.standing(parameterGradients, of(dim{"trained parameters", m.profile.TrainableParameters}), float32s, gradients, "of earlier micro-batches")
	}
	loss, err := m.play(t, s)
	if err != nil {
		return nil, windows, err
	}
	t.endForward()
	windows[0], t.window = t.window, &window{}
	t.runBackward(loss)
	windows[1], t.window = t.window, &window{}
	m.optimize(t)
	windows[2] = t.window
	if t.absurd {
		return nil, windows, fault.New(fault.InvalidArgument, "check batch and seconds", "a batch of %d clips of %v s needs single tensors of more than 2^42 elements", s.Batch, s.Seconds)
	}
	return t, windows, nil
}

// resident is what is there before a step begins.
func (m *Model) resident(t *tape) {
	t.standing("parameters", of(dim{"parameters", m.profile.TotalParameters}), float32s, parameters, "core/model: exact")
	if state := t.optimizer.stateBytes(m.profile); state > 0 {
		t.standing("optimizer state", of(dim{t.optimizer.name, state}), bools, optimizer, t.optimizer.why)
	}
	t.workspaces()
}

// optimize is the optimizer's step; the gradients are there.
func (m *Model) optimize(t *tape) {
	t.place = "optimizer"
	bytes := t.optimizer.stepBytes(m.profile, t.widest)
	t.release(t.standing("step", of(dim{t.optimizer.name, bytes}), bools, temporaries, t.optimizer.why))
}
