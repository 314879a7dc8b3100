package analytic

import "github.com/asrconfig/asrconfig-go/core/fault"

// speechConfig is what memory depends on in the config of wav2vec2 and its descendants. core/model has checked the sizes
// that it counts by.
type speechConfig struct {
	Hidden     int64   `json:"hidden_size"`
	Layers     int     `json:"num_hidden_layers"`
	Heads      int64   `json:"num_attention_heads"`
	Inner      int64   `json:"intermediate_size"`
	Vocabulary int64   `json:"vocab_size"`
	ConvDim    []int64 `json:"conv_dim"`
	ConvKernel []int64 `json:"conv_kernel"`
	ConvStride []int64 `json:"conv_stride"`
	ConvBias   bool    `json:"conv_bias"`
	ConvNorm   string  `json:"feat_extract_norm"`
	Positions  int64   `json:"num_conv_pos_embeddings"` // taps of the positional convolution; data2vec: how many there are
	StackTaps  int64   `json:"conv_pos_kernel_size"`    // data2vec: taps of each
	Groups     int64   `json:"num_conv_pos_embedding_groups"`
	BatchNorm  bool    `json:"conv_pos_batch_norm"` // HuBERT: before the positional convolution, without weight norm
	Stable     bool    `json:"do_stable_layer_norm"`
	FeatNorm   bool    `json:"feat_proj_layer_norm"` // HuBERT
	Language   int64   `json:"adapter_attn_dim"`     // MMS
	Buckets    int64   `json:"num_buckets"`          // WavLM: rows of the table of relative positions
	MaskTime   float64 `json:"mask_time_prob"`
	Augment    bool    `json:"apply_spec_augment"`

	Adapter     bool  `json:"add_adapter"`
	AdapterTaps int64 `json:"adapter_kernel_size"`
	AdapterStep int64 `json:"adapter_stride"`
	AdapterN    int   `json:"num_adapter_layers"`
	AdapterSize int64 `json:"output_hidden_size"`

	HiddenDropout     float64   `json:"hidden_dropout"`
	ActivationDropout float64   `json:"activation_dropout"`
	AttentionDropout  float64   `json:"attention_dropout"`
	ProjectDropout    float64   `json:"feat_proj_dropout"`
	FinalDropout      float64   `json:"final_dropout"`
	LayerDrop         layerDrop `json:"layerdrop"`
}

// speechDefaults are those of Wav2Vec2Config (transformers 5.23).
func speechDefaults() speechConfig {
	return speechConfig{Hidden: 768, Layers: 12, Heads: 12, Inner: 3072, Vocabulary: 32,
		ConvDim: []int64{512, 512, 512, 512, 512, 512, 512}, ConvKernel: []int64{10, 3, 3, 3, 3, 2, 2}, ConvStride: []int64{5, 2, 2, 2, 2, 2, 2},
		ConvNorm: "group", Positions: 128, Groups: 16, FeatNorm: true, Buckets: 320, MaskTime: 0.05, Augment: true,
		AdapterTaps: 3, AdapterStep: 2, AdapterN: 3,
		HiddenDropout: 0.1, ActivationDropout: 0.1, AttentionDropout: 0.1, FinalDropout: 0.1, LayerDrop: 0.1}
}

// readSpeech reads the config of every family that speechEncoder plays.
func readSpeech(m *Model) error {
	c := speechDefaults()
	if m.profile.Architecture == data2vec {
		c.Positions, c.StackTaps = 5, 19
	}
	if err := m.decode(&c); err != nil {
		return err
	}
	m.overTime = c.ConvNorm == "group" && m.profile.Architecture != data2vec
	m.play = func(t *tracker, s Shape) (value, error) {
		e := newSpeechEncoder(m, c, t, s)
		e.samples = ceil(s.Seconds * sampleRate)
		counts := c.frameCounts(e.samples)
		if e.sized(counts[len(counts)-1]); e.frames.n == 0 {
			return value{}, tooShort(s)
		}
		return e.forward(), nil
	}
	return c.checkAdapter()
}

const sampleRate = 16000 // of every model here

// checkAdapter looks at fields that change no parameter count, hence have not been looked at yet.
func (c *speechConfig) checkAdapter() error {
	if c.AdapterStep < 1 || c.AdapterStep > 1<<20 {
		return fault.New(fault.InvalidArgument, "correct the config", "adapter_stride is %d; it must be a whole number from 1 to 1048576", c.AdapterStep)
	}
	return nil
}

// frameCounts gives the length after each convolution, floor((n - kernel) / stride) + 1; zero where nothing is left.
func (c *speechConfig) frameCounts(samples int64) []int64 {
	out := make([]int64, len(c.ConvDim))
	for i := range out {
		if samples < c.ConvKernel[i] {
			break
		}
		samples = (samples-c.ConvKernel[i])/c.ConvStride[i] + 1
		out[i] = samples
	}
	return out
}
