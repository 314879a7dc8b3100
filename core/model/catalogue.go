package model

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

//go:embed catalogue.json
var catalogueJSON []byte

//go:embed counts.json
var countsJSON []byte // by build/record_models.py

// entry is one published checkpoint: the config values that fix its shapes, in transformers' names,
// and the dropouts and masking that decide what training keeps in memory where they are known to
// differ from the class defaults. A CTC checkpoint without a tokenizer of its own has the 32
// symbols of the class default; each further symbol adds hidden_size + 1.
type entry struct {
	ID string `json:"id"` // on the Hugging Face Hub
	// further spellings, beside the ID with and without its owner
	Aliases []string `json:"aliases"`
	// the class that fine-tuning trains, where no table of transformers says it
	ClassName  string          `json:"class_name"`
	Parameters int64           `json:"parameters"` // published fact for the tests; never an answer
	Config     json.RawMessage `json:"config"`
}

// The file also has, for people and the tests, "published", the rounded figure of the checkpoint's
// card, "" without one, and "values_from", the source of the config's values.

// counted is what the module of a known model has, as transformers builds it on the meta device: of
// the class that fine-tuning for speech recognition trains. All but tables of positions that never
// train are trainable.
type counted struct {
	Counts
	// elements of the convolutional feature encoder; 0 without one
	FrontEnd          int64 `json:"front_end"`
	FrontEndAdafactor int64 `json:"front_end_adafactor"` // bytes of Adafactor's state for them
}

var (
	catalogue = sync.OnceValue(func() []entry {
		return jsontext.Embedded[[]entry]("core/model/catalogue.json", catalogueJSON)
	})
	countsByID = sync.OnceValue(func() map[string]counted {
		return jsontext.Embedded[map[string]counted]("core/model/counts.json", countsJSON)
	})
)

// spellings are the normalised names of a model, with and without its owner.
func (e entry) spellings() (names []string) {
	_, short, _ := strings.Cut(e.ID, "/")
	for _, name := range append([]string{e.ID, short}, e.Aliases...) {
		names = append(names, normalise(name))
	}
	return names
}

// Names lists the known models by their ID on the Hugging Face Hub.
func Names() []string { return idsOf(catalogue()) }

func idsOf(entries []entry) []string {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	return ids
}

// normalise keeps letters and digits in lower case, and the slash after an owner; a plus sign is
// the word.
func normalise(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '/':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return -1
	}, strings.ReplaceAll(name, "+", "plus"))
}

const maxNameBytes = 200

func find(name string) (entry, error) {
	if len(name) > maxNameBytes {
		return entry{}, fault.New(fault.InvalidArgument,
			"pass a name such as facebook/wav2vec2-xls-r-300m", "the model name has %d bytes",
			len(name))
	}
	wanted := normalise(name)
	for _, e := range catalogue() {
		if slices.Contains(e.spellings(), wanted) {
			return e, nil
		}
	}
	wanted = wanted[strings.LastIndexByte(wanted, '/')+1:] // its owner aside
	closest := idsOf(fault.Closest(3, wanted, catalogue(), entry.spellings))
	return entry{}, fault.New(fault.NotFound,
		"known names like it: "+strings.Join(closest, ", ")+
			"; or pass the live module, its config or a folder with config.json",
		"no known model is named %q", fault.Shorten(name))
}

func fromName(r Request) (profile.Model, error) {
	id, counts := r.Name, countsByID()
	if _, there := counts[id]; !there { // but for the tiny ones, a name of the catalogue
		entry, err := find(r.Name)
		if err != nil {
			return profile.Model{}, err
		}
		id = entry.ID
	}
	c, there := counts[id]
	switch {
	case !there:
		return profile.Model{}, fault.New(fault.Unsupported,
			"pip install torch transformers, with which the model is built and counted",
			"%s was not counted", id)
	case r.FreezeFeatureEncoder && c.FrontEnd == 0:
		return profile.Model{}, fault.New(fault.Unsupported, "leave freeze_feature_encoder out",
			"%s has no feature encoder to freeze", c.ClassName)
	}
	c.Name, c.Source = id, "catalogue"
	if r.FreezeFeatureEncoder {
		trainable, adafactor := *c.Trainable-c.FrontEnd, *c.AdafactorStateBytes-c.FrontEndAdafactor
		c.Trainable, c.AdafactorStateBytes = &trainable, &adafactor
	}
	return fromCounts(c.Counts)
}

// Published is a known checkpoint as the catalogue holds it.
type Published struct {
	Name string `json:"name"` // ID on the Hugging Face Hub
	// the class of transformers that fine-tuning for speech recognition trains
	ClassName string `json:"class_name"`
	// model_type and every field that differs from the class default and fixes shapes
	Config json.RawMessage `json:"config"`
}

// Config returns the transformers config of a known model: AutoConfig.for_model(**config) builds a
// module of the same shapes. Errors: InvalidArgument (a name that is too long), NotFound.
func Config(name string) (Published, error) {
	entry, err := find(name)
	if err != nil {
		return Published{}, err
	}
	return Published{entry.ID, cmp.Or(entry.ClassName, countsByID()[entry.ID].ClassName),
		entry.Config}, nil
}
