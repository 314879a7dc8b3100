package analytic

import (
	"fmt"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/model"
)

// oneOfEach is a model of each kind of code that is played.
var oneOfEach = []string{"facebook/wav2vec2-base", "facebook/wav2vec2-xls-r-300m", "facebook/mms-1b-all", "facebook/hubert-large-ll60k",
	"microsoft/unispeech-sat-base", "facebook/data2vec-audio-base", "microsoft/wavlm-base-plus", "microsoft/wavlm-large",
	"facebook/w2v-bert-2.0", "nvidia/parakeet-ctc-0.6b", "openai/whisper-tiny", "distil-whisper/distil-small.en"}

// variants are configs with parts that the known models lack.
var variants = []string{
	`{"model_type": "wav2vec2", "do_stable_layer_norm": true, "feat_extract_norm": "layer", "add_adapter": true, "output_hidden_size": 512}`,
	`{"model_type": "hubert", "conv_pos_batch_norm": true, "feat_proj_layer_norm": false}`,
	`{"model_type": "wav2vec2-bert", "vocab_size": 40, "add_adapter": true, "use_intermediate_ffn_before_adapter": true, "output_hidden_size": 512}`,
	`{"model_type": "wav2vec2-bert", "vocab_size": 40, "position_embeddings_type": null}`,
	`{"model_type": "whisper", "dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1, "tie_word_embeddings": false}`,
	`{"model_type": "unispeech", "num_conv_pos_embeddings": 19, "num_hidden_layers": 1}`,
}

func everyModel(t *testing.T, check func(t *testing.T, m *Model)) {
	requests := []model.Request{}
	for _, name := range oneOfEach {
		requests = append(requests, model.Request{Name: name})
	}
	for _, config := range variants {
		requests = append(requests, model.Request{Config: json.RawMessage(config)})
	}
	for i, r := range requests {
		for _, freeze := range []bool{false, true} {
			r.FreezeFeatureEncoder = freeze
			m, err := Read(r)
			if freeze && err != nil {
				require.Equal(t, fault.Unsupported, fault.From(err).Code) // no feature encoder
				continue
			}
			require.NoError(t, err, "model %d", i)
			t.Run(fmt.Sprintf("%s/%d/frozen=%v", m.profile.ClassName, i, freeze), func(t *testing.T) { check(t, m) })
		}
	}
}

// everySetting is each way of playing a model that changes its operations.
func everySetting() (out []settings) {
	for bits := range 16 {
		on := func(i int) bool { return bits>>i&1 == 1 }
		s := settings{checkpointing: on(0), padded: on(1), eager: on(2) && on(3), gpu: capability{8, 0}}
		for _, low := range []bool{false, true} {
			s.low = low
			if s.bfloat = low && on(2); low && on(3) {
				s.gpu = capability{7, 5}
			}
			out = append(out, s)
		}
	}
	return out
}

// TestNothingIsLeft plays every model in every way: after the backward pass only the gradients and the batch live, and the
// gradients are those of the parameters that core/model counts.
func TestNothingIsLeft(t *testing.T) {
	everyModel(t, func(t *testing.T, m *Model) {
		trained := int64(0)
		require.NoError(t, m.source.EachParameter(func(dims []int, trainable bool) {
			if trainable {
				n := int64(4)
				for _, d := range dims {
					n *= int64(d)
				}
				trained += allocated(n)
			}
		}))
		for _, set := range everySetting() {
			p := newTracker(set)
			loss, err := m.play(p, Shape{Batch: 3, Seconds: 2.3, Labels: 7})
			require.NoError(t, err)
			p.endForward()
			p.runBackward(loss)
			for _, at := range p.batch {
				p.release(at)
			}
			require.Equal(t, trained, p.live.parts[gradients], "%+v", set)
			require.Equal(t, trained, p.live.total, "%+v", set)
		}
	})
}

