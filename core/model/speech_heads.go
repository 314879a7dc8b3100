package model

// The heads of the speech encoders. Each declares the whole class: the bare model under its prefix, then the head.

// commonHeads are those that every speech encoder has.
func (e *speechEncoder) commonHeads(prefix string) heads {
	return heads{
		"Model":  e.base,
		"ForCTC": func(m module) { e.base(m.child(prefix)); e.ctc(m) },
		"ForSequenceClassification": func(m module) {
			e.base(m.child(prefix))
			e.withoutAdapter("sequence classification")
			e.layerWeights(m)
			m.linear("projector", e.hidden, e.classifier, true)
			m.linear("classifier", e.classifier, e.labels(), true)
		},
	}
}

// speakerHeads are those for diarisation and speaker verification.
func (e *speechEncoder) speakerHeads(prefix string, h heads) heads {
	h["ForAudioFrameClassification"] = func(m module) {
		e.base(m.child(prefix))
		e.withoutAdapter("frame classification")
		e.layerWeights(m)
		m.linear("classifier", e.hidden, e.labels(), true)
	}
	h["ForXVector"] = func(m module) { e.base(m.child(prefix)); e.xVector(m) }
	return h
}

func (e *speechEncoder) ctc(m module) {
	e.require(e.vocabulary > 0, "vocab_size is not set; a CTC head needs the size of the tokenizer's vocabulary")
	in := e.hidden
	if e.hasAdapter() {
		in = e.adapterSize()
	}
	m.linear("lm_head", in, e.vocabulary, true)
}

func (e *speechEncoder) withoutAdapter(task string) {
	e.require(!e.hasAdapter(), "add_adapter is true; %s does not support it", task)
}

// layerWeights is the learned mix of the input embedding and every layer's output.
func (e *speechEncoder) layerWeights(m module) {
	if e.flag("use_weighted_layer_sum", false) {
		m.parameter("layer_weights", e.layers+1)
	}
}

// xVector is a time-delay network, statistics pooling (mean and deviation, hence 2x) and an additive-margin softmax.
func (e *speechEncoder) xVector(m module) {
	e.layerWeights(m)
	dim, kernel := e.sizes("tdnn_dim", []int{512, 512, 512, 512, 1500}), e.sizes("tdnn_kernel", []int{5, 3, 3, 1, 1})
	if len(kernel) < len(dim) {
		e.require(false, "tdnn_kernel has %d entries, tdnn_dim %d", len(kernel), len(dim))
		return
	}
	m.linear("projector", e.hidden, dim[0], true)
	in := dim[0]
	for i, out := range dim {
		m.child("tdnn").at(i).linear("kernel", in*kernel[i], out, true)
		in = out
	}
	embedding := e.size("xvector_output_dim", 512)
	m.linear("feature_extractor", 2*in, embedding, true)
	m.linear("classifier", embedding, embedding, true)
	m.parameter("objective.weight", embedding, e.labels())
}

// quantizer is the codebook of contrastive pre-training with its selector.
func (e *speechEncoder) quantizer(m module, in int) {
	groups, codes, size := e.size("num_codevector_groups", 2), e.size("num_codevectors_per_group", 320), e.codeSize()
	e.require(size%groups == 0, "codevector_dim %d is not a multiple of num_codevector_groups %d", size, groups)
	m.parameter("codevectors", 1, groups*codes, size/groups)
	m.linear("weight_proj", in, groups*codes, true)
}

func (e *speechEncoder) codeSize() int      { return e.size("codevector_dim", 256) }
func (e *speechEncoder) projectedCode() int { return e.size("proj_codevector_dim", 256) }

// contrastive is the pre-training head of wav2vec2: quantizer and the two projections that are compared.
func (e *speechEncoder) contrastive(prefix string) func(module) {
	return func(m module) {
		e.base(m.child(prefix))
		e.quantizer(m.child("quantizer"), e.lastConv())
		m.linear("project_hid", e.hidden, e.projectedCode(), true)
		m.linear("project_q", e.codeSize(), e.projectedCode(), true)
	}
}
