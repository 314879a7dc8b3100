package model

// data2vecAudio is wav2vec2 with a norm after every convolution and a stack of plain grouped convolutions for positions.
// https://arxiv.org/abs/2202.03555
func data2vecAudio(f *fields) architecture {
	e := readSpeechEncoder(f)
	e.adapter = e.lengthAdapter
	e.frontEnd = func(m module) { e.convolutions(m, true) }
	e.encoder = func(m module) {
		for i := range e.fields.layers("num_conv_pos_embeddings", 5) {
			m.child("pos_conv_embed.layers").at(i).conv1d("conv", e.hidden, e.hidden, e.size("conv_pos_kernel_size", 19), e.positionGroups(), true)
		}
		m.norm("layer_norm", e.hidden)
		m.transformer("layers", e.layers, e.transformerLayer)
	}
	return architecture{e.hidden, e.speakerHeads("data2vec_audio", e.commonHeads("data2vec_audio"))}
}
