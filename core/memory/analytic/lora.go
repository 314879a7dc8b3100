package analytic

import "github.com/asrconfig/asrconfig-go/core/model"

// LoRA (Hu et al. 2021, as PEFT has it without dropout): the model is frozen, and beside each projection to queries and to
// values stand two narrow ones that train. A CTC head, which is new, trains too; Whisper's, which is tied, does not. The
// convolutional front end counts as frozen by model.freeze_feature_encoder(), without which it would keep its activations.

// TakesAdapters tells whether adapters beside the projections to queries and values run. WavLM's attention hands the projections' weights to
// torch.nn.functional.multi_head_attention_forward and never calls the layers.
func (m *Model) TakesAdapters() bool { return m.profile.Architecture != wavlm }

// fixed tells whether LoRA keeps the parameters at work from training.
func (t *tracker) fixed() bool { return t.rank > 0 && !t.trainsUnderLoRA }

// unfrozen plays a part that trains whatever LoRA freezes.
func (t *tracker) unfrozen(play func()) {
	outer := t.trainsUnderLoRA
	t.trainsUnderLoRA = true
	play()
	t.trainsUnderLoRA = outer
}

// adapted adds an adapter's result to that of the linear layer beside it, which it takes over.
func (t *tracker) adapted(what string, x, y value) value {
	if t.rank == 0 || what != "queries" && what != "values" {
		return y
	}
	t.unfrozen(func() {
		narrow := t.linear("adapter, narrow", x, dim{"rank", t.rank}, false)
		wide := t.then(narrow, t.linear("adapter, wide", narrow, y.shape.last(), false))
		wide = t.then(wide, t.scaled("adapter, scaled", wide, wide.shape))
		y = t.then(y, t.sum(y, wide))
		t.drop(wide)
	})
	return y
}

// WithLoRA is the model as LoRA of a rank trains it: other parameters, gradients and optimizer state. Of rank 0 it is the model.
func (m *Model) WithLoRA(rank int64) (*Model, error) {
	if rank == 0 {
		return m, nil
	}
	if known, there := m.adapted.Load(rank); there {
		return known.(*Model), nil
	}
	t := newTracker(settings{rank: rank})
	if _, err := m.play(t, Shape{Batch: 1, Seconds: 1, Labels: 1}); err != nil {
		return nil, err
	}
	trained := t.trainedParameters
	sizes, err := model.Profile(model.Request{Counts: &model.Counts{Total: m.profile.TotalParameters + trained, Trainable: &trained}})
	if err != nil {
		return nil, err
	}
	c := *m
	c.adapters, c.profile.TotalParameters = trained, sizes.TotalParameters
	c.profile.TrainableParameters, c.profile.GradientBytes, c.profile.OptimizerBytes = trained, sizes.GradientBytes, sizes.OptimizerBytes
	m.adapted.Store(rank, &c)
	return &c, nil
}
