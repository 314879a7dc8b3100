package model

// wav2vec2 also covers XLS-R and MMS. https://arxiv.org/abs/2006.11477, https://arxiv.org/abs/2305.13516
func wav2vec2(f *fields) architecture {
	e := readSpeechEncoder(f)
	e.adapter = e.lengthAdapter
	e.languageAdapters()
	h := e.speakerHeads("wav2vec2", e.commonHeads("wav2vec2"))
	h["ForPreTraining"] = e.contrastive("wav2vec2")
	return architecture{e.hidden, h}
}
