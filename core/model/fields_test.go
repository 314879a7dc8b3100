package model

import (
	"strings"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func TestWrongConfigValuesNameTheField(t *testing.T) {
	for _, c := range []struct{ kind, fields, message string }{
		{"wav2vec2", `"hidden_size": "768"`, `hidden_size is "768"; it must be a whole number from 1 to 1048576`},
		{"wav2vec2", `"hidden_size": -768`, "hidden_size is -768"}, {"wav2vec2", `"hidden_size": 768.5`, "hidden_size is 768.5"},
		{"wav2vec2", `"hidden_size": 1e3`, "hidden_size is 1e3"}, {"wav2vec2", `"hidden_size": null`, "hidden_size is null"},
		{"wav2vec2", `"hidden_size": NaN`, "hidden_size is NaN; it must be a finite number"},
		{"wav2vec2", `"mask_time_prob": -Infinity`, "mask_time_prob is -Infinity"},
		{"wav2vec2", `"hidden_size": 99999999999999999999`, "hidden_size is 99999999999999999999"},
		{"wav2vec2", `"hidden_size": 0`, "hidden_size is 0"}, {"wav2vec2", `"hidden_size": [1]`, "hidden_size is [1]"},
		{"wav2vec2", `"hidden_size": 2097152`, "hidden_size is 2097152"}, {"wav2vec2", `"hidden_size": true`, "hidden_size is true"},
		{"wav2vec2", `"num_hidden_layers": 5000`, "num_hidden_layers is 5000; it must be a whole number from 0 to 4096"},
		{"wav2vec2", `"num_attention_heads": 7`, "hidden_size 768 is not a multiple of num_attention_heads 7"},
		{"wav2vec2", `"num_conv_pos_embedding_groups": 7`, "not a multiple of num_conv_pos_embedding_groups 7"},
		{"wav2vec2", `"mask_time_prob": "often"`, `mask_time_prob is "often"; it must be a finite number`},
		{"wav2vec2", `"conv_bias": 1`, "conv_bias is 1; it must be true or false"},
		{"wav2vec2", `"conv_dim": 512`, "conv_dim is 512; it must be a list"}, {"wav2vec2", `"conv_dim": []`, "conv_dim is []"},
		{"wav2vec2", `"conv_dim": [512, -1]`, "conv_dim is [512, -1]"}, {"wav2vec2", `"conv_dim": [512, "x"]`, `conv_dim is [512, "x"]`},
		{"wav2vec2", `"conv_dim": [512]`, "have 1, 7 and 7 entries"},
		{"wav2vec2", `"conv_kernel": [` + strings.Repeat("1,", 70) + `1]`, "conv_kernel is [1,1"},
		{"wav2vec2", `"feat_extract_norm": "batch"`, `feat_extract_norm is "batch"`}, {"wav2vec2", `"feat_extract_norm": 3`, "feat_extract_norm is 3"},
		{"wav2vec2", `"vocab_size": null`, "vocab_size is not set"}, {"wav2vec2-bert", `"hidden_size": 1024`, "vocab_size is not set"},
		{"wav2vec2", `"architectures": "Wav2Vec2ForCTC"`, "architectures is"}, {"wav2vec2", `"_name_or_path": 7`, "_name_or_path is 7"},
		{"wav2vec2-bert", `"conv_depthwise_kernel_size": 4, "vocab_size": 5`, "must be odd"},
		{"wav2vec2-bert", `"position_embeddings_type": "learned", "vocab_size": 5`, `position_embeddings_type is "learned"`},
		{"wav2vec2-bert", `"use_intermediate_ffn_before_adapter": true, "vocab_size": 5`, "add_adapter"},
		{"whisper", `"d_model": 512`, "d_model 512 is not a multiple of encoder_attention_heads 6"},
		{"parakeet_ctc", `"encoder_config": {"hidden_size": 0}`, "encoder_config.hidden_size is 0"},
		{"parakeet_ctc", `"encoder_config": [1]`, "encoder_config is [1]; it must be an object"},
		{"parakeet_ctc", `"encoder_config": {"num_mel_bins": 4}`, "num_mel_bins"},
		{"speech_to_text", `"num_conv_layers": 3`, "conv_kernel_sizes has 2 entries, num_conv_layers is 3"},
		{"wav2vec2", `"hidden_size": 1048576, "intermediate_size": 1048576, "num_attention_heads": 16, "num_hidden_layers": 4096`, "over 2^50 parameters"},
	} {
		t.Run(c.message, func(t *testing.T) {
			_, err := Profile(config(`{"model_type": %q, %s}`, c.kind, c.fields))
			requireFault(t, err, fault.InvalidArgument, c.message)
		})
	}
}

func TestConfigsThatAreNone(t *testing.T) {
	for text, message := range map[string]string{
		`[]`: "not a JSON object", `{`: "not a JSON object", `"wav2vec2"`: "not a JSON object", `{}`: "no model_type",
		`{"model_type": null}`: "no model_type", `{"model_type": 5}`: "model_type is 5",
		strings.Repeat("[", 100_000): "not a JSON object", strings.Repeat(" ", maxConfigBytes) + "{}x": "not a JSON object",
		`{"x": "` + strings.Repeat("y", maxConfigBytes) + `"}`: "the limit is 4194304",
	} {
		_, err := Profile(Request{Config: json.RawMessage(text)})
		requireFault(t, err, fault.InvalidArgument, message)
	}
	_, err := Profile(config(`{"model_type": "llama"}`))
	requireFault(t, err, fault.Unsupported, `"llama"`, "live module")
}

func TestAdapterForbidsClassification(t *testing.T) {
	r := config(`{"model_type": "wav2vec2", "add_adapter": true}`)
	r.Head = "ForSequenceClassification"
	_, err := Profile(r)
	requireFault(t, err, fault.InvalidArgument, "add_adapter")
}

// The common names of transformers' attribute_map win over the family's own, as they do there.
func TestWhisperAliases(t *testing.T) {
	m, err := Profile(config(`{"model_type": "whisper", "d_model": 384, "hidden_size": 768, "encoder_layers": 4, "num_hidden_layers": 7}`))
	require.NoError(t, err)
	require.Equal(t, 768, *m.HiddenSize)
	require.Equal(t, 7+4, *m.Layers)
}

// Any text gives an error of a known class, or a model whose numbers agree with each other.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		`{"model_type": "wav2vec2", "conv_dim": [1, 2], "conv_kernel": [3, 4], "conv_stride": [1, 1], "adapter_attn_dim": 3}`,
		`{"model_type": "wav2vec2-bert", "vocab_size": 9, "add_adapter": true, "output_hidden_size": null}`,
		`{"model_type": "whisper", "tie_word_embeddings": false, "id2label": {"0": "a"}}`,
		`{"model_type": "parakeet_ctc", "encoder_config": {"subsampling_factor": 1}}`, `{"model_type": "speech_to_text", "conv_kernel_sizes": [3], "num_conv_layers": 1}`,
		`{"model_type": "hubert", "hidden_size": NaN}`, `{"model_type": "wavlm", "num_hidden_layers": 0}`, `null`, `[]`, `{"model_type": "data2vec-audio"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Profile(Request{Config: raw})
		if err != nil {
			require.Contains(t, []fault.Code{fault.InvalidArgument, fault.Unsupported}, fault.From(err).Code, err.Error())
			return
		}
		require.Positive(t, m.TrainableParameters)
		require.LessOrEqual(t, m.TrainableParameters, m.TotalParameters)
		require.LessOrEqual(t, m.TotalParameters, int64(maxElements))
		require.LessOrEqual(t, m.OptimizerBytes["adafactor"], 8*m.TrainableParameters)
	})
}
