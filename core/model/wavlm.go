package model

// wavlm is wav2vec2 with gated relative positions in the attention; the table of buckets lies in the first layer and
// serves all. https://arxiv.org/abs/2110.13900
func wavlm(f *fields) architecture {
	e := readSpeechEncoder(f)
	e.adapter = e.lengthAdapter
	e.attention = func(m module, i int) {
		e.plainAttention(m, i)
		m.parameter("gru_rel_pos_const", 1, e.heads, 1, 1)
		m.linear("gru_rel_pos_linear", e.hidden/e.heads, 8, true)
		if i == 0 {
			m.embedding("rel_attn_embed", e.size("num_buckets", 320), e.heads)
		}
	}
	return architecture{e.hidden, e.speakerHeads("wavlm", e.commonHeads("wavlm"))}
}
