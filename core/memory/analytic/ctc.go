package analytic

// ctcLoss is log-softmax in float32 and connectionist temporal classification. Its forward variables are
// (batch, frames, 2 × labels + 1): aten/src/ATen/native/cuda/LossCTC.cu, which makes as many again in backward.
func (t *tape) ctcLoss(logits value, batch, frames, labels dim) value {
	logs := t.softmax("log-probabilities", logits)
	alpha := t.fresh("CTC forward variables", of(batch, frames, dim{"2 labels + 1", 2*labels.n + 1}), float32s, saveResult)
	each := t.fresh("loss", of(batch), float32s, "")
	n := t.graph("CTC loss", &each, &logs)
	t.save(n, logs, alpha, each)
	t.back(n, logs)
	t.needs(n, "CTC backward variables", alpha.shape, float32s)
	t.drop(logs, alpha)
	return t.then(each, t.copied("loss", each, of(dim{"loss", 1})))
}

// crossEntropy is log-softmax in float32 and the likelihood of the labels, which keeps the log-probabilities.
func (t *tape) crossEntropy(logits value) value {
	logs := t.softmax("log-probabilities", logits)
	loss := t.fresh("loss", of(dim{"loss", 1}), float32s, "")
	n := t.graph("cross-entropy", &loss, &logs)
	t.save(n, logs)
	t.back(n, logs)
	t.drop(logs)
	return loss
}

// returned is what accelerate makes of the model's results under mixed precision: float32 copies, for a moment
// (convert_outputs_to_fp32).
func (t *tape) returned(results ...value) {
	var copies []value
	for _, v := range results {
		if v.kind == halves {
			copies = append(copies, t.fresh("results in float32", v.shape, float32s, "accelerate.utils.convert_outputs_to_fp32"))
		}
	}
	t.drop(copies...)
	t.drop(results...)
}
