package analytic

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// whisperConfig is what memory depends on in WhisperConfig.
type whisperConfig struct {
	Size          int64 `json:"d_model"`
	Hidden        int64 `json:"hidden_size"` // another name for d_model, and the one that counts when both are given
	EncoderLayers int   `json:"encoder_layers"`
	AnyLayers     int   `json:"num_hidden_layers"` // the same for encoder_layers
	DecoderLayers int   `json:"decoder_layers"`
	EncoderHeads  int64 `json:"encoder_attention_heads"`
	AnyHeads      int64 `json:"num_attention_heads"` // the same for encoder_attention_heads
	DecoderHeads  int64 `json:"decoder_attention_heads"`
	EncoderInner  int64 `json:"encoder_ffn_dim"`
	DecoderInner  int64 `json:"decoder_ffn_dim"`
	Vocabulary    int64 `json:"vocab_size"`
	Bins          int64 `json:"num_mel_bins"`
	Sources       int64 `json:"max_source_positions"`
	Targets       int64 `json:"max_target_positions"`
	Tied          bool  `json:"tie_word_embeddings"`
	Cache         bool  `json:"use_cache"`

	Dropout           float64   `json:"dropout"`
	AttentionDropout  float64   `json:"attention_dropout"`
	ActivationDropout float64   `json:"activation_dropout"`
	EncoderLayerDrop  layerDrop `json:"encoder_layerdrop"`
	DecoderLayerDrop  layerDrop `json:"decoder_layerdrop"`
}

// melFrameRate is that of Whisper's and Parakeet's features.
const melFrameRate = 100

func readWhisper(m *Model) error {
	c := whisperConfig{Size: 384, EncoderLayers: 4, DecoderLayers: 4, EncoderHeads: 6, DecoderHeads: 6, EncoderInner: 1536,
		DecoderInner: 1536, Vocabulary: 51865, Bins: 80, Sources: 1500, Targets: 448, Tied: true, Cache: true} // transformers 5.23
	if err := m.decode(&c); err != nil {
		return err
	}
	c.Size, c.EncoderLayers, c.EncoderHeads = cmp.Or(c.Hidden, c.Size), cmp.Or(c.AnyLayers, c.EncoderLayers), cmp.Or(c.AnyHeads, c.EncoderHeads)
	m.longest, m.mostLabels = float64(2*c.Sources)/melFrameRate, c.Targets
	m.generate, m.generateTexts = c.generateToken, c.generateTexts
	m.startTexts = func(t *tracker, clips, beams int64) { c.startTexts(t, clips, beams) }
	m.play = func(t *tracker, s Shape) (value, error) {
		if err := c.check(s, m.longest); err != nil {
			return value{}, err
		}
		w := c.over(t, dim{"batch", s.Batch}, s.Labels)
		w.encode()
		w.give(w.same(w.encoded))
		return w.decode(), nil
	}
	return nil
}

// over is the model at work on a batch with texts of so many tokens.
func (c whisperConfig) over(t *tracker, batch dim, tokens int64) *whisper {
	return &whisper{whisperConfig: c, tracker: t, batch: batch, size: dim{"hidden", c.Size},
		mel: dim{"mel frames", 2 * c.Sources}, frames: dim{"frames", c.Sources}, tokens: dim{"tokens", max(1, tokens)}}
}

// check refuses what the model refuses: its positions end.
func (c *whisperConfig) check(s Shape, longest float64) error {
	switch {
	case s.Seconds > longest:
		return fault.New(fault.InvalidArgument, "split the clips into pieces of that length",
			"%v s of audio are longer than the %v s that the model's positions allow", s.Seconds, longest)
	case s.Labels > c.Targets:
		return fault.New(fault.InvalidArgument, "split the clips, or leave long transcripts out",
			"%d labels are more than the %d that the model's positions allow", s.Labels, c.Targets)
	}
	return nil
}
