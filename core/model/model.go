// Package model tells how large a speech model is, from a transformers config, a folder, a known name or the counts of a
// live module. Counts from a config equal those of the torch module built from it: each family declares its parameters
// by name and shape as the module tree does, and nothing is fitted.
package model

import (
	"bytes"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Request names the model by exactly one of Name, Config, Folder and Counts.
type Request struct {
	Name   string          `json:"name"`   // known name, forgiving in case, signs and prefix: see Names
	Config json.RawMessage `json:"config"` // a transformers config: config.json, config.to_dict()
	Folder string          `json:"folder"` // holds config.json and, for architectures not known here, *.safetensors
	Counts *Counts         `json:"counts"` // a live module, or a profile made by hand

	// Head is the class to count ("Wav2Vec2ForSequenceClassification", or "ForSequenceClassification"). "" counts the class
	// that the config names when that is one for fine-tuning, else the family's own for speech recognition: ForCTC,
	// ForConditionalGeneration.
	Head string `json:"head"`
	// FreezeFeatureEncoder counts the convolutional front end as frozen, as model.freeze_feature_encoder() makes it.
	FreezeFeatureEncoder bool `json:"freeze_feature_encoder"`
}

// Profile measures the model. Errors: InvalidArgument (not exactly one source, a config value out of range, no
// parameters), NotFound (unknown name, missing folder or file), Unsupported (an architecture or class that cannot be
// counted from a config), Corrupt (a weights file that breaks its format).
func Profile(r Request) (profile.Model, error) {
	config, err := r.check()
	switch {
	case err != nil:
		return profile.Model{}, err
	case r.Counts != nil:
		return fromCounts(r)
	case r.Name != "":
		return fromName(r)
	case r.Folder != "":
		return fromFolder(r)
	default:
		return fromConfig(r, config)
	}
}

// Description is a model with the config that its profile was read from, for who must know more than counts.
type Description struct {
	Profile profile.Model
	Config  json.RawMessage
	request Request
}

// Describe is Profile with what it was read from. Errors are Profile's, and Unsupported for a counted module, which does
// not tell its layers.
func Describe(r Request) (Description, error) {
	config, err := r.check()
	switch {
	case err != nil:
	case r.Counts != nil:
		err = fault.New(fault.Unsupported, "pass the module's config, a folder or a known name", "a counted module has no layers to estimate from")
	case r.Name != "":
		var entry known
		entry, err = find(r.Name)
		config = entry.Config
	case r.Folder != "":
		config, err = folderConfig(r.Folder)
	}
	if err != nil {
		return Description{}, err
	}
	m, err := Profile(r)
	return Description{m, config, r}, err
}

// EachParameter visits the parameters in the order in which the module declares them. Errors: Unsupported for an
// architecture that is not counted from its config.
func (d Description) EachParameter(visit func(dims []int, trainable bool)) error {
	f, kind, _, err := readConfig(d.Config)
	if err != nil {
		return err
	}
	if _, known := families[kind]; !known {
		return unknownFamily(kind)
	}
	_, err = countConfig(f, families[kind], d.request.Head, d.request.FreezeFeatureEncoder,
		func(_ string, trainable bool, dims []int) { visit(dims, trainable) })
	return err
}

// check gives the config, nil unless it is the model's source.
func (r Request) check() (json.RawMessage, error) {
	config := bytes.TrimSpace(r.Config)
	if bytes.Equal(config, []byte("null")) {
		config = nil
	}
	sources := 0
	for _, given := range []bool{r.Name != "", len(config) > 0, r.Folder != "", r.Counts != nil} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		return nil, fault.New(fault.InvalidArgument, "give exactly one of name, config, folder and counts",
			"%d sources for the model", sources)
	}
	return config, nil
}

func fromConfig(r Request, raw []byte) (profile.Model, error) {
	f, kind, name, err := readConfig(raw)
	if err != nil {
		return profile.Model{}, err
	}
	if _, known := families[kind]; !known {
		return profile.Model{}, unknownFamily(kind)
	}
	c, err := countConfig(f, families[kind], r.Head, r.FreezeFeatureEncoder, nil)
	if err != nil {
		return profile.Model{}, err
	}
	return c.describe(name, kind, "config"), nil
}

// readConfig parses a config and tells its model_type and the name it was loaded under.
func readConfig(raw []byte) (f *fields, kind, name string, err error) {
	if f, err = parseFields(raw); err != nil {
		return nil, "", "", err
	}
	kind, name = f.text("model_type", ""), f.text("_name_or_path", "")
	if f.problems.err != nil {
		return nil, "", "", f.problems.err
	}
	if kind == "" {
		return nil, "", "", fault.New(fault.InvalidArgument, "pass a whole transformers config; config.to_dict() has model_type",
			"the config has no model_type")
	}
	return f, kind, name, nil
}

func unknownFamily(kind string) error {
	return fault.New(fault.Unsupported, "pass the live module, or ModelProfile(total_parameters=…, trainable_parameters=…)",
		"parameters of model_type %q cannot be counted from its config", fault.Shorten(kind))
}
