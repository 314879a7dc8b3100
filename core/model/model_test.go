package model

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func requireFault(t *testing.T, err error, code fault.Code, parts ...string) {
	t.Helper()
	require.Error(t, err)
	failure := fault.From(err)
	require.Equal(t, code, failure.Code, failure.Message)
	require.NotEmpty(t, failure.Hint, failure.Message)
	for _, part := range parts {
		require.Contains(t, failure.Message+"\n"+failure.Hint, part)
	}
}

func TestExactlyOneSource(t *testing.T) {
	_, err := Profile(Request{})
	requireFault(t, err, fault.InvalidArgument, "0 sources")
	_, err = Profile(Request{Name: "whisper-tiny", Folder: "."})
	requireFault(t, err, fault.InvalidArgument, "2 sources")
}

func TestNamesAreForgiving(t *testing.T) {
	for spelling, id := range map[string]string{
		"facebook/wav2vec2-xls-r-300m": "facebook/wav2vec2-xls-r-300m", "wav2vec2-xls-r-300m": "facebook/wav2vec2-xls-r-300m",
		"xls-r-300m": "facebook/wav2vec2-xls-r-300m", "XLS-R 300M": "facebook/wav2vec2-xls-r-300m", "XLSR_1B": "facebook/wav2vec2-xls-r-1b",
		"whisper-small": "openai/whisper-small", "Whisper Large v3": "openai/whisper-large-v3", "whisper-turbo": "openai/whisper-large-v3-turbo",
		"whisper tiny.en": "openai/whisper-tiny.en", "w2v-BERT 2.0": "facebook/w2v-bert-2.0", "MMS-1B-all": "facebook/mms-1b-all",
		"OpenAI/Whisper-Medium": "openai/whisper-medium", "WavLM base+": "microsoft/wavlm-base-plus", "distil-large-v3": "distil-whisper/distil-large-v3",
	} {
		m, err := Profile(Request{Name: spelling})
		require.NoError(t, err, spelling)
		require.Equal(t, id, m.Name, spelling)
	}
}

func TestEverySpellingIsOneModel(t *testing.T) {
	require.Len(t, Names(), len(catalogue()))
	owner := map[string]string{}
	for _, e := range catalogue() {
		_, short, ok := strings.Cut(e.ID, "/")
		require.True(t, ok, e.ID)
		for _, spelling := range append([]string{e.ID, short}, e.Aliases...) {
			key := normalise(spelling)
			require.Empty(t, owner[key], "%s is also %s", spelling, e.ID)
			owner[key] = e.ID
		}
	}
}

func TestUnknownNamesSuggest(t *testing.T) {
	for _, c := range []struct{ name, suggested string }{
		{"whisper-smal", "openai/whisper-small"}, {"facebok/wav2vec2-xls-r-300m", "facebook/wav2vec2-xls-r-300m"},
		{"someone/whisper-tiny", "openai/whisper-tiny"}, {"?", ""}, {strings.Repeat("x", 200), ""},
	} {
		_, err := Profile(Request{Name: c.name})
		requireFault(t, err, fault.NotFound, c.suggested)
	}
	_, err := Profile(Request{Name: strings.Repeat("x", 1<<20)})
	requireFault(t, err, fault.InvalidArgument)
}

// TestEveryKnownModelIsCounted, as it was published.
func TestEveryKnownModelIsCounted(t *testing.T) {
	for _, e := range catalogue() {
		m, err := Profile(Request{Name: e.ID})
		require.NoError(t, err, "run build/record_models.py --counts after changing catalogue.json")
		require.Equal(t, []any{e.ID, "catalogue", e.Parameters}, []any{m.Name, m.Source, m.TotalParameters})
		require.LessOrEqual(t, m.OptimizerBytes["adafactor"], guessedAdafactor(m.TrainableParameters), e.ID)
		published, err := Config(e.ID)
		require.NoError(t, err)
		require.Equal(t, m.ClassName, published.ClassName)
		require.NotEmpty(t, m.ClassName)
	}
	m, err := Profile(Request{Name: "tiny-wav2vec2"})
	require.NoError(t, err)
	require.EqualValues(t, 767698, m.TotalParameters)
}

