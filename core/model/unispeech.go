package model

// unispeech is wav2vec2 with a phonetic CTC head beside the contrastive one in pre-training. https://arxiv.org/abs/2101.07597
func unispeech(f *fields) architecture {
	e := readSpeechEncoder(f)
	e.languageAdapters()
	h := e.commonHeads("unispeech")
	h["ForPreTraining"] = func(m module) {
		e.base(m.child("unispeech"))
		e.quantizer(m.child("quantizer"), e.lastConv())
		m.linear("project_q", e.codeSize(), e.projectedCode(), true)
		m.linear("project_hid", e.projectedCode(), e.hidden, true)
		m.linear("ctc_proj", e.hidden, e.size("num_ctc_classes", 80), true)
	}
	return architecture{e.hidden, h}
}

// unispeechSAT always learns the mask vector and adds speaker-aware pre-training. https://arxiv.org/abs/2110.05752
func unispeechSAT(f *fields) architecture {
	e := readSpeechEncoder(f)
	e.maskVector = true
	e.languageAdapters()
	h := e.speakerHeads("unispeech_sat", e.commonHeads("unispeech_sat"))
	h["ForPreTraining"] = func(m module) {
		e.base(m.child("unispeech_sat"))
		e.quantizer(m.child("quantizer"), e.hidden)
		m.linear("project_q", e.codeSize(), e.projectedCode(), true)
		m.linear("project_hid", e.hidden, e.projectedCode(), true)
		m.linear("speaker_proj", e.hidden, e.codeSize(), true)
		m.parameter("label_embeddings_concat", e.size("num_clusters", 504), e.codeSize())
		m.norm("layer_norm_for_extract", e.hidden)
	}
	return architecture{e.hidden, h}
}
