package model

// hubert is wav2vec2 whose projection may lack the norm and whose positions may use a batch norm instead of a weight
// norm. https://arxiv.org/abs/2106.07447
func hubert(f *fields) architecture {
	e := readSpeechEncoder(f)
	if !e.flag("feat_proj_layer_norm", true) {
		e.projection = func(m module) { m.linear("projection", e.lastConv(), e.hidden, true) }
	}
	if e.flag("conv_pos_batch_norm", false) {
		e.encoder = func(m module) {
			positions := m.child("pos_conv_embed")
			positions.conv1d("conv", e.hidden, e.hidden, e.size("num_conv_pos_embeddings", 128), e.positionGroups(), true)
			positions.norm("batch_norm", e.hidden)
			m.norm("layer_norm", e.hidden)
			m.transformer("layers", e.layers, e.transformerLayer)
		}
	}
	e.languageAdapters()
	return architecture{e.hidden, e.commonHeads("hubert")}
}
