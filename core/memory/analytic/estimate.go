// Package analytic estimates the GPU memory of a training step from a transformers config alone: no torch, no GPU. It
// plays the model's forward and backward pass operation by operation (see tape) with the sizes of every tensor that
// PyTorch's autograd saves, and reports the highest moment, term by term. docs/analytic-memory.md has the formulas and
// the measured error.
package analytic

import (
	"math"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Model is a model that was read once and can be estimated at many shapes.
type Model struct {
	profile  profile.Model
	config   json.RawMessage
	freeze   bool // the convolutional feature encoder does not train
	family   family
	speech   speechConfig
	bert     bertConfig
	whisper  whisperConfig
	parakeet parakeetConfig
}

// player plays one forward pass on a tape and gives the loss.
type player func(m *Model, t *tape, s Shape) (value, error)

// family is what the estimator knows of a model_type.
type family struct {
	class           string // the class that is played
	labelsPerSecond float64
	read            func(m *Model) error
	play            player
}

var families = map[string]family{
	"wav2vec2":       {"Wav2Vec2ForCTC", 15, readSpeech, playSpeech},
	"hubert":         {"HubertForCTC", 15, readSpeech, playSpeech},
	"unispeech":      {"UniSpeechForCTC", 15, readSpeech, playSpeech},
	"unispeech-sat":  {"UniSpeechSatForCTC", 15, readSpeech, playSpeech},
	"data2vec-audio": {"Data2VecAudioForCTC", 15, readSpeech, playSpeech},
	"wavlm":          {"WavLMForCTC", 15, readSpeech, playSpeech},
	"wav2vec2-bert":  {"Wav2Vec2BertForCTC", 15, readBert, playBert},
	"parakeet_ctc":   {"ParakeetForCTC", 15, readParakeet, playParakeet},
	"whisper":        {"WhisperForConditionalGeneration", 4, readWhisper, playWhisper},
}

// Make reads the model of a request and estimates its step.
func Make(r Request) (Estimate, error) {
	r.Model.FreezeFeatureEncoder = r.Model.FreezeFeatureEncoder || r.FreezeFeatureEncoder
	m, err := Read(r.Model)
	if err != nil {
		return Estimate{}, err
	}
	return m.Estimate(r)
}

// Read finds a model and checks that its memory can be estimated. Errors: those of model.Describe, and Unsupported for an
// architecture or class without a description here.
func Read(r model.Request) (*Model, error) {
	m, config, err := model.Describe(r)
	if err != nil {
		return nil, err
	}
	f, known := families[m.Architecture]
	if !known || m.ClassName != f.class {
		return nil, fault.New(fault.Unsupported, "trace it: estimator trace works for any torch module",
			"the memory of %s cannot be estimated from its config", m.ClassName)
	}
	out := &Model{profile: m, config: config, freeze: r.FreezeFeatureEncoder, family: f}
	return out, f.read(out)
}

func readSpeech(m *Model) error {
	m.speech = speechDefaults()
	switch m.profile.Architecture {
	case "data2vec-audio":
		m.speech.Positions, m.speech.PositionTap = 5, 19
	}
	return m.decode(&m.speech)
}

func (m *Model) decode(into any) error {
	if err := json.Unmarshal(m.config, into); err != nil {
		return fault.Wrap(err, fault.InvalidArgument, "correct the config, or pass the live module", "reading the config")
	}
	return nil
}

func playSpeech(m *Model, t *tape, s Shape) (value, error) {
	e := &speechEncoder{speechConfig: m.speech, tape: t, kind: m.profile.Architecture, shape: s, freeze: m.freeze, bias: nothing}
	e.samples = int64(math.Ceil(s.Seconds*16000 - 1e-6))
	counts := e.frameCounts(e.samples)
	e.sized(counts[len(counts)-1])
	if e.frames.n == 0 {
		return value{}, fault.New(fault.InvalidArgument, "give a longer duration", "%v s of audio are too short for the model's convolutions", s.Seconds)
	}
	return e.forward(), nil
}