func TestFreezingTheFeatureEncoder(t *testing.T) {
	for _, c := range []struct {
		name   string
		frozen int64 // torch's count of the convolutions, with group norm, with layer norm and bias
	}{{"wav2vec2-base", 4200448}, {"xls-r-300m", 4210176}} {
		full, err := Profile(Request{Name: c.name})
		require.NoError(t, err)
		part, err := Profile(Request{Name: c.name, FreezeFeatureEncoder: true})
		require.NoError(t, err)
		require.Equal(t, full.TotalParameters, part.TotalParameters)
		require.Equal(t, full.TrainableParameters-c.frozen, part.TrainableParameters)
		require.Equal(t, 8*part.TrainableParameters, part.OptimizerBytes["adamw"])
	}
	for _, name := range []string{"whisper-tiny", "w2v-bert-2.0"} {
		_, err := Profile(Request{Name: name, FreezeFeatureEncoder: true})
		requireFault(t, err, fault.Unsupported, "feature encoder")
	}
}

func TestCounts(t *testing.T) {
	one, big, hidden := int64(1), int64(maxElements+1), 64
	m, err := Profile(Request{Counts: &Counts{Total: 781_250_000}})
	require.NoError(t, err)
	require.Equal(t, int64(12_500_000_000), m.ParameterBytes+m.GradientBytes+m.OptimizerBytes["adamw"])
	require.Equal(t, "manual", m.Source)
	require.Equal(t, "custom", m.Architecture)
	require.Nil(t, m.HiddenSize)

	bytes, state := int64(22), int64(7)
	m, err = Profile(Request{Counts: &Counts{Total: 11, Trainable: &one, ParameterBytes: &bytes, GradientBytes: &one, AdafactorStateBytes: &state,
		ClassName: "Net", Architecture: "custom", HiddenSize: &hidden, Layers: &hidden, Name: "mine", Source: "module"}})
	require.NoError(t, err)
	require.Equal(t, []any{"mine", "Net", "module", int64(11), int64(1), int64(22), int64(1), 64, 64},
		[]any{m.Name, m.ClassName, m.Source, m.TotalParameters, m.TrainableParameters, m.ParameterBytes, m.GradientBytes, *m.HiddenSize, *m.Layers})
	require.Equal(t, map[string]int64{"adamw": 2, "adamw_8bit": 2, "adafactor": 7, "sgd": 0}, m.OptimizerBytes)

	zero, minus, minusInt := int64(0), int64(-1), -1
	for message, c := range map[string]Counts{
		"the model has no parameters": {}, "total parameters -1": {Total: -1}, "total parameters 1125899906842625": {Total: big},
		"no trainable parameters": {Total: 5, Trainable: &zero}, "trainable parameters -1": {Total: 5, Trainable: &minus},
		"range is 1 to total, 5": {Total: 5, Trainable: &bytes}, "parameter_bytes is -1": {Total: 5, ParameterBytes: &minus},
		"gradient_bytes is -1": {Total: 5, GradientBytes: &minus}, "adafactor_state_bytes is -1": {Total: 5, AdafactorStateBytes: &minus},
		"hidden_size is -1": {Total: 5, HiddenSize: &minusInt}, "layers is -1": {Total: 5, Layers: &minusInt}, `source is "x"`: {Total: 5, Source: "x"},
	} {
		_, err := Profile(Request{Counts: &c})
		requireFault(t, err, fault.InvalidArgument, message)
	}
	_, err = Profile(Request{Counts: &Counts{Total: 1}, FreezeFeatureEncoder: true})
	requireFault(t, err, fault.InvalidArgument, "freeze_feature_encoder")
}
