package analytic

// encoder is the positions and the stack of transformer layers.
func (e *speechEncoder) encoder(x value) value {
	x = e.same(x)
	e.call("encoder", func() {
		var masks []value
		if e.masked() {
			x = e.zeroPadding(x)
			masks = e.attentionMask()
		}
		x = e.positioned(x)
		e.at("encoder layers", func() {
			e.repeat(e.Layers, e.LayerDrop, func(i int) {
				layer := func(x value) value { return e.layer(i, x, masks) }
				x = e.then(x, e.checkpointed(x, nil, layer, e.shared(i, masks)...))
			})
		})
		e.drop(e.bias)
		if e.Stable {
			x = e.then(x, e.norm("layer norm", x, e.rows(), e.hidden))
		}
	})
	return x
}

// shared is what layer i is given beside the hidden states.
func (e *speechEncoder) shared(i int, masks []value) []value {
	if e.kind == wavlm && i > 0 {
		return []value{e.bias}
	}
	return masks
}

// zeroPadding sets padded frames to zero: a mask as wide as the hidden states, and its inverse, which backward needs.
func (e *speechEncoder) zeroPadding(x value) value {
	wide := e.fresh("padding mask", x.shape, bools, "expand_attention_mask")
	inverse := e.fresh("inverted padding mask", x.shape, bools, savedInput)
	x = e.written(x, inverse)
	e.drop(inverse)
	e.hold(wide)
	return x
}

// attentionMask is (batch, 1, frames, frames), which all layers share; none when nothing is padded
// (transformers/masking_utils.py, create_bidirectional_mask). WavLM's layers take the padding as it is.
func (e *speechEncoder) attentionMask() []value {
	if !e.padded || e.kind == wavlm {
		return nil
	}
	d := bools
	if e.eager {
		d = e.lower()
	}
	mask := e.fresh("attention mask", e.square(), d, "create_bidirectional_mask")
	e.hold(mask)
	return []value{mask}
}

// positioned adds the positional convolution.
func (e *speechEncoder) positioned(x value) value {
	positions := e.positions(x)
	x = e.then(x, e.sum(x, positions))
	e.hold(positions)
	if !e.Stable {
		x = e.then(x, e.norm("layer norm", x, e.rows(), e.hidden))
	}
	return e.then(x, e.dropout(x, e.HiddenDropout))
}

// positions is the positional convolution: one with many taps, or data2vec's stack.
func (e *speechEncoder) positions(x value) value {
	if e.kind == data2vec {
		return e.positionStack(x)
	}
	in := e.same(x).transpose()
	if e.normedByBatch() {
		in = e.then(in, e.batchNorm("batch norm", in, e.hidden))
	}
	w, b := e.positionWeight(), e.parameter(e.hidden)
	y := e.convolve("positional convolution", in, of(e.batch, e.hidden, dim{"frames + 1", e.frames.n + 1 - e.Positions%2}), e.Groups, w, b)
	e.drop(in)
	if e.Positions%2 == 0 {
		y = e.sliced(y, of(e.batch, e.hidden, e.frames))
	} else {
		e.transposedGradient(y, true)
	}
	return e.then(y, e.pointwise("gelu", y))
}

func (e *speechEncoder) normedByBatch() bool { return e.BatchNorm && e.kind == hubert }

// positionWeight is the weight of the positional convolution.
func (e *speechEncoder) positionWeight() value {
	dims := []dim{e.hidden, {"group", e.Hidden / e.Groups}, {"taps", e.Positions}}
	if e.normedByBatch() {
		return e.parameter(dims...)
	}
	w := e.normedWeight(of(dims...))
	return e.then(w, e.toLower(w))
}

// normedWeight is the weight of a weight-normed convolution, made again in each forward pass from a direction and a
// magnitude for each tap (torch.nn.utils.parametrizations.weight_norm).
func (e *speechEncoder) normedWeight(s shape) value {
	w := e.fresh("normed weight", s, float32s, "torch._weight_norm_interface")
	n := e.graph(normalizing, "weight norm", &w, true, value{shape: s, kind: float32s})
	e.leaf(n, s, of(s[2]))
	return w
}

func (e *speechEncoder) positionStack(x value) value {
	s := of(e.batch, e.hidden, e.frames)
	x = e.same(x).transpose()
	for i := range e.Positions {
		y := e.grouped("positional convolution", x, s, e.Groups, true, e.hidden, dim{"group", e.Hidden / e.Groups}, dim{"taps", e.StackTaps})
		e.frozen = true // its norm has no weights
		x = e.then(x, e.normedByTime(y, e.rows(), e.hidden, true, i == e.Positions-1))
		e.frozen = false
	}
	return x.transpose()
}

// lengthAdapter is strided convolutions with gates after the encoder (add_adapter).
func (e *speechEncoder) lengthAdapter(x value) value {
	x = e.same(x)
	e.at("length adapter", func() {
		size := e.adapterSize()
		if size != e.hidden {
			x = e.then(x, e.linear("projection", x, size, true))
			x = e.then(x, e.norm("layer norm", x, e.rows(), size))
		}
		for range e.AdapterN {
			e.frames.n = max(1, (e.frames.n+2-e.AdapterTaps)/e.AdapterStep+1)
			y := e.convolution("convolution", x, of(e.batch, size.doubled(), e.frames), true, size.doubled(), size, dim{"taps", e.AdapterTaps})
			x = e.then(x, e.then(y, e.gated(y, of(e.batch, size, e.frames))))
		}
		x.shape = of(e.batch, e.frames, size)
	})
	return x
}

// adapterSize is output_hidden_size, which absence, null and zero set to hidden_size.
func (e *speechEncoder) adapterSize() dim {
	if e.AdapterSize == 0 || e.AdapterSize == e.Hidden {
		return e.hidden
	}
	return dim{"adapter", e.AdapterSize}
}
