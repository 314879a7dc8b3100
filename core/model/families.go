package model

import (
	"cmp"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// heads maps what follows the family's stem in a class name ("ForCTC", "Model") to the declaration of that class.
type heads map[string]func(module)

// architecture is a config, read.
type architecture struct {
	hidden int
	heads  heads
}

// family is one model_type of transformers.
type family struct {
	stem  string // of its class names
	tuned string // the head that fine-tuning for speech recognition trains
	read  func(*fields) architecture
}

// families is every model_type that can be counted. To add one: a file that declares it, a row here, rows in
// testdata/make_golden.py.
var families = map[string]family{
	"wav2vec2":           {"Wav2Vec2", "ForCTC", wav2vec2},
	"wav2vec2-conformer": {"Wav2Vec2Conformer", "ForCTC", wav2vec2Conformer},
	"wav2vec2-bert":      {"Wav2Vec2Bert", "ForCTC", wav2vec2Bert},
	"hubert":             {"Hubert", "ForCTC", hubert},
	"wavlm":              {"WavLM", "ForCTC", wavlm},
	"data2vec-audio":     {"Data2VecAudio", "ForCTC", data2vecAudio},
	"unispeech":          {"UniSpeech", "ForCTC", unispeech},
	"unispeech-sat":      {"UniSpeechSat", "ForCTC", unispeechSAT},
	"whisper":            {"Whisper", "ForConditionalGeneration", whisper},
	"speech_to_text":     {"Speech2Text", "ForConditionalGeneration", speech2Text},
	"parakeet_ctc":       {"Parakeet", "ForCTC", parakeetCTC},
}

// pickHead gives the class to count: what the caller asks for ("Wav2Vec2ForCTC" or "ForCTC"), else the class that the
// config names in "architectures" when it is one for fine-tuning, else the family's. A published checkpoint that names
// Wav2Vec2ForPreTraining or the bare Wav2Vec2Model says how it was made, not what a user trains.
func (f family) pickHead(asked, named string, known heads) (string, error) {
	head := strings.TrimPrefix(asked, f.stem)
	if asked == "" {
		head = strings.TrimPrefix(named, f.stem)
		if head == "" || head == "Model" || head == "ForPreTraining" {
			head = f.tuned
		}
	}
	if _, there := known[head]; !there {
		names := make([]string, 0, len(known))
		for name := range known {
			names = append(names, f.stem+name)
		}
		slices.Sort(names)
		return "", fault.New(fault.Unsupported, "set head to one of "+strings.Join(names, ", ")+"; or pass the live module",
			"the parameters of class %q cannot be counted from a config", fault.Shorten(cmp.Or(asked, named)))
	}
	return head, nil
}

// counted is a class whose parameters were summed.
type counted struct {
	parameterCounter
	class  string
	hidden int
}

// countConfig sums the parameters of the class that a config describes. visit, when set, sees every one.
func countConfig(f *fields, kind family, asked string, freezeFrontEnd bool, visit func(string, bool, []int)) (counted, error) {
	built := kind.read(f)
	head, err := kind.pickHead(asked, f.firstOf("architectures"), built.heads)
	if err != nil {
		return counted{}, err
	}
	c := counted{class: kind.stem + head, hidden: built.hidden}
	c.parameterCounter = parameterCounter{problems: f.problems, visit: visit, freezeFrontEnd: freezeFrontEnd}
	built.heads[head](module{tally: &c.parameterCounter})
	if f.problems.err != nil {
		return counted{}, f.problems.err
	}
	if freezeFrontEnd && !c.hasFrontEnd {
		return counted{}, fault.New(fault.Unsupported, "leave freeze_feature_encoder out; for other frozen parts pass the live module",
			"%s has no convolutional feature encoder that transformers can freeze", c.class)
	}
	return c, nil
}
