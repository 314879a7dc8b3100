package analytic

// ctcLoss is log-softmax in float32 and connectionist temporal classification. Its forward variables are
// (batch, frames, 2 × labels + 1), and backward makes as many: aten/src/ATen/native/cuda/LossCTC.cu.
func (t *tracker) ctcLoss(logits value, batch, frames, labels dim) value {
	logs := t.logSoftmax("log-probabilities", logits, float32s)
	alpha := t.fresh("CTC forward variables", of(batch, frames, dim{"2 labels + 1", 2*labels.n + 1}), float32s, savedResult)
	each := t.fresh("losses", of(batch), float32s, "")
	n := t.graph(reducing, "CTC loss", &each, false, logs)
	t.save(n, logs, alpha, each)
	t.gradientsFor(n, logs)
	t.takesScratch(n, "CTC backward variables", alpha.shape, "aten/src/ATen/native/cuda/LossCTC.cu")
	t.drop(logs, alpha)
	return t.then(each, t.scaled("loss", each, of(dim{"loss", 1})))
}

// crossEntropy is log-softmax in the type of the logits, which cross_entropy_loss asks for, and the likelihood of the
// labels in float32, which keeps its input (aten/src/ATen/native/LossNLL.cpp).
func (t *tracker) crossEntropy(logits value) value {
	logs := t.logSoftmax("log-probabilities", logits, logits.kind)
	wide := t.then(logs, t.cast(logs, float32s))
	loss := t.fresh("loss", of(dim{"loss", 1}), float32s, "")
	n := t.graph(reducing, "likelihood", &loss, false, wide)
	t.save(n, wide)
	t.gradientsFor(n, wide)
	t.drop(wide)
	return loss
}