// TestEveryLayerPlayedGivesTheSame compares three layers of a stack, one of them standing for many, with all of them.
func TestEveryLayerPlayedGivesTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	everyModel(t, func(t *testing.T, m *Model) {
		for _, set := range everySetting() {
			var peaks [2][phases]int64
			for i := range peaks {
				p := newTracker(set)
				if i == 1 {
					p.device = &simulator{alloc: allocator.New(allocator.Settings{})}
				}
				loss, err := m.play(p, Shape{Batch: 2, Seconds: 3, Labels: 11})
				require.NoError(t, err)
				p.endForward()
				peaks[i][0], p.highest = p.highest.peak.total, &highWater{}
				p.runBackward(loss)
				peaks[i][1], peaks[i][2] = p.highest.peak.total, p.live.total
			}
			require.Equal(t, peaks[1], peaks[0], "%+v", set)
		}
	})
}

func TestReadRefuses(t *testing.T) {
	tests := []struct {
		name, config string
		code         fault.Code
		message      string
	}{
		{"an architecture that is counted but not played", `{"model_type": "speech_to_text"}`, fault.Unsupported, "the memory of Speech2TextForConditionalGeneration cannot be estimated from its config"},
		{"another head", `{"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForSequenceClassification"]}`, fault.Unsupported, "the memory of Wav2Vec2ForSequenceClassification cannot"},
		{"positions that are not played", `{"model_type": "wav2vec2-bert", "vocab_size": 9, "position_embeddings_type": "rotary"}`, fault.Unsupported, `position_embeddings_type "rotary"`},
		{"every layer skipped", `{"model_type": "wav2vec2", "layerdrop": 1}`, fault.InvalidArgument, "reading the config"},
		{"a word for a number", `{"model_type": "wav2vec2", "hidden_dropout": "much"}`, fault.InvalidArgument, "reading the config"},
		{"a stride of nothing", `{"model_type": "wav2vec2", "adapter_stride": 0}`, fault.InvalidArgument, "adapter_stride is 0"},
		{"no model type", `{}`, fault.InvalidArgument, "no model_type"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Read(model.Request{Config: json.RawMessage(test.config)})
			require.ErrorContains(t, err, test.message)
			require.Equal(t, test.code, fault.From(err).Code)
			require.NotEmpty(t, fault.From(err).Hint)
		})
	}
	_, err := Read(model.Request{Counts: &model.Counts{Total: 10}})
	require.Equal(t, fault.Unsupported, fault.From(err).Code)
}

// TestHostileConfigs sets every number of every config to sizes that no model has: an answer or an error, never a panic.
func TestHostileConfigs(t *testing.T) {
	for _, name := range oneOfEach {
		known, err := model.Config(name)
		require.NoError(t, err)
		var config map[string]any
		require.NoError(t, json.Unmarshal(known.Config, &config))
		for _, extra := range []string{"adapter_stride", "adapter_kernel_size", "num_adapter_layers", "output_hidden_size", "left_max_position_embeddings",
			"conv_depthwise_kernel_size", "feature_projection_input_dim", "num_buckets", "hidden_size", "num_hidden_layers", "num_attention_heads"} {
			config[extra] = 3.0
			hostile(t, config, extra)
			delete(config, extra)
		}
		for key := range config {
			if _, number := config[key].(float64); number {
				hostile(t, config, key)
			}
		}
		if inner, nested := config["encoder_config"].(map[string]any); nested {
			for key := range inner {
				before := inner[key]
				for _, n := range hostileNumbers {
					inner[key] = n
					answers(t, config)
				}
				inner[key] = before
			}
		}
	}
}

var hostileNumbers = []float64{0, 1, -1, 2, 5, 1 << 20, 1 << 40, 0.5}

func hostile(t *testing.T, config map[string]any, key string) {
	before := config[key]
	for _, adapter := range []bool{false, true} {
		config["add_adapter"] = adapter
		for _, n := range hostileNumbers {
			config[key] = n
			answers(t, config)
		}
	}
	delete(config, "add_adapter")
	config[key] = before
}

// answers asks for an estimate, whichever it is.
func answers(t *testing.T, config map[string]any) {
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	require.NotPanics(t, func() {
		e, err := Make(Request{Model: model.Request{Config: raw}, Batch: 2, Seconds: 3})
		if err == nil {
			require.Positive(t, int64(e.PeakAllocated), "%s", raw)
		}
	}, "%s", raw)
}
