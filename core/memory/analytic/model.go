// Package analytic estimates the GPU memory of a training step from a transformers config alone: no torch, no GPU. It
// plays the model's forward and backward pass operation by operation (see tracker) with the size of every tensor that
// PyTorch's autograd saves, and reports the highest moment term by term. docs/memory-model.md has the formulas and
// the measured error.
package analytic

import (
	"cmp"
	"math"
	"sync"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Model is a model that was read once and can be estimated at many shapes. It is safe for concurrent use.
type Model struct {
	profile    profile.Model
	source     model.Description
	freeze     bool // the convolutional feature encoder does not train
	family     family
	longest    float64   // seconds that the model's positions allow; 0 without end
	mostLabels int64     // tokens that they allow; 0 without end
	overTime   bool      // a layer normalizes over time, so that results depend on padding
	adapters   int64     // parameters that LoRA adds
	adapted    *sync.Map // by rank: the model as LoRA trains it
	play       func(*tracker, Shape) (value, error)

	generate      func(t *tracker, clips, beams, tokens int64) // plays one token of the decoder; nil without one
	startTexts    func(t *tracker, clips, beams int64)         // plays the encoder and the first token
	generateTexts func(t *tracker, clips, beams, tokens int64) // plays the moments of a generation that take the most memory
}

// family is what the estimator knows of a model_type.
type family struct {
	class           string  // the class that is played
	labelsPerSecond float64 // of usual speech: characters for CTC, tokens for Whisper
	read            func(*Model) error
}

var families = map[string]family{
	"wav2vec2":       {"Wav2Vec2ForCTC", 15, readSpeech},
	"hubert":         {"HubertForCTC", 15, readSpeech},
	"wavlm":          {"WavLMForCTC", 15, readSpeech},
	"unispeech":      {"UniSpeechForCTC", 15, readSpeech},
	"unispeech-sat":  {"UniSpeechSatForCTC", 15, readSpeech},
	"data2vec-audio": {"Data2VecAudioForCTC", 15, readSpeech},
	"wav2vec2-bert":  {"Wav2Vec2BertForCTC", 15, readBert},
	"parakeet_ctc":   {"ParakeetForCTC", 15, readParakeet},
	"whisper":        {"WhisperForConditionalGeneration", 4, readWhisper},
}

const traceIt = `trace it: estimator="trace" works for any torch module`

// Read finds a model and its description here. Errors: those of model.Describe, and Unsupported for an architecture or
// class that is not described.
func Read(r model.Request) (*Model, error) {
	d, err := model.Describe(r)
	if err != nil {
		return nil, err
	}
	f, known := families[d.Profile.Architecture]
	if !known || d.Profile.ClassName != f.class {
		return nil, fault.New(fault.Unsupported, traceIt, "the memory of %s cannot be estimated from its config", cmp.Or(d.Profile.ClassName, d.Profile.Architecture))
	}
	m := &Model{profile: d.Profile, source: d, freeze: r.FreezeFeatureEncoder, family: f, adapted: &sync.Map{}}
	return m, f.read(m)
}

func (m *Model) decode(into any) error {
	if err := json.Unmarshal(m.source.Config, into); err != nil {
		return fault.Wrap(err, fault.InvalidArgument, "correct the config, or pass the live module", "reading the config")
	}
	return nil
}

// labels is a usual length of a transcript, as far as the model's positions allow.
func (m *Model) labels(seconds float64) int64 {
	usual := max(1, int64(math.RoundToEven(seconds*m.family.labelsPerSecond)))
	if m.mostLabels > 0 {
		usual = min(usual, m.mostLabels)
	}
	return usual
}

// ceil is the number of whole frames or samples that a duration takes; a millionth over counts as rounding.
func ceil(n float64) int64 { return int64(math.Ceil(n - 1e-6)) }

func tooShort(s Shape) error {
	return fault.New(fault.InvalidArgument, "give a longer duration", "%v s of audio are too short for the model's convolutions", s.Seconds)
}
